"""The registry of training methods: the facts about each, without loading any.

A method is one file with a class, and one entry here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from fedegoists.errors import SettingsError
from fedegoists.learning.model_registry import ModelKind

if TYPE_CHECKING:
    from fedegoists.learning.data import TaskName
    from fedegoists.methods.method import MethodSettings

TUNED = "+ft"
"""Behind a method's name: its models are fine-tuned on the participants' own data."""


@dataclass(frozen=True)
class Paper:
    """The paper that a method is from."""

    title: str
    authors: str
    venue: str


Sees = Literal["nothing", "sums", "single updates", "gradients"]
"""What a deployed method has to show the server: nothing of any model, weighted sums over the
members of a coalition, models of single participants, or these and gradients."""


@dataclass(frozen=True)
class MethodEntry:
    """The facts about a method.

    Attributes
    ----------
    place : str
        Module and class, such as ``fedegoists.methods.fedavg:FedAvg``.
    summary : str
        What it does, in one line.
    server_sees : {"nothing", "sums", "single updates", "gradients"}
        What it has to show the server in a coalition of several members. Silos answer methods that
        need single updates or gradients only where their limits allow it.
    describes : str
        What it asks each silo to tell about its data, besides the number of samples.
    paper : Paper, optional
        Where it is from.
    benefit : {"unused", "edges"}
        The part of the benefit graph that it gets as ``benefit``.
    coalitions : {"baseline", "final", "alone"}
        The coalitions it trains in: those of the baselines; those formed from the benefit graph;
        or none, whatever is decided.
    personal_output : bool
        Whether output layers stay in the silos in a classification, unless something else is said.
    splits : bool
        Whether it divides a model into an output layer, which stays in the silo, and the rest.
    represents : bool
        Whether it works on what goes into the output layer, so that models need layers below it.
    classes : bool
        Whether it is for tasks with classes only.
    plain_steps : bool
        Whether it counts on steps of plain gradient descent, so that it does not train with Adam.
    models : tuple of {"network", "arrays", "trees"}
        The kinds of models that it can train: networks by gradient descent; models that are
        trained by a function of their own, whose parameters can be averaged; boosted trees.
    """

    place: str
    summary: str
    server_sees: Sees
    paper: Paper | None = None
    benefit: Literal["unused", "edges"] = "unused"
    coalitions: Literal["baseline", "final", "alone"] = "baseline"
    personal_output: bool = False
    splits: bool = False
    represents: bool = False
    classes: bool = False
    plain_steps: bool = False
    describes: str = ""
    models: tuple[ModelKind, ...] = ("network", "arrays")

    @property
    def told(self) -> str:
        """A sentence about what is told of each silo's data; empty where nothing is."""
        if not self.describes:
            return ""
        return f"Each silo tells its {self.describes}."

    @property
    def tunable(self) -> bool:
        """Whether fine-tuning adds anything: not to training alone, nor to trees."""
        return self.coalitions != "alone" and self.models != ("trees",)

    def load(self) -> "type[MethodSettings]":
        """Import the method; this loads PyTorch."""
        module, name = self.place.split(":")
        found: type[MethodSettings] = getattr(import_module(module), name)
        return found


METHOD_ENTRIES: dict[str, MethodEntry] = {
    "local": MethodEntry(
        "fedegoists.methods.local:Local",
        "own data only",
        "nothing",
        coalitions="alone",
        models=("network", "arrays", "trees"),
    ),
    "fedavg": MethodEntry(
        "fedegoists.methods.fedavg:FedAvg",
        "train from a shared model, average by sample count",
        "sums",
        Paper(
            "Communication-Efficient Learning of Deep Networks from Decentralized Data",
            "McMahan, Moore, Ramage, Hampson, Agüera y Arcas",
            "AISTATS 2017",
        ),
    ),
    "fedprox": MethodEntry(
        "fedegoists.methods.fedprox:FedProx",
        "FedAvg with a pull towards the shared model",
        "sums",
        Paper(
            "Federated Optimization in Heterogeneous Networks",
            "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith",
            "MLSys 2020",
        ),
        models=("network",),
    ),
    "scaffold": MethodEntry(
        "fedegoists.methods.scaffold:Scaffold",
        "FedAvg with control variates against drift",
        "single updates",
        Paper(
            "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
            "Karimireddy, Kale, Mohri, Reddi, Stich, Suresh",
            "ICML 2020",
        ),
        plain_steps=True,
        models=("network",),
    ),
    "pfedme": MethodEntry(
        "fedegoists.methods.pfedme:PFedMe",
        "personal models by Moreau envelopes around a shared one",
        "single updates",
        Paper(
            "Personalized Federated Learning with Moreau Envelopes",
            "T. Dinh, Tran, Nguyen",
            "NeurIPS 2020",
        ),
        models=("network",),
    ),
    "pfedhn": MethodEntry(
        "fedegoists.methods.pfedhn:PFedHN",
        "a server hypernetwork generates each participant's model",
        "single updates",
        Paper(
            "Personalized Federated Learning using Hypernetworks",
            "Shamsian, Navon, Fetaya, Chechik",
            "ICML 2021",
        ),
    ),
    "feddisco": MethodEntry(
        "fedegoists.methods.feddisco:FedDisco",
        "FedAvg with weights lowered by label imbalance",
        "sums",
        Paper(
            "FedDisco: Federated Learning with Discrepancy-Aware Collaboration",
            "Ye, Xu, Wang, Xu, Chen, Wang",
            "ICML 2023",
        ),
        describes="label counts, with the noise of its privacy level",
    ),
    "pfedgraph": MethodEntry(
        "fedegoists.methods.pfedgraph:PFedGraph",
        "per-participant weights from the similarity of updates",
        "single updates",
        Paper(
            "Personalized Federated Learning with Inferred Collaboration Graphs",
            "Ye, Ni, Wu, Chen, Wang",
            "ICML 2023",
        ),
        models=("network",),
    ),
    "fedora": MethodEntry(
        "fedegoists.methods.fedora:FedORA",
        "own models, pulled to those of similar participants if better",
        "single updates",
        Paper(
            "Personalized Federated Learning with Parameter Propagation",
            "Wu, Bao, Ainsworth, He",
            "KDD 2023",
        ),
        describes="label counts and the direction in which its samples vary most, or refuses where "
        "it adds noise to counts",
        models=("network",),
    ),
    "fedegoists": MethodEntry(
        "fedegoists.methods.fedegoists.fedegoists_method:FedEgoists",
        "own model over the weighted losses of one's contributors",
        "gradients",
        Paper(
            "Free-Rider and Conflict Aware Collaboration Formation for Cross-Silo Federated "
            "Learning",
            "Chen, Wu, Tang, He, Ong, Liu, Lao, Yu",
            "NeurIPS 2024",
        ),
        benefit="edges",
        coalitions="final",
        personal_output=True,  # as published for CIFAR
        plain_steps=True,
        models=("network",),
    ),
    "egomix": MethodEntry(
        "fedegoists.methods.egomix:EgoMix",
        "own mixture of contributors' models with an output layer that fits",
        "sums",
        benefit="edges",
        coalitions="final",
    ),
    "fedavgm": MethodEntry(
        "fedegoists.methods.fedavgm:FedAvgM",
        "FedAvg with momentum at the server",
        "sums",
        Paper(
            "Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
            "Classification",
            "Hsu, Qi, Brown",
            "2019",
        ),
    ),
    "slowmo": MethodEntry(
        "fedegoists.methods.slowmo:SlowMo",
        "FedAvg with a momentum at the server that follows the learning rate",
        "sums",
        Paper(
            "SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum",
            "Wang, Tantia, Ballas, Rabbat",
            "ICLR 2020",
        ),
        models=("network",),
    ),
    "fedper": MethodEntry(
        "fedegoists.methods.fedper:FedPer",
        "a shared body, and an output layer of one's own",
        "sums",
        Paper(
            "Federated Learning with Personalization Layers",
            "Arivazhagan, Aggarwal, Singh, Choudhary",
            "2019",
        ),
        splits=True,
        models=("network",),
    ),
    "fedrep": MethodEntry(
        "fedegoists.methods.fedrep:FedRep",
        "an output layer of one's own first, then the shared body below it",
        "sums",
        Paper(
            "Exploiting Shared Representations for Personalized Federated Learning",
            "Collins, Hassani, Mokhtari, Shakkottai",
            "ICML 2021",
        ),
        splits=True,
        models=("network",),
    ),
    "fedbabu": MethodEntry(
        "fedegoists.methods.fedbabu:FedBABU",
        "a shared body below an output layer that never moves; to be fine-tuned",
        "sums",
        Paper(
            "FedBABU: Toward Enhanced Representation for Federated Image Classification",
            "Oh, Kim, Yun",
            "ICLR 2022",
        ),
        splits=True,
        models=("network",),
    ),
    "ditto": MethodEntry(
        "fedegoists.methods.ditto:Ditto",
        "a personal model, held near a shared one",
        "sums",
        Paper(
            "Ditto: Fair and Robust Federated Learning Through Personalization",
            "Li, Hu, Beirami, Smith",
            "ICML 2021",
        ),
        models=("network",),
    ),
    "apfl": MethodEntry(
        "fedegoists.methods.apfl:APFL",
        "a mixture of a shared model and one's own, with a learned weight",
        "single updates",
        Paper("Adaptive Personalized Federated Learning", "Deng, Kamani, Mahdavi", "2020"),
        plain_steps=True,
        models=("network",),
    ),
    "fedala": MethodEntry(
        "fedegoists.methods.fedala:FedALA",
        "learned weights, number by number, of the shared model in one's own",
        "gradients",
        Paper(
            "FedALA: Adaptive Local Aggregation for Personalized Federated Learning",
            "Zhang, Hua, Wang, Song, Xue, Ma, Guan",
            "AAAI 2023",
        ),
        models=("network",),
    ),
    "feddbe": MethodEntry(
        "fedegoists.methods.feddbe:FedDBE",
        "a shared model, and a memory of one's own that is added to its representation",
        "gradients",
        Paper(
            "Eliminating Domain Bias for Federated Learning in Representation Space",
            "Zhang, Hua, Cao, Wang, Song, Xue, Ma, Guan",
            "NeurIPS 2023",
        ),
        describes="mean representation and, of classes, the label counts; members receive the mean "
        "over their coalition",
        represents=True,
        models=("network",),
    ),
    "fedpac": MethodEntry(
        "fedegoists.methods.fedpac:FedPAC",
        "classes held together in the representation, and heads combined for each member",
        "gradients",
        Paper(
            "Personalized Federated Learning with Feature Alignment and Classifier Collaboration",
            "Xu, Tong, Huang",
            "ICLR 2023",
        ),
        describes="label counts and the mean representation of each class; members receive the "
        "means over their coalition",
        represents=True,
        classes=True,
        models=("network",),
    ),
    "fedfomo": MethodEntry(
        "fedegoists.methods.fedfomo:FedFomo",
        "towards the models that are better on one's own validation data",
        "single updates",
        Paper(
            "Personalized Federated Learning with First Order Model Optimization",
            "Zhang, Sapra, Fidler, Yeung, Alvarez",
            "ICLR 2021",
        ),
    ),
    "bagging": MethodEntry(
        "fedegoists.methods.bagging:Bagging",
        "boosted trees of all members, with weights of each receiver's own",
        "single updates",
        coalitions="final",
        models=("trees",),
    ),
}
"""By the names of the published tables, in their order; then what is not in the paper."""


def base_of(name: str) -> str:
    """Return the method that a name such as ``fedavg+ft`` fine-tunes, or is.

    Examples
    --------
    >>> base_of("fedavg+ft"), base_of("fedavg")
    ('fedavg', 'fedavg')
    """
    return name.removesuffix(TUNED)


def check_method(name: str) -> None:
    """Refuse a name that is no method, nor the fine-tuning of one."""
    base = base_of(name)
    entry = METHOD_ENTRIES.get(base)
    if entry is None or (name != base and not entry.tunable):
        known = [
            one + ft
            for one, own in METHOD_ENTRIES.items()
            for ft in (("", TUNED) if own.tunable else ("",))
        ]
        raise SettingsError(f"unknown method {name!r}; methods are {', '.join(known)}")


UNSUITABLE: dict[ModelKind, str] = {
    "trees": "it averages parameters or follows gradients, and boosted trees have neither; methods "
    "for trees are {methods}",
    "arrays": "it needs steps of gradient descent in the silos, and this model is trained by its "
    "own function fit; methods that work with it are {methods}",
    "network": 'it joins boosted trees; set model = "trees" under [training], or choose among '
    "{methods}",
}
"""Why a method cannot train a kind of model, and what to do."""


WITH_CLASSES: "tuple[TaskName, ...]" = ("classification", "binary")


def methods_for(kind: ModelKind, task: "TaskName | None" = None) -> tuple[str, ...]:
    """Return the methods that can train a kind of model, for a task if one is given.

    Examples
    --------
    >>> methods_for("trees")
    ('local', 'bagging')
    """
    classless = task is not None and task not in WITH_CLASSES
    return tuple(
        name
        for name, entry in METHOD_ENTRIES.items()
        if kind in entry.models and not (entry.classes and classless)
    )


def check_suits(methods: Iterable[str], kind: ModelKind) -> None:
    """Refuse methods that cannot train a kind of model, before anything is trained.

    Raises
    ------
    SettingsError
        With the reason, and the methods that can.
    """
    for name in methods:
        check_method(name)
        if kind not in METHOD_ENTRIES[base_of(name)].models:
            known = ", ".join(methods_for(kind))
            raise SettingsError(f"{name}: {UNSUITABLE[kind].format(methods=known)}")

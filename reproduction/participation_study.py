"""Does anybody end worse than alone? Models as they are delivered, against the own model.

All members of each task train alone and, with FedAvg, FedEgoists and EgoMix, in the widest
coalitions without competitors: coalitions that nobody checked, in which many would be harmed. The
product then delivers: every member chooses at home, from its own validation data alone, among its
own model, the models of all methods as they are and fine-tuned, and mixtures with its own
(`fedegoists.federation.delivery`). The other rows deliver what a method has trained.

A member of one repetition counts as *worse than alone* where its test metric is below that of its
own model by more than noise: by 1.645 standard errors over its test samples, paired. Where there
was no difference, one in twenty would be so by chance, but a member that keeps its own model never.
The rule was chosen on repetitions 10 to 14; the results are of 0 to 9, for images of 0 to 4.

    python -m reproduction participation
    python -m reproduction participation cifar10-dirichlet --device cuda --bf16
"""

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedegoists.coalitions import form
from fedegoists.consortium.participant_models import deliveries
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.federation.delivery import OWN, HomeChoice, ModelName, choose_at_home
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning import safe_choice
from fedegoists.learning.data import SiloedData
from fedegoists.learning.estimates import over_divisions
from fedegoists.learning.model_files import delivered_words
from fedegoists.learning.safe_choice import paired_gain, pseudo_values
from fedegoists.training.decisions import Decisions
from fedegoists.training.repetitions import Repetitions, Wanted, method_of, train_methods
from reproduction.gains_study import GAIN_STUDIES
from reproduction.record_files import read_records, records_csv

__all__ = ["IMAGE_TASKS", "TASKS", "Ending", "endings_of", "participation_page"]

USUAL_TASKS = ("synthetic-weak", "synthetic-strong", "digits", "heart", "eicu-demo", "tcga-brca")
"""Tasks on which the rule was chosen."""
IMAGE_TASKS = tuple(name for name in GAIN_STUDIES if name.startswith("cifar"))
"""Tasks that need a GPU."""
TASKS = USUAL_TASKS + IMAGE_TASKS
REPORTED_ON, CHOSEN_ON = tuple(range(10)), tuple(range(10, 15))
REPORTED_ON_IMAGES = REPORTED_ON[:5]
METHODS = ("local", "fedavg", "fedavg+ft", "fedegoists", "egomix", "egomix+ft")
DELIVERED = "delivered"
AS_THEY_ARE = ("fedavg", "fedegoists", "egomix")
BOUNDS = {"0": 0.5, "0.5": 0.6915, "1": safe_choice.SURE, "1.645": 0.95}
"""Bounds to choose from: standard errors, and their one-sided confidence."""
NOISE = 1.645
"""Standard errors by which a member is worse than alone."""


@dataclass(frozen=True)
class Ending:
    """A member's model on its test data, against its own model.

    Attributes
    ----------
    delivery : str
        ``delivered`` by the product, or the method whose model is delivered as it is.
    kept : str
        The model, in words.
    gain, error : float
        The gain over the own model, higher is better, and its standard error over test samples.
    train, test : int
        Samples of the member.
    """

    task: str
    repetition: int
    participant: str
    delivery: str
    kept: str
    gain: float
    error: float
    train: int
    test: int

    @property
    def worse(self) -> bool:
        """Whether the member is worse off than alone by more than noise."""
        return self.gain < 0 and self.gain < -NOISE * self.error


def endings_of(
    task: str,
    repetitions: Iterable[int] = REPORTED_ON,
    bounds: Mapping[str, float] | None = None,
    tell: Callable[[str], object] = lambda _: None,
    load: Callable[..., SiloedData] | None = None,
    device: str = "cpu",
    bf16: bool = False,
) -> list[Ending]:
    """Train a task's members with all methods, deliver, and return how each of them ends.

    Parameters
    ----------
    bounds : mapping of str to float, optional
        Other rules to deliver by besides the product's, by name: the confidence of their bound.
    load : function, optional
        Loads the data instead of the task's own function.
    """
    began, study = time.monotonic(), GAIN_STUDIES[task]
    data = {seed: (load or study.load)(data_dir=None, seed=seed) for seed in repetitions}
    trained = Repetitions.simulated(
        data, steps=study.steps, device=device, bf16=bf16, model=study.model, methods=METHODS
    )
    decisions, wanted = _widest(data), Wanted(METHODS)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = train_methods(
            wanted, trained, decisions, lambda method: Path(folder, f"{method}.safetensors")
        )
        federation = trained.federation
        assert isinstance(federation, SimulatedFederation)
        personal = {
            method: method_of(method.removesuffix("+ft"), wanted, trained, decisions).personal
            for method in METHODS
        }
        requests = deliveries(outcomes, personal, federation)
    tell(f"{task}: trained after {time.monotonic() - began:.0f} s")
    endings = []
    for one, request in requests.items():
        kept: dict[str, tuple[ModelName, Tensor]] = {}
        for method in (OWN, *AS_THEY_ARE):
            places = [c.method for c in request.candidates]
            if method in places:
                k = places.index(method)
                single = request.changed(
                    parameters=request.rows[k : k + 1],
                    candidates=request.candidates[k : k + 1],
                    shares=(),
                )
                kept[method] = _kept(choose_at_home(federation, {one: single}))
        kept[DELIVERED] = _kept(choose_at_home(federation, {one: request}))
        for bound, sure in (bounds or {}).items():
            kept[bound] = _kept(choose_at_home(federation, {one: request}, sure=sure))
        silo = next(own for own in data[int(one.repetition or 0)].silos if own.name == one.name)
        sizes = (len(silo.train), len(silo.test))
        own = _tested(federation, one, kept.pop(OWN)[1])
        for delivery, (name, model) in kept.items():
            score, values = _tested(federation, one, model)
            if math.isfinite(score - own[0]):  # as it is not with one class in the test data
                error = paired_gain([own[1]], [values]).error
                about = (task, int(one.repetition or 0), one.name, delivery, delivered_words(*name))
                endings.append(Ending(*about, score - own[0], error, *sizes))
    tell(f"{task}: delivered after {time.monotonic() - began:.0f} s")
    return endings


def _kept(choice: HomeChoice) -> tuple[ModelName, Tensor]:
    return choice.name, choice.parameters


def _widest(data: Mapping[int, SiloedData]) -> Decisions:
    """Return the widest coalitions without competitors, in which all benefit one another."""
    groups: list[tuple[Participant, ...]] = []
    edges = []
    for seed, one in data.items():
        names = one.participants
        benefit = BenefitGraph(1.0 - np.eye(len(names)), names)
        formed = form(benefit, CompetitionGraph(one.competition_pairs, names), "best")
        groups += Participant.groups(formed.coalitions, seed)
        edges += [
            (Participant(j, seed), Participant(i, seed), weight) for j, i, weight in benefit.edges()
        ]
    return Decisions(groups, groups, tuple(edges))


def _tested(
    federation: SimulatedFederation, one: Participant, model: Tensor
) -> tuple[float, safe_choice.Numbers]:
    """Return a model's test metric, and the contributions of samples to it; higher is better."""
    outputs, targets = (found.cpu() for found in federation.outputs(one, model, "test"))
    sign = 1.0 if federation.task.higher_is_better else -1.0

    def metric(rows: safe_choice.Positions) -> float:
        places = torch.from_numpy(rows)
        return sign * federation.task.score(outputs[places], targets[places])

    return metric(np.arange(len(targets))), pseudo_values(metric, len(targets))


endings_csv = partial(records_csv, Ending)
"""Return rows as CSV, see `reproduction.record_files`."""


read_endings = partial(read_records, Ending)
"""Read what `endings_csv` returned."""


def share_worse(endings: Sequence[Ending]) -> float:
    """Return the fraction of members that are worse off than alone by more than noise."""
    return sum(one.worse for one in endings) / len(endings) if endings else math.nan


def share_below(endings: Sequence[Ending]) -> float:
    """Return the fraction of members whose test result is below alone, noise or not."""
    return sum(one.gain < 0 for one in endings) / len(endings) if endings else math.nan


def participation_page(endings: Sequence[Ending], choice: Sequence[Ending], origin: str) -> str:
    """Return the results as a page.

    Parameters
    ----------
    choice : sequence of Ending
        Those of the repetitions on which the rule was chosen, by all rules.
    """
    deliveries = list(dict.fromkeys(one.delivery for one in endings))
    unknown = sum(
        one.delivery == deliveries[-1] and not math.isfinite(one.error) for one in endings
    )
    lines = [
        "# Does anybody end worse than alone?",
        "",
        *(__doc__ or "").partition("\n\n")[2].partition("    python")[0].strip().splitlines(),
        "",
        "## Share of members that end worse than alone by more than noise",
        "",
        *_table(endings, deliveries, lambda own: f"{100 * share_worse(own):.1f} %"),
        "",
        f"Members of a repetition whose test metric is not defined are left out; of {unknown} with "
        "so few events that the error is not known, nobody counts as worse. Below alone at all, "
        "noise or not:",
        "",
        *_table(endings, deliveries, lambda own: f"{100 * share_below(own):.1f} %"),
        "",
        "Mean gain over alone, in the metric of each task (mean squared error with its sign "
        "turned), with the 95 % interval of Nadeau and Bengio over repetitions:",
        "",
        *_table(endings, deliveries, _mean_gain, whole=False),
        "",
        "## What the product delivered",
        "",
        *_kinds([one for one in endings if one.delivery == DELIVERED]),
        "",
        "## How the bound was chosen (repetitions 10 to 14)",
        "",
        "The lower bound of a gain that a model must have above zero, in standard errors below the "
        "estimate; 0 takes the best estimate at its word. All of these keep within the share of "
        "5 % that may end worse than alone by more than noise, so that this share does not choose "
        "between them. The product takes one standard error for the sake of caution: it halves the "
        "share of members whose test result is below alone at all, noise or not, and pays with a "
        "part of the gains, most of all where validation data has few events.",
        "",
        "Before this table, sixty variants were tried on the same repetitions: these bounds, three "
        "ways of cross-fitting and five sets of candidates. Of them only the bounds are in the "
        "code. Cross-fitting (choosing again without parts of the validation data, and asking "
        "whether that paid on these parts) left the share worse by more than noise as it was, made "
        "fewer end below alone at all, and halved the gains on digits and eICU.",
        "",
        "| bound | worse by more than noise | worse at all | keep another model than their own | "
        + " | ".join(USUAL_TASKS)
        + " |",
        "|---|---|---|---|" + "---|" * len(USUAL_TASKS),
    ]
    for name in BOUNDS:
        own = [one for one in choice if one.delivery == name]
        below = share_below(own)
        away = sum(one.kept != delivered_words(OWN) for one in own) / max(len(own), 1)
        shares = [f"{100 * share_worse(own):.1f} %", f"{100 * below:.0f} %", f"{100 * away:.0f} %"]
        gains = [
            f"{statistics.fmean(one.gain for one in own if one.task == task):+.4f}"
            if any(one.task == task for one in own)
            else "–"
            for task in USUAL_TASKS
        ]
        lines.append(f"| {name} | " + " | ".join([*shares, *gains]) + " |")
    return "\n".join([*lines, "", origin, ""])


def _table(
    endings: Sequence[Ending],
    deliveries: Sequence[str],
    cell: Callable[[Sequence[Ending]], str],
    *,
    whole: bool = True,
) -> list[str]:
    """Return a table with a row for each task, and one for all of them."""
    lines = [
        "| task | members × repetitions | " + " | ".join(deliveries) + " |",
        "|---|---|" + "---|" * len(deliveries),
    ]
    tasks = [task for task in TASKS if any(one.task == task for one in endings)]
    for task in (*tasks, *(("all",) if whole else ())):
        own = [one for one in endings if task in (one.task, "all")]
        count = sum(one.delivery == deliveries[0] for one in own)
        cells = [cell([one for one in own if one.delivery == name]) for name in deliveries]
        lines.append(f"| {task} | {count} | " + " | ".join(cells) + " |")
    return lines


def _mean_gain(endings: Sequence[Ending]) -> str:
    """Return the mean gain over members, with its interval over repetitions."""
    by_repetition: dict[int, list[float]] = {}
    for one in endings:
        by_repetition.setdefault(one.repetition, []).append(one.gain)
    ratio = sum(one.test for one in endings) / sum(one.train for one in endings)
    found = over_divisions([statistics.fmean(own) for own in by_repetition.values()], ratio)
    between = found.interval()
    return f"{between.value:+.3f} ({between.low:+.3f} to {between.high:+.3f})"


def _kinds(endings: Sequence[Ending]) -> list[str]:
    """Return how often each kind of model was delivered, and its mean gain."""
    kinds: dict[str, list[Ending]] = {}
    for one in endings:
        kind = "mixture with own" if "% own" in one.kept else one.kept.partition(" (")[0]
        kinds.setdefault(kind, []).append(one)
    lines = ["| delivered | members | worse by more than noise |", "|---|---|---|"]
    for kind, own in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        lines.append(f"| {kind} | {len(own)} | {sum(one.worse for one in own)} |")
    return lines

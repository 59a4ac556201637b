"""The registry of benefit estimators: the facts about each, without loading PyTorch.

An estimator is one file with a function, see `fedegoists.benefit.estimator.Estimator`, and one
entry here. Whether competitors are kept apart is decided by these facts alone.
"""

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from fedegoists.errors import SettingsError
from fedegoists.learning.model_registry import ModelKind

if TYPE_CHECKING:
    from fedegoists.benefit.estimator import Estimator

FRONT = ("steps", "batch_size", "rate", "concentration", "scale", "hidden", "layers", "bound")
"""The settings of a Pareto hypernetwork."""

CURVES = "curves"
"""The estimator that learns coalition values."""


@dataclass(frozen=True)
class EstimatorEntry:
    """The facts about an estimator.

    Attributes
    ----------
    place : str
        Module and function, such as ``fedegoists.benefit.transfer:transfer``.
    summary : str
        The meaning of its weights, in one line.
    shows : str
        What it shows to which silos.
    settings : tuple of str
        The fields of `LearnSettings` that it uses, besides ``repeats`` and ``seed``.
    sends : {"models", "gradients"}
        The content of replies. Clipping and noise protect gradients, not trained models.
    mingles : bool
        Whether silos see models made from the data of all, their competitors' included.
    hides : bool
        Whether it has to know the competitors, to hide their models from each other.
    needs_losses : bool
        Whether it works only where silos tell their losses.
    from_halves : bool
        Whether a single repeat tells the standard error, from halves of the validation data.
    models : tuple of {"network", "arrays", "trees"}
        The kinds of models that it can be used with; see `MethodEntry`.
    """

    place: str
    summary: str
    shows: str
    settings: tuple[str, ...]
    # Without defaults: who adds an estimator has to say whether competitors are kept apart.
    mingles: bool = field(kw_only=True)
    hides: bool = field(kw_only=True)
    sends: Literal["models", "gradients"] = "gradients"
    needs_losses: bool = True
    from_halves: bool = True
    models: tuple[ModelKind, ...] = ("network",)

    def load(self) -> "Estimator":
        """Import the estimator; this loads PyTorch."""
        module, name = self.place.split(":")
        found: Estimator = getattr(import_module(module), name)
        return found


ESTIMATOR_ENTRIES: dict[str, EstimatorEntry] = {
    "hypernetwork": EstimatorEntry(
        "fedegoists.benefit.preference_estimator:hypernetwork",
        "the preference vectors of a Pareto hypernetwork, as in the paper",
        "all silos see models generated from the gradients of all, competitors included; refused "
        "where there is competition, unless allowed explicitly",
        (*FRONT, "preference_steps", "preference_rate", "prior", "start", "clip", "noise"),
        mingles=True,
        hides=False,
        needs_losses=False,
    ),
    "pairs": EstimatorEntry(
        "fedegoists.benefit.pairs:pairs",
        "how much better the hypernetwork's model for i and j together is for i than for i alone",
        "all silos see models generated from the gradients of all, competitors included; refused "
        "where there is competition, unless allowed explicitly",
        FRONT,
        mingles=True,
        hides=False,
    ),
    "alignment": EstimatorEntry(
        "fedegoists.benefit.alignment:alignment",
        "the cosine of local updates",
        "no silo sees a model of another; the server sees all",
        ("local",),
        mingles=False,
        hides=False,
        sends="models",
        from_halves=False,
        models=("network", "arrays"),
    ),
    "transfer": EstimatorEntry(
        "fedegoists.benefit.transfer:transfer",
        "the loss of j's local model, mixed with i's, on i's validation data",
        "silos see mixtures with the models of others, and decoys in place of competitors'",
        ("local", "softness"),
        mingles=False,
        hides=True,
        sends="models",
        models=("network", "arrays", "trees"),
    ),
    CURVES: EstimatorEntry(
        "fedegoists.benefit.curves:curves",
        "what i would gain with j, by i's learning curve, the score of j's model on i's data, and "
        "a trial coalition",
        "silos see models of halves of others' samples, and decoys in place of competitors'; the "
        "server sees models of halves; without transfers, nothing but scores leaves a silo. "
        "Simulations also train a trial coalition without competitors",
        ("local", "transfers", "ridge"),
        mingles=False,
        hides=True,
        sends="models",
    ),
}


def check_estimator(name: str, *others: str) -> str:
    """Return the name of a registered estimator, or one of `others`, such as ``auto``.

    Raises
    ------
    ValueError
        If there is none of this name.
    """
    known = (*others, *ESTIMATOR_ENTRIES)
    if name not in known:
        raise ValueError(f"unknown estimator {name!r}; estimators are {', '.join(known)}")
    return name


def check_estimator_suits(name: str, kind: ModelKind) -> None:
    """Refuse an estimator that cannot be used with a kind of model, before anything is trained.

    Raises
    ------
    SettingsError
        With the reason, and the estimators that can.
    """
    if kind in ESTIMATOR_ENTRIES[name].models:
        return
    others = ", ".join(one for one, own in ESTIMATOR_ENTRIES.items() if kind in own.models)
    why = "no parameters that can be compared or moved" if kind == "trees" else "no gradients"
    raise SettingsError(
        f"benefit.estimator: {name} cannot be used with this model, which has {why}; "
        f"estimators that can are {others}"
    )

"""Everything that can be chosen when a benefit graph is learned, with its meaning and range."""

import math
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.federation.gradient_privacy import check_privacy

__all__ = ["ESTIMATORS", "SHOWN_TO_ALL", "EstimatorName", "LearnSettings"]

EstimatorName = Literal["hypernetwork", "pairs", "alignment", "transfer"]
ESTIMATORS: tuple[EstimatorName, ...] = get_args(EstimatorName)
SHOWN_TO_ALL: tuple[EstimatorName, ...] = ("hypernetwork", "pairs")
"""Estimators that show everybody models made from everybody's data, competitors' included."""


def _number(default: float, meaning: str, low: float, high: float = math.inf) -> Any:
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True)
class LearnSettings:
    """How a benefit graph is learned.

    Attributes
    ----------
    estimator : str
        ``hypernetwork``: the preference vectors of a Pareto hypernetwork, as in the paper.
        ``pairs``: how much better the hypernetwork's model for i and j together is for i than its
        model for i alone. ``alignment``: the cosine of local updates. ``transfer``: the loss of
        j's local model on i's validation data.
    start : tuple of float, optional
        The preference vector to start from; uniform if left out.
    local : TrainSettings
        How silos train for ``alignment`` and ``transfer``.
    clip : float, optional
        The norm to which a silo shortens every sample's gradient before anything leaves it.
    noise : float
        Gaussian noise that a silo adds, in multiples of what one sample can change. With clip and
        noise a silo also keeps its losses to itself.
    """

    estimator: EstimatorName = "transfer"
    steps: int = _number(1500, "hypernetwork steps, one batch of every silo each", 1)
    batch_size: int = _number(256, "samples of a silo in a step", 1)
    rate: float = _number(3e-3, "Adam's learning rate; falls to zero along a cosine", 1e-9, 1)
    concentration: float = _number(0.1, "of the Dirichlet distribution of preferences", 1e-3, 100)
    scale: float = _number(2.0, "by which preferences are multiplied as inputs", 1e-3, 1000)
    hidden: int = _number(100, "width of the hypernetwork's hidden layers", 1)
    layers: int = _number(1, "their number", 1, 10)
    preference_steps: int = _number(120, "steps of each participant's preference vector", 1)
    preference_rate: float = _number(
        0.4, "their size, in parts of the loss; falls to zero", 1e-9, 10
    )
    prior: float = _number(0.3, "pull towards equal preferences, against noise", 0, 10)
    softness: float = _number(0.1, "of the choice of a mixture in ``transfer``", 1e-3, 10)
    repeats: int = _number(5, "independent runs: the spread of the estimate is theirs", 1, 1000)
    bound: float = _number(3.0, "a silo's gradient, at most, in medians of all silos'", 1)
    noise: float = _number(0.0, "noise multiplier", 0)
    clip: float | None = None
    start: tuple[float, ...] | None = None
    local: TrainSettings = field(
        default_factory=lambda: TrainSettings(steps=300, learning_rate=0.02, total_steps=300)
    )
    seed: int = _number(0, "the same seed gives the same estimate", 0)

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise SettingsError(
                f"unknown estimator {self.estimator!r}; estimators are {', '.join(ESTIMATORS)}"
            )
        for declared in fields(self):
            if "meaning" in declared.metadata:
                value, low, high = (
                    getattr(self, declared.name),
                    declared.metadata["low"],
                    declared.metadata["high"],
                )
                whole = declared.type is int
                number = isinstance(value, Integral if whole else Real) and not isinstance(
                    value, bool
                )
                if not number or not low <= value <= high or not math.isfinite(value):
                    kind = "a whole number, " if whole else ""
                    raise SettingsError(
                        f"{declared.name} is {value}; expected {kind}{low:g} to {high:g}"
                        f" ({declared.metadata['meaning']})"
                    )
        check_privacy(self.clip, self.noise)
        if self.clip is not None and self.estimator in ("alignment", "transfer"):
            raise SettingsError(
                f"estimator {self.estimator!r} sends trained models, which clip and noise do not "
                "protect; use 'hypernetwork'"
            )
        if self.clip is not None and self.estimator == "pairs":
            raise SettingsError(
                "estimator 'pairs' needs losses, which a silo with clip and noise keeps to itself; "
                "use 'hypernetwork'"
            )

    @property
    def certain(self) -> bool:
        """Whether there will be runs enough to know how sure the edges are."""
        return self.repeats > 1 or (self.estimator != "alignment" and self.clip is None)

    @property
    def privacy(self) -> dict[str, float]:
        """What a payload says about clipping and noise."""
        return {} if self.clip is None else {"clip": self.clip, "noise": self.noise}

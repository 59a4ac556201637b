"""The estimate of a benefit graph: weights, confidences and costs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedegoists.benefit.silo_queries import Cost
from fedegoists.benefit.validation_halves import (
    check_confidence,
    confidence_above_zero,
    standard_error,
)
from fedegoists.errors import SettingsError
from fedegoists.files import csv_bytes
from fedegoists.graphs import BenefitGraph, CurveValues, UncertainBenefits

Matrix = npt.NDArray[np.float64]

DEFAULT_CONFIDENCE = 0.95

LEAST_CONFIDENCE = 0.51
"""Below this, an edge has no error: it is as likely harmful as not."""


@dataclass(frozen=True)
class BenefitEstimate:
    """The learned benefits; in all matrices ``[j, i]`` is the benefit of source j to target i.

    Attributes
    ----------
    participants : tuple of str
        In the order of rows and columns.
    estimator : str
        How it was learned.
    runs : array of shape (repeats, halves, n, n)
        The weights of each repeat on each half of the validation data (or once, where none is
        needed), not negative, with zeros on the diagonal.
    gains : array of shape (repeats, halves, n, n)
        The evidence for an edge in the same way: above zero where j makes i better. Its unit is
        the estimator's own.
    savings : array of shape (n, n)
        The estimate of how much j is worth to i, which an edge needs to be above zero.
    history : mapping of str to sequence of float
        Means over participants in the course of learning, by name.
    cost : Cost
        The mean cost of a participant.
    failures : tuple of str
        One line for each participant that failed: how often, and why.
    absent : tuple of str
        Participants that answered too rarely; they have no edges.
    values : CurveValues, optional
        What each member of any coalition would gain, of estimators that learn this.
    """

    participants: tuple[str, ...]
    estimator: str
    runs: Matrix = field(repr=False)
    gains: Matrix = field(repr=False)
    savings: Matrix = field(repr=False)
    history: Mapping[str, Sequence[float]] = field(repr=False, default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    failures: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    values: CurveValues | None = None

    @property
    def repeats(self) -> int:
        """The number of independent runs."""
        return len(self.runs)

    @property
    def certain(self) -> bool:
        """Whether there were enough runs for confidences."""
        return bool(self.gains.shape[0] * self.gains.shape[1] > 1)

    @cached_property
    def weights(self) -> Matrix:
        """The mean weights over repeats: ``weights[j, i]`` from source j to target i."""
        mean: Matrix = self.runs.mean((0, 1))
        return mean

    @cached_property
    def spread(self) -> Matrix:
        """The standard error of each weight, see `fedegoists.benefit.validation_halves`.

        Preference vectors use all validation data: their error comes from repeats alone.
        """
        return standard_error(self.runs)

    def graph(
        self, threshold: float | None = None, *, confidence: float | None = None
    ) -> BenefitGraph:
        """Return the graph with the edges of one of two rules.

        Parameters
        ----------
        threshold : float, optional
            The released code's rule (not in the paper): an edge where the weight is above this
            number ε.
        confidence : float, optional
            The rule without tuning, used when no threshold is given: an edge where the gain is
            above zero with this confidence (one-sided), and the saving is positive too; 0.95 if
            left out.

        Returns
        -------
        BenefitGraph
            With the weights as learned on the edges.
        """
        if threshold is not None and confidence is not None:
            raise SettingsError("give a threshold or a confidence, not both")
        if threshold is not None:
            if not threshold >= 0:
                raise SettingsError(f"threshold is {threshold}; expected 0 or more")
            edges = self.weights > threshold
        else:
            confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
            check_confidence(confidence)
            edges = self.confidences() > confidence
        edges = edges & self._possible
        # Where the evidence says that there is an edge, it must not vanish for a weight of zero.
        weights = np.where(edges, np.maximum(self.weights, 1e-6), 0.0)
        return BenefitGraph(weights, self.participants)

    def uncertain(self) -> UncertainBenefits:
        """Return the weights with the standard errors that their evidence says.

        The error of a weight is such that it is as many errors above zero as a normal quantile at
        the confidence of its edge: evidence may be of another kind than weights, and Student's t
        with few degrees of freedom is less sure than a normal distribution. A pair whose evidence
        is not above zero has neither weight nor error.
        """
        from scipy.special import ndtri

        levels = self.confidences()
        counts = levels > LEAST_CONFIDENCE
        weights = np.where(counts, np.maximum(self.weights, 1e-6), 0.0)
        ratios = ndtri(np.where(counts, levels, 0.75))
        errors = np.where(counts & np.isfinite(ratios), weights / ratios, 0.0)
        return UncertainBenefits(weights, errors, self.participants)

    def confidences(self) -> Matrix:
        """Return the confidence up to which each edge counts in `graph`; 0 for never."""
        counts = self._possible & (self.savings > 0)
        found: Matrix = np.where(counts, confidence_above_zero(self.gains), 0.0)
        return found

    @property
    def _possible(self) -> npt.NDArray[np.bool_]:
        """Where an edge can be: between two participants that were not absent."""
        here = np.array([name not in self.absent for name in self.participants])
        found: npt.NDArray[np.bool_] = here[:, None] & here & ~np.eye(len(here), dtype=bool)
        return found

    def to_json(self) -> str:
        """Return the estimate as JSON, without its history and its participants."""
        return json.dumps(
            {
                "estimator": self.estimator,
                "runs": self.runs.tolist(),
                "gains": self.gains.tolist(),
                "savings": self.savings.tolist(),
                "cost": asdict(self.cost),
                "failures": self.failures,
                "absent": self.absent,
                "values": None if self.values is None else self.values.to_dict(),
            }
        )

    @classmethod
    def from_json(cls, participants: tuple[str, ...], text: str) -> "BenefitEstimate":
        """Return the estimate of `to_json`; every number is the same."""
        known = json.loads(text)
        return cls(
            participants,
            known["estimator"],
            np.array(known["runs"]),
            np.array(known["gains"]),
            np.array(known["savings"]),
            cost=Cost(**known["cost"]),
            failures=tuple(known["failures"]),
            absent=tuple(known["absent"]),
            values=None if known.get("values") is None else CurveValues.from_dict(known["values"]),
        )

    def weights_csv(self) -> bytes:
        """Return all weights but the diagonal as ``source,target,weight``."""
        names = self.participants
        return csv_bytes(
            ("source", "target", "weight"),
            (
                (names[j], names[i], repr(float(self.weights[j, i])))
                for j in range(len(names))
                for i in range(len(names))
                if i != j
            ),
        )


def quantile(confidence: float, degrees: float | Matrix) -> Matrix:
    """Return the quantile of Student's t at a confidence.

    Examples
    --------
    >>> round(float(quantile(0.95, 2)), 3)
    2.92
    """
    from scipy.stats import t

    check_confidence(confidence)
    return np.asarray(t.ppf(confidence, degrees), float)

"""Uncertain benefits: a benefit graph whose weights are estimates with standard errors.

An estimator that looks at n(n − 1) pairs finds benefits where there are none: at a confidence of
0.95 in one of twenty such pairs. A normal distribution around each estimate does not say so. Here
each pair either has no benefit at all or a real one (a spike and a slab), and how many have none is
learned from all pairs together:

- An estimate w with the standard error s has the z-value z = w / s. A pair is *listed* if z is
  above 1.645, the quantile of the confidence 0.95. A pair that is not listed counts as having no
  benefit.
- The *null share* π is the estimated share of pairs without benefit. Of these, 95 % are not listed:
  π = (u + 1) / (0.95 m), at most m / (m + 1), with u of all m pairs not listed.
- A real benefit has any size with the same density, 1/6 per standard error. With φ and Φ the
  density and the distribution function of the standard normal distribution, the odds that a listed
  benefit is real are

      (1 − π) / π · Φ(z) / (6 φ(z)).

- The *promised* benefit is the probability p that it is real times its estimate, p · w.

Given that it is real, a benefit is normal around w with standard deviation s, cut at 0 and 2 w, so
that its mean is w. Pairs are independent.

A benefit without error is certain: p is 1. A larger error of any pair lowers z, so it lowers p of
that pair, and raises π, which lowers p of all others: more doubt never raises a promise.
"""

import hashlib
import json
import math
import os
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError, shown
from fedegoists.files import csv_bytes, csv_rows, json_value, write_bytes
from fedegoists.graphs.benefit_graph import BenefitGraph
from fedegoists.graphs.coalition_values import Floats
from fedegoists.graphs.participant_graph import labelled_matrix, names_for, square_matrix
from fedegoists.graphs.participants import (
    Reference,
    index_of,
    natural_order,
    validated_name,
    validated_names,
)
from fedegoists.notebooks import data_frame

LISTED_CONFIDENCE = 0.95
"""The confidence with which a single benefit must be above zero to be listed."""

LISTED_Z = NormalDist().inv_cdf(LISTED_CONFIDENCE)
"""The z-value above which a pair is listed, 1.645."""

SLAB_WIDTH = 6.0
"""The density of real benefits is one over this number, per standard error."""

DEFAULT_SAFETY = 0.8
"""The least probability that nobody rides free in a coalition. Most coalitions that satisfy it are
much safer; see the page on doubt in the documentation for what it costs."""

GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of the generator SplitMix64."""

MOST_SCENARIOS = 100_000


class UncertainBenefits:
    """Estimated benefits with standard errors; see the module for what the probabilities mean.

    They are coalition values, too: expected benefits that add up.

    Parameters
    ----------
    weights : array-like of shape (n, n)
        ``weights[j, i]`` is the estimated benefit of j to i: finite, not negative, 0 on the
        diagonal.
    errors : array-like of shape (n, n)
        The standard error of each estimate; 0 for a weight that is known.
    participants : sequence of str, optional
        Names in the order of the rows; ``v0``, ``v1``, … by default.
    null_share : float, optional
        The share of pairs without benefit, if it is not to be learned from these pairs.

    Attributes
    ----------
    null_share : float
        The share of pairs without benefit.
    probabilities : array of shape (n, n)
        The probability that each benefit is real; 0 for pairs that are not listed.
    promised : array of shape (n, n)
        Probability times estimate.

    Examples
    --------
    South's benefit to North is four standard errors above zero, North's to South only two:

    >>> doubt = UncertainBenefits(
    ...     [[0, 0.2], [0.4, 0]], [[0, 0.1], [0.1, 0]], ["North", "South"]
    ... )
    >>> round(doubt.null_share, 3), doubt.probabilities.round(3).tolist()
    (0.526, [[0.0, 0.731], [0.999, 0.0]])
    """

    KIND: ClassVar[str] = "uncertain benefits"
    COLUMNS: ClassVar[tuple[str, ...]] = ("source", "target", "weight", "error")

    def __init__(
        self,
        weights: npt.ArrayLike,
        errors: npt.ArrayLike,
        participants: Iterable[str] | None = None,
        *,
        null_share: float | None = None,
    ) -> None:
        where = "uncertain benefits"
        names = None if participants is None else tuple(participants)
        errors, names_of_errors = labelled_matrix(errors, names, where)
        graph = BenefitGraph(weights, names if names is not None else names_of_errors)
        self._participants = graph.participants
        self.weights: Floats = graph.to_numpy()
        array = square_matrix(errors, f"{where}, errors", "numbers")
        names_for(len(array), self._participants, f"{where}, errors")
        self.errors: Floats = np.array(array, dtype=np.float64, order="C") + 0.0
        self._check_errors()
        self.given_share = null_share
        if null_share is not None and not 0 < null_share < 1:
            raise GraphError(f"{where}: the null share is {null_share}; expected 0 to 1")
        z = _z_values(self.weights, self.errors)
        self.null_share = _null_share(z) if null_share is None else float(null_share)
        self.probabilities: Floats = _probabilities(z, self.null_share)
        self.promised: Floats = self.probabilities * self.weights
        self._missing = np.log1p(-np.minimum(self.probabilities, 1 - 2.0**-53))
        self._missing[self.probabilities >= 1] = -np.inf
        for matrix in (self.weights, self.errors, self.probabilities, self.promised):
            matrix.flags.writeable = False

    def _check_errors(self) -> None:
        names = self._participants
        bad = np.argwhere(~(np.isfinite(self.errors) & (self.errors >= 0)))
        own = np.flatnonzero(self.errors.diagonal())
        if len(bad) or len(own):
            j, i = bad[0] if len(bad) else (own[0], own[0])
            expected = "a finite number that is not negative" if len(bad) else "0"
            raise GraphError(
                f"uncertain benefits: the error of the benefit of {names[j]!r} to {names[i]!r} is "
                f"{self.errors[j, i]}; expected {expected}"
            )

    # Coalition values ------------------------------------------------------------------------

    @property
    def participants(self) -> tuple[str, ...]:
        """The participants' names in the order of rows and columns."""
        return self._participants

    @property
    def n(self) -> int:
        """The number of participants."""
        return len(self._participants)

    @property
    def unit(self) -> str:
        """Benefits have no unit."""
        return ""

    @property
    def certain(self) -> bool:
        """Whether no benefit has an error: it is a plain benefit graph."""
        return not self.errors.any()

    def gains(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the promised benefits that each member receives in each coalition."""
        members = _members(coalitions)
        return (members @ self.promised) * members

    def standard_errors(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the standard deviation of what each member receives."""
        members = _members(coalitions)
        p = self.probabilities
        variances = p * (self.weights**2 * (1 - p) + self.errors**2)
        return np.sqrt(members @ variances) * members

    def upper_gains(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the gains, which never fall if a coalition grows."""
        return self.gains(coalitions)

    def linear_bounds(self, touching: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return constants and weights of an additive bound: the gains are additive themselves."""
        return np.zeros(self.n), self.promised.copy()

    def restricted_to(self, participants: Sequence[str]) -> "UncertainBenefits":
        """Return the benefits among some participants; all probabilities stay as they are."""
        keep = [index_of(name, self._participants, "restriction") for name in participants]
        names = [self._participants[k] for k in keep]
        inside = np.ix_(keep, keep)
        return UncertainBenefits(
            self.weights[inside], self.errors[inside], names, null_share=self.null_share
        )

    def relearned(self) -> "UncertainBenefits":
        """Return the same estimates, with the null share learned from these pairs alone."""
        return UncertainBenefits(self.weights, self.errors, self._participants)

    # Probabilities -----------------------------------------------------------------------------

    def receiving(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the probability that each member receives a benefit; 1 for all others."""
        return self._some(coalitions, self._missing)

    def giving(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the probability that each member gives a benefit; 1 for all others."""
        return self._some(coalitions, self._missing.T)

    def _some(self, coalitions: npt.ArrayLike, missing: Floats) -> Floats:
        members = _members(coalitions)
        certain = np.isneginf(missing)
        log_none = members @ np.where(certain, 0.0, missing)
        some = np.where(members @ certain > 0, 1.0, -np.expm1(log_none))
        return np.where(members > 0, some, 1.0)

    def safety(self, coalitions: npt.ArrayLike) -> Floats:
        """Return a lower bound on the probability that nobody rides free in each coalition.

        What different members receive is independent, and so is what they give. That all receive
        and that all give are both likelier the more benefits are real, so the probability that both
        hold is at least the product of the two (Harris's inequality). One alone rides with nobody:
        1.

        Examples
        --------
        >>> doubt = UncertainBenefits([[0, 0.2], [0.4, 0]], [[0, 0.1], [0.1, 0]])
        >>> doubt.safety([[True, True]]).round(3).tolist()  # (0.731 · 0.999)²
        [0.533]
        """
        members = _members(coalitions)
        both = self.receiving(members).prod(axis=1) * self.giving(members).prod(axis=1)
        return np.where(members.sum(axis=1) > 1, both, 1.0)

    def measured(self, source: Reference, target: Reference, *, real: bool) -> "UncertainBenefits":
        """Return what would be known after a measurement: a benefit is as estimated, or none."""
        j, i = (index_of(name, self._participants, "measurement") for name in (source, target))
        weights, errors = self.weights.copy(), self.errors.copy()
        weights[j, i], errors[j, i] = (weights[j, i] if real else 0.0), 0.0
        return UncertainBenefits(weights, errors, self._participants, null_share=self.null_share)

    def scenarios(self, count: int, seed: int = 0) -> Floats:
        """Draw benefit graphs that the estimates allow: an array of shape (count, n, n).

        Scenario k takes for the pair of source j and target i two numbers between 0 and 1. They are
        (⌊x / 2¹¹⌋ + ½) / 2⁵³, where x is number 2 (k n² + j n + i) + d of the generator SplitMix64
        that starts with the seed: d = 0 says whether the benefit is real, and d = 1 how large it
        is, by the inverse of its distribution function. Every program can repeat that.
        """
        if not 1 <= count <= MOST_SCENARIOS:
            raise GraphError(f"{count} scenarios; expected 1 to {MOST_SCENARIOS}")
        n = self.n
        drawn = np.zeros((count, n, n))
        normal = NormalDist()
        number = np.arange(count, dtype=np.uint64) * np.uint64(2 * n * n)
        for j, i in np.argwhere(self.probabilities > 0).tolist():
            place = np.uint64(2 * (j * n + i))
            real = _uniform(number + place, seed) < self.probabilities[j, i]
            w, s = float(self.weights[j, i]), float(self.errors[j, i])
            if s == 0:
                drawn[real, j, i] = w
                continue
            low = normal.cdf(-w / s)
            where = _uniform(number[real] + place + np.uint64(1), seed)
            sizes = [w + s * normal.inv_cdf(low + u * (1 - 2 * low)) for u in where.tolist()]
            drawn[real, j, i] = np.maximum(sizes, 1e-9 * w)
        return drawn

    # Graphs and files --------------------------------------------------------------------------

    @property
    def graph(self) -> BenefitGraph:
        """The benefit graph without errors: the estimates of the listed pairs."""
        return BenefitGraph(np.where(self.probabilities > 0, self.weights, 0.0), self._participants)

    def _rows(self) -> list[tuple[str, str, float, float]]:
        names = self._participants
        known = np.argwhere((self.weights != 0) | (self.errors != 0)).tolist()
        return [
            (names[j], names[i], float(self.weights[j, i]), float(self.errors[j, i]))
            for j, i in known
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the estimates as plain values for JSON."""
        share = {} if self.given_share is None else {"null_share": self.given_share}
        return {
            "kind": self.KIND,
            "participants": list(self._participants),
            "edges": [list(row) for row in self._rows()],
            **share,
        }

    def to_json(self) -> str:
        """Return the estimates as JSON text; numbers read back exactly."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: object, where: str = "uncertain benefits") -> "UncertainBenefits":
        """Make estimates from the mapping that `to_dict` returns; errors start with `where`."""
        required = {"participants", "edges"}
        if not isinstance(data, Mapping) or not (
            required <= set(data) <= {*required, "kind", "null_share"}
        ):
            raise GraphError(f"{where}: expected an object with 'participants' and 'edges'")
        if data.get("kind", cls.KIND) != cls.KIND:
            raise GraphError(f"{where}: kind {shown(data['kind'])}; expected {cls.KIND!r}")
        if not isinstance(data["participants"], list) or not isinstance(data["edges"], list):
            raise GraphError(f"{where}: 'participants' and 'edges' must be lists")
        names = validated_names(data["participants"], where)
        rows = []
        for k, row in enumerate(data["edges"]):
            if (
                not isinstance(row, list)
                or len(row) != 4
                or not all(isinstance(name, str) for name in row[:2])
                or not all(_is_number(number) for number in row[2:])
            ):
                raise GraphError(
                    f"{where}: entry {k} of 'edges' is {shown(row)}, not two participants by name, "
                    "a weight and an error"
                )
            rows.append((f"{where}, edge {k}", row[0], row[1], float(row[2]), float(row[3])))
        share = data.get("null_share")
        if share is not None and not _is_number(share):
            raise GraphError(f"{where}: the null share {shown(share)} is not a number")
        return cls._of_rows(rows, names, where, None if share is None else float(share))

    @classmethod
    def from_json(cls, text: str, where: str = "uncertain benefits") -> "UncertainBenefits":
        """Make estimates from the JSON text that `to_json` returns."""
        return cls.from_dict(json_value(text, where), where)

    def csv_bytes(self) -> bytes:
        """Return the CSV file ``source,target,weight,error``; numbers read back exactly."""
        return csv_bytes(self.COLUMNS, self._rows())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the CSV file; a pair with neither weight nor error is not in the file."""
        write_bytes(path, self.csv_bytes())

    @classmethod
    def from_csv(
        cls, path: str | os.PathLike[str], participants: Iterable[str] | None = None
    ) -> "UncertainBenefits":
        """Read the CSV file that `to_csv` writes; a pair that is not in it has no benefit.

        Without `participants` they are the names in the file, in natural order.
        """
        rows = []
        for number, row in csv_rows(path, cls.COLUMNS, GraphError):
            place = f"{path}, line {number}"
            source, target = (validated_name(name.strip(), place) for name in row[:2])
            weight, error = (_number(text, place) for text in row[2:])
            rows.append((place, source, target, weight, error))
        if participants is None:
            names = natural_order({name for row in rows for name in row[1:3]})
        else:
            names = validated_names(participants)
        return cls._of_rows(rows, names, str(path), None)

    @classmethod
    def _of_rows(
        cls,
        rows: Iterable[tuple[str, str, str, float, float]],
        names: tuple[str, ...],
        where: str,
        null_share: float | None,
    ) -> "UncertainBenefits":
        matrices = np.zeros((2, len(names), len(names)))
        seen = set()
        for place, source, target, weight, error in rows:
            j, i = (index_of(name, names, place) for name in (source, target))
            if j == i:
                raise GraphError(f"{place}: {source!r} cannot benefit itself; remove the edge")
            if (j, i) in seen:
                raise GraphError(
                    f"{place}: the edge from {source!r} to {target!r} is listed twice; keep one"
                )
            seen.add((j, i))
            matrices[:, j, i] = weight, error
        try:
            return cls(matrices[0], matrices[1], names, null_share=null_share)
        except GraphError as error:
            raise GraphError(f"{where}: {error}") from None

    def to_frame(self) -> Any:
        """Return a pandas data frame of the listed pairs: weight, error, probability."""
        p, place = self.probabilities, {name: k for k, name in enumerate(self._participants)}
        rows = [(*row, float(p[place[row[0]], place[row[1]]])) for row in self._rows()]
        return data_frame((*self.COLUMNS, "probability"), rows)

    # Identity ----------------------------------------------------------------------------------

    @property
    def sha256(self) -> str:
        """The SHA-256 of names, estimates and errors as big-endian IEEE 754 doubles."""
        numbers = {
            name: struct.pack(f">{matrix.size}d", *matrix.ravel().tolist()).hex()
            for name, matrix in (("weights", self.weights), ("errors", self.errors))
        }
        share = "" if self.given_share is None else struct.pack(">d", self.given_share).hex()
        value = {
            "kind": self.KIND,
            "participants": self._participants,
            "null_share": share,
            **numbers,
        }
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UncertainBenefits):
            return NotImplemented
        return self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        listed = int((self.probabilities > 0).sum())
        return f"<UncertainBenefits: {self.n} participants, {listed} listed edges>"


def has_errors(path: str | os.PathLike[str]) -> bool:
    """Whether a file of benefits has standard errors: a CSV column ``error``, or a JSON ``kind``.

    Whether it is a valid file is for its reader to say.
    """
    from fedegoists.files import read_text

    text = read_text(path)
    if Path(path).suffix.casefold() == ".json":
        return f'"{UncertainBenefits.KIND}"' in text
    header = next((line for line in text.splitlines() if line.strip()), "")
    return "error" in [name.strip().casefold() for name in header.split(",")]


def _members(coalitions: npt.ArrayLike) -> Floats:
    return np.atleast_2d(np.asarray(coalitions)).astype(np.float64)


def _z_values(weights: Floats, errors: Floats) -> Floats:
    """Return weight over error; infinite for a positive weight without error."""
    sure = np.where(weights > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):
        return np.divide(weights, errors, out=sure, where=errors > 0)


def _null_share(z: Floats) -> float:
    """Return the share of pairs without benefit, from the pairs that are not listed."""
    pairs = len(z) * (len(z) - 1)
    if not pairs:
        return 0.5
    unlisted = pairs - int((z > LISTED_Z).sum())
    return min((unlisted + 1) / (LISTED_CONFIDENCE * pairs), pairs / (pairs + 1))


def _probabilities(z: Floats, null_share: float) -> Floats:
    """Return the probability that each benefit is real."""
    found = np.zeros(z.shape)
    prior = math.log((1 - null_share) / null_share / SLAB_WIDTH * math.sqrt(2 * math.pi))
    for j, i in np.argwhere(z > LISTED_Z).tolist():
        ratio = float(z[j, i])
        if math.isinf(ratio):
            found[j, i] = 1.0
            continue
        below = 0.5 * math.erfc(-ratio / math.sqrt(2))
        odds = prior + math.log(below) + 0.5 * ratio * ratio  # their logarithm
        found[j, i] = 1 / (1 + math.exp(-odds)) if odds < 700 else 1.0
    return found


def _uniform(number: npt.NDArray[np.uint64], seed: int) -> Floats:
    """Return numbers of the generator SplitMix64 as fractions between 0 and 1."""
    with np.errstate(over="ignore"):
        x = (number + np.uint64(1)) * np.uint64(GOLDEN) + np.uint64(seed % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX_1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX_2)
        x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _is_number(value: object) -> bool:
    """Whether it is a number, and no larger than a float can be."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, float)


def _number(text: str, place: str) -> float:
    if "_" not in text and text.isascii():  # Python reads 1_000 as a number; nobody else does
        try:
            return float(text)
        except ValueError:
            pass
    raise GraphError(f"{place}: {shown(text)} is not a number; write numbers like 0.25")

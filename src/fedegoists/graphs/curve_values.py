"""Concave coalition values: a learning curve per participant, an exchange rate per pair.

With n_i samples of its own, participant i has in coalition S the samples of the others as well, in
units of its own samples:

    x_i(S) = Σ_{j ∈ S, j ≠ i} κ_ji · n_j / n_i,        gain_i(S) = f_i(x_i(S)).

The *exchange rate* κ_ji tells how many of its own samples one sample of j is worth to i; it is
negative where j's data harms. The *learning curve* f_i tells what more data brings:

    f_i(x) = slope_i · log2(1 + x)                          with power 0, the default;
    f_i(x) = slope_i · ((1 + x)^p − 1) / (p · ln 2)         with any other power p ≤ 1.

The slope is the gain from a doubling of one's data (with another power: the rate at which such a
doubling begins). A negative power is the power law of statistics, whose gains come to an end; power
1 adds up like a benefit graph. Below x = −1/2 the curve goes on along its tangent. So f_i is
increasing and concave everywhere, and f_i(0) = 0.

Harm has an end: a common model follows the harmful members only as far as their samples are a part
of all. With the part h_i(S) of members whose rate for i is negative, and the *worst* harm that i
would suffer from their model alone,

    gain_i(S) = max(f_i(x_i(S)), −worst_i · h_i(S)²).

Without a worst harm there is no such end.

Standard errors are those of the delta method, with independent errors of slopes and rates:

    Var(gain_i) = (gain_i / slope_i)² Var(slope_i) + f_i'(x)² Σ_j (n_j / n_i)² Var(κ_ji);

where harm has come to its end, a quarter of it.
"""

import hashlib
import json
import math
import os
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError, shown
from fedegoists.files import csv_bytes, csv_rows, json_value
from fedegoists.graphs.coalition_values import Bools, Floats
from fedegoists.graphs.participant_graph import names_for, square_matrix
from fedegoists.graphs.participants import index_of, validated_name, validated_names
from fedegoists.notebooks import data_frame

LOWEST = -0.5
"""Where the curve goes on along its tangent: harm as large as half of one's own data."""

LARGEST = 1e12
"""Larger numbers are refused: sums of their squares would lose all digits."""

SMALLEST_POWER = -10.0

HARM_ERROR = 0.25
"""Standard error of harm that has come to its end, in parts of it."""


class CurveValues:
    """Coalition values from learning curves and exchange rates; see the module for the formulas.

    Parameters
    ----------
    samples : array-like of shape (n,)
        The number of training samples of each participant.
    slopes : array-like of shape (n,)
        What a doubling of its data would bring each participant, in units of the metric; not
        negative, and 0 for a participant without samples, which has no curve.
    rates : array-like of shape (n, n)
        ``rates[j, i]`` is the worth of one sample of j to i, in samples of i; negative for harm.
        The diagonal is zero.
    participants : sequence of str, optional
        Names in the order of the rows; ``v0``, ``v1``, … by default.
    slope_errors, rate_errors : array-like, optional
        Standard errors of slopes and rates; 0 by default.
    powers : array-like of shape (n,), optional
        The shape of each curve, from −10 to 1; 0, a logarithm, by default.
    worst : array-like of shape (n,), optional
        The harm from a model of harmful members alone; endless by default.
    unit : str
        The metric, such as ``AUC``.

    Attributes
    ----------
    effects, effect_variances : arrays of shape (n, n)
        ``effects[j, i]`` is what j adds to x_i, and its variance.

    Examples
    --------
    For North, South's 300 samples are worth 0.5 × 300 = 150 of its own: a doubling and a half.

    >>> values = CurveValues([100, 300], [0.02, 0.01], [[0, 0.9], [0.5, 0]], ["North", "South"])
    >>> values.gains([[True, True]]).round(4).tolist()
    [[0.0264, 0.0038]]
    """

    KIND: ClassVar[str] = "curves"
    CURVE_COLUMNS: ClassVar[tuple[str, ...]] = (
        "participant",
        "samples",
        "slope",
        "slope_error",
        "power",
    )
    RATE_COLUMNS: ClassVar[tuple[str, ...]] = ("source", "target", "rate", "rate_error")

    def __init__(
        self,
        samples: npt.ArrayLike,
        slopes: npt.ArrayLike,
        rates: npt.ArrayLike,
        participants: Iterable[str] | None = None,
        *,
        slope_errors: npt.ArrayLike = 0.0,
        rate_errors: npt.ArrayLike = 0.0,
        powers: npt.ArrayLike = 0.0,
        worst: npt.ArrayLike | None = None,
        unit: str = "",
    ) -> None:
        where = "coalition values"
        matrix = square_matrix(rates, where, "exchange rates").astype(np.float64)
        n = len(matrix)
        self._participants = names_for(n, participants, where)
        self.samples = _vector(samples, n, "samples")
        self.slopes = _vector(slopes, n, "slopes")
        self.slope_errors = _vector(slope_errors, n, "slope errors")
        self.powers = _vector(powers, n, "powers")
        self.worst = None if worst is None else _vector(worst, n, "worst harm")
        self.rates = matrix + 0.0  # −0.0 becomes 0.0, so that equal values have equal digests
        self.rate_errors = _matrix(rate_errors, n)
        if not isinstance(unit, str) or any(unicodedata.category(c) == "Cs" for c in unit):
            raise GraphError(f"{where}: the unit {shown(unit)} is no text; write it like 'AUC'")
        self._unit = unit
        self._check()
        for array in self._arrays().values():
            array.flags.writeable = False
        # Effects in units of one's own samples; nobody has an effect on a participant without any.
        ratios = np.where(self.samples > 0, self.samples[:, None] / np.maximum(self.samples, 1), 0)
        self.effects = self.rates * ratios
        self.effect_variances = (self.rate_errors * ratios) ** 2
        self.effects.flags.writeable = self.effect_variances.flags.writeable = False
        if n and np.abs(self.effects).sum(axis=0).max() > LARGEST:
            i = int(np.abs(self.effects).sum(axis=0).argmax())
            raise GraphError(
                f"{where}: the samples of others are worth more than {LARGEST:.0e} times those of "
                f"{self._participants[i]!r}; check its samples and exchange rates"
            )

    def _check(self) -> None:
        """Refuse values that mean nothing; the message names the participants."""
        names = self._participants
        for what, array, low, high in (
            ("samples", self.samples, 0.0, LARGEST),
            ("slope", self.slopes, 0.0, LARGEST),
            ("slope error", self.slope_errors, 0.0, LARGEST),
            ("power", self.powers, SMALLEST_POWER, 1.0),
            ("exchange rate", self.rates, -LARGEST, LARGEST),
            ("exchange rate's error", self.rate_errors, 0.0, LARGEST),
            ("worst harm", self._arrays().get("worst", np.zeros(0)), 0.0, LARGEST),
        ):
            bad = np.argwhere(~((array >= low) & (array <= high)))  # also if not a number
            if len(bad):
                k = tuple(bad[0].tolist())
                who = " for ".join(repr(names[i]) for i in k)
                raise GraphError(
                    f"coalition values: the {what} of {who} is {array[k]}; "
                    f"expected a number from {low:g} to {high:g}"
                )
        without = np.flatnonzero((self.samples < 1) & (self.slopes > 0))
        if len(without):
            i = without[0]
            raise GraphError(
                f"coalition values: {names[i]!r} has {self.samples[i]:g} samples, so it has no "
                f"learning curve, but its slope is {self.slopes[i]:g}; set the slope to 0"
            )
        own = np.flatnonzero((self.rates.diagonal() != 0) | (self.rate_errors.diagonal() != 0))
        if len(own):
            raise GraphError(
                f"coalition values: {names[own[0]]!r} has an exchange rate, or an error of it, for "
                "its own samples; set the diagonal to zero"
            )

    # Values --------------------------------------------------------------------------------

    @property
    def participants(self) -> tuple[str, ...]:
        """The participants' names, in the order of rows and columns."""
        return self._participants

    @property
    def unit(self) -> str:
        """The metric in which gains are measured."""
        return self._unit

    def gains(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the expected gain of every member of each coalition; 0 for the others."""
        members, rows = _rows(coalitions)
        gains = np.maximum(self._curve(rows @ self.effects), -self._ends(rows))
        return np.where(members, gains, 0.0)

    def standard_errors(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the standard error of each expected gain, by the delta method."""
        members, rows = _rows(coalitions)
        x = rows @ self.effects
        by_slope = self._doublings(x) * self.slope_errors
        by_rates = self._steepness(x) ** 2 * (rows @ self.effect_variances)
        ends = self._ends(rows)
        errors = np.sqrt(by_slope**2 + by_rates)
        errors = np.where(self._curve(x) < -ends, HARM_ERROR * ends, errors)
        return np.where(members, errors, 0.0)

    def _ends(self, rows: Floats) -> Floats:
        """Return the largest possible harm to each member of each coalition."""
        if self.worst is None:
            return np.full(rows.shape, np.inf)
        harmful = rows @ (self.samples[:, None] * (self.rates < 0))
        part = harmful / np.maximum(rows @ self.samples, 1.0)[:, None]
        return np.asarray(self.worst * part**2)

    def upper_gains(self, coalitions: npt.ArrayLike) -> Floats:
        """Return the gain of each member from the others that help it, without those that harm."""
        members, rows = _rows(coalitions)
        return np.where(members, self._curve(rows @ np.maximum(self.effects, 0.0)), 0.0)

    def linear_bounds(self, touching: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return the tangents of all curves as constants and weights; see `CoalitionValues`.

        Harm that has come to its end is above the tangents.
        """
        x = np.einsum("ij,ji->i", np.asarray(touching, dtype=np.float64), self.effects)
        steepness = self._steepness(x)
        constants = np.maximum(self._curve(x) - steepness * x, 0.0)  # f(0) = 0, up to rounding
        return constants, self.effects * steepness

    def _doublings(self, x: Floats) -> Floats:
        """Return the curves with slope 1: the doublings that x times one's own data are worth."""
        inside = np.maximum(x, LOWEST)
        logs = np.log1p(inside)
        powers = np.where(self.powers == 0, 1.0, self.powers)
        curved = np.where(self.powers == 0, logs, np.expm1(powers * logs) / powers)
        return np.asarray((curved + (x - inside) * self._derivative(inside)) / math.log(2))

    def _derivative(self, x: Floats) -> Floats:
        return np.asarray(np.exp((self.powers - 1) * np.log1p(x)))

    def _curve(self, x: Floats) -> Floats:
        return self.slopes * self._doublings(x)

    def _steepness(self, x: Floats) -> Floats:
        """Return the derivative of the curves at x."""
        return self.slopes * self._derivative(np.maximum(x, LOWEST)) / math.log(2)

    def restricted_to(self, participants: Sequence[str]) -> "CurveValues":
        """Return the values among some of the participants, in the order given."""
        keep = [index_of(name, self._participants, "restriction") for name in participants]
        inside = np.ix_(keep, keep)
        return CurveValues(
            self.samples[keep],
            self.slopes[keep],
            self.rates[inside],
            [self._participants[k] for k in keep],
            slope_errors=self.slope_errors[keep],
            rate_errors=self.rate_errors[inside],
            powers=self.powers[keep],
            worst=None if self.worst is None else self.worst[keep],
            unit=self._unit,
        )

    # JSON ----------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, Floats]:
        names = ("samples", "slopes", "slope_errors", "powers", "rates", "rate_errors")
        arrays = {name: getattr(self, name) for name in names}
        return arrays if self.worst is None else arrays | {"worst": self.worst}

    def to_dict(self) -> dict[str, object]:
        """Return the values for JSON."""
        arrays = {name: array.tolist() for name, array in self._arrays().items()}
        return {
            "kind": self.KIND,
            "unit": self._unit,
            "participants": list(self._participants),
            **arrays,
        }

    def to_json(self) -> str:
        """Return the values as JSON text; numbers read back exactly."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: object, where: str = "coalition values") -> "CurveValues":
        """Make values from the mapping that `to_dict` returns; errors start with `where`."""
        required = {"kind", "participants", "samples", "slopes", "rates"}
        known = {*required, "unit", "slope_errors", "rate_errors", "powers", "worst"}
        if not isinstance(data, Mapping) or not required <= set(data) <= known:
            listed = ", ".join(sorted(required))
            raise GraphError(
                f"{where}: expected an object with {listed} and maybe unit, slope_errors, "
                "rate_errors, powers, worst"
            )
        if data["kind"] != cls.KIND:
            raise GraphError(
                f"{where}: values of kind {shown(data['kind'])}; this software reads {cls.KIND!r}"
            )
        if not isinstance(data["participants"], list):
            raise GraphError(f"{where}: 'participants' must be a list of names")
        names = validated_names(data["participants"], where)
        parts = {key: data[key] for key in known - {"kind", "participants"} if key in data}
        for key, part in parts.items():
            if key != "unit" and not isinstance(part, list):
                raise GraphError(f"{where}: {key!r} must be a list of numbers, not {shown(part)}")
        try:
            return cls(participants=names, **parts)
        except GraphError as error:
            raise GraphError(f"{where}: {error}") from None

    @classmethod
    def from_json(cls, text: str, where: str = "coalition values") -> "CurveValues":
        """Make values from the JSON text that `to_json` returns; errors start with `where`."""
        return cls.from_dict(json_value(text, where), where)

    # CSV and data frames -------------------------------------------------------------------

    def _curve_rows(self) -> list[tuple[str | float, ...]]:
        arrays = (self.samples, self.slopes, self.slope_errors, self.powers)
        columns = [array.tolist() for array in arrays]
        return list(zip(self._participants, *columns, strict=True))

    def _rate_rows(self) -> list[tuple[str | float, ...]]:
        names = self._participants
        known = np.argwhere((self.rates != 0) | (self.rate_errors != 0)).tolist()
        return [
            (names[j], names[i], float(self.rates[j, i]), float(self.rate_errors[j, i]))
            for j, i in known
        ]

    def csv_files(self) -> tuple[bytes, bytes]:
        """Return two CSV files: a curve per participant, and an exchange rate per pair.

        The worst harm is in neither: no decision depends on it.
        """
        curves = csv_bytes(self.CURVE_COLUMNS, self._curve_rows())
        return curves, csv_bytes(self.RATE_COLUMNS, self._rate_rows())

    @classmethod
    def from_csv(
        cls, curves: str | os.PathLike[str], rates: str | os.PathLike[str], *, unit: str = ""
    ) -> "CurveValues":
        """Read the two files of `csv_files`; a pair that is not listed has the rate 0.

        The participants are those of `curves`, in its order.
        """
        listed: dict[str, list[float]] = {}
        for number, row in csv_rows(curves, cls.CURVE_COLUMNS, GraphError):
            place = f"{curves}, line {number}"
            name = validated_name(row[0].strip(), place)
            if name in listed:
                raise GraphError(f"{place}: {name!r} is listed twice; keep one")
            listed[name] = [_number(text, place) for text in row[1:]]
        names = tuple(listed)
        matrices = np.zeros((2, len(names), len(names)))
        seen = set()
        for number, row in csv_rows(rates, cls.RATE_COLUMNS, GraphError):
            place = f"{rates}, line {number}"
            j, i = (index_of(text.strip(), names, place) for text in row[:2])
            if (j, i) in seen:
                raise GraphError(
                    f"{place}: the rate of {names[j]!r} for {names[i]!r} is listed twice; keep one"
                )
            seen.add((j, i))
            matrices[:, j, i] = [_number(text, place) for text in row[2:]]
        samples, slopes, errors, powers = np.array(list(listed.values())).reshape(-1, 4).T
        return cls(
            samples,
            slopes,
            matrices[0],
            names,
            slope_errors=errors,
            rate_errors=matrices[1],
            powers=powers,
            unit=unit,
        )

    def to_frame(self) -> Any:
        """Return a pandas data frame of the learning curves, one row per participant."""
        return data_frame(self.CURVE_COLUMNS, self._curve_rows())

    def rates_to_frame(self) -> Any:
        """Return a pandas data frame of the exchange rates, one row per pair with a rate."""
        return data_frame(self.RATE_COLUMNS, self._rate_rows())

    # Identity ------------------------------------------------------------------------------

    @property
    def sha256(self) -> str:
        """The SHA-256 of kind, unit, names and the big-endian IEEE 754 doubles of all numbers."""
        numbers = {
            name: struct.pack(f">{array.size}d", *array.ravel().tolist()).hex()
            for name, array in self._arrays().items()
        }
        value = {
            "kind": self.KIND,
            "unit": self._unit,
            "participants": self._participants,
            **numbers,
        }
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CurveValues):
            return NotImplemented
        return self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        unit = f", in {self._unit}" if self._unit else ""
        return f"<CurveValues: {len(self._participants)} participants{unit}>"


def _rows(coalitions: npt.ArrayLike) -> tuple[Bools, Floats]:
    members = np.atleast_2d(np.asarray(coalitions, dtype=np.bool_))
    return members, members.astype(np.float64)


def _vector(given: npt.ArrayLike, n: int, what: str) -> Floats:
    return _numbers(given, (n,), what)


def _matrix(given: npt.ArrayLike, n: int) -> Floats:
    return _numbers(given, (n, n), "errors of exchange rates")


def _numbers(given: npt.ArrayLike, shape: tuple[int, ...], what: str) -> Floats:
    """Return an array of a given shape; one number stands for all."""
    expected = f"coalition values, {what}: expected {' × '.join(map(str, shape))} numbers"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        raise GraphError(f"{expected}, got rows of different lengths") from None
    if array.size and array.dtype.kind not in "iuf":
        raise GraphError(f"{expected}, got values of type {array.dtype}")
    if array.ndim and array.shape != shape and not (array.size == 0 and 0 in shape):
        raise GraphError(f"{expected}, got shape {array.shape}")
    value = array.astype(np.float64) if array.size else np.zeros(shape)
    return np.array(np.broadcast_to(value, shape)) + 0.0


def _number(text: str, place: str) -> float:
    if "_" not in text and text.isascii():  # Python reads 1_000 as a number; nobody else does
        try:
            return float(text)
        except ValueError:
            pass
    raise GraphError(f"{place}: {shown(text)} is not a number; write numbers like 0.25")

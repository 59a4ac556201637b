"""How raw values become a model's inputs, so that the model can be used elsewhere."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

Numbers = npt.NDArray[np.float64]

InputKind = Literal["numbers", "images", "whole"]
"""Numbers with a fraction; images, height × width × colours; whole numbers such as tokens."""
HIDDEN = 4
"""Values at each end of a column that a range leaves out."""


class TargetScale(BaseModel):
    """One silo's scale of a number to predict: it is center + spread × the model's output."""

    model_config = ConfigDict(frozen=True)

    center: float
    spread: float


class InputPreparation(BaseModel):
    """One silo's preparation of one input array, as values for JSON; None stands for NaN."""

    model_config = ConfigDict(frozen=True)

    name: str
    columns: tuple[str, ...]
    center: tuple[float | None, ...]
    factor: tuple[float | None, ...]
    missing: tuple[float | None, ...]
    clip: float | None = None
    ranges: tuple[tuple[float, float] | None, ...] = ()
    kind: InputKind = "numbers"


@dataclass(frozen=True, eq=False)
class Preparation:
    """How each silo prepares one of a model's input arrays from raw values.

    The input is (value − center) × factor in every column, where `missing` replaces a value that
    was not measured. Without a replacement it stays NaN, which the model then handles.

    Parameters
    ----------
    name : str
        The array's name, such as ``features``.
    columns : sequence of str
        The names of the columns, along its last axis.
    center, factor, missing : arrays, silos × columns
        A factor is 0 in a column that is constant in the training samples, and NaN in one that
        was never measured in them. `missing` is NaN where there is no replacement.
    clip : float, optional
        Inputs are cut to plus or minus this number.
    ranges : array, silos × columns × 2, optional
        Between which values training values lie, see `usual_range`.
    kind : {"numbers", "images", "whole"}
        Models get images with the colours in front, and whole numbers as they are.

    Examples
    --------
    >>> one = np.array([[50.0, 1.0]])
    >>> age = Preparation("features", ("age", "sex"), one, 1 / one, one)
    >>> age.of(0).center
    (50.0, 1.0)
    """

    name: str
    columns: tuple[str, ...]
    center: Numbers
    factor: Numbers
    missing: Numbers
    clip: float | None = None
    ranges: Numbers | None = None
    kind: InputKind = "numbers"

    @classmethod
    def unchanged(
        cls, name: str, columns: Sequence[str], silos: int, kind: InputKind = "numbers"
    ) -> "Preparation":
        """Return the preparation that leaves values as they are."""
        zero = np.zeros((silos, len(columns)))
        return cls(name, tuple(columns), zero, zero + 1.0, zero + np.nan, kind=kind)

    def only(self, silos: Sequence[int]) -> "Preparation":
        """Return the preparation of some silos, in this order."""
        chosen = list(silos)
        center, factor, missing = self.center[chosen], self.factor[chosen], self.missing[chosen]
        ranges = None if self.ranges is None else self.ranges[chosen]
        return replace(self, center=center, factor=factor, missing=missing, ranges=ranges)

    def of(self, silo: int) -> InputPreparation:
        """Return one silo's preparation."""
        center, factor, missing = (
            tuple(None if math.isnan(value) else float(value) for value in values[silo])
            for values in (self.center, self.factor, self.missing)
        )
        return InputPreparation(
            name=self.name,
            columns=self.columns,
            center=center,
            factor=factor,
            missing=missing,
            clip=self.clip,
            ranges=()
            if self.ranges is None
            else tuple(
                None if math.isnan(low) else (float(low), float(high))
                for low, high in self.ranges[silo]
            ),
            kind=self.kind,
        )


def usual_range(values: Numbers) -> tuple[float, float]:
    """Return the fifth smallest and the fifth largest value; NaN if there are fewer than ten.

    A model's file has them. The smallest and the largest would each be one person's.

    Examples
    --------
    >>> usual_range(np.arange(20.0))
    (4.0, 15.0)
    """
    known = values[~np.isnan(values)]
    if len(known) < 2 * HIDDEN + 2:
        return math.nan, math.nan
    ends = np.partition(known, (HIDDEN, len(known) - 1 - HIDDEN))
    return float(ends[HIDDEN]), float(ends[-1 - HIDDEN])

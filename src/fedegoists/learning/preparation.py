"""How raw values become what a model is given, for whoever uses the model elsewhere."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Preparation"]

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Preparation:
    """One of the arrays that a model is given, and how each silo makes it from raw values.

    In every column the model gets (value − center) × factor, where `missing` stands in for a value
    that was not measured; without a stand-in it stays NaN, which the model knows to handle.

    Parameters
    ----------
    name : str
        What the array is called, such as ``features``.
    columns : sequence of str
        What stands along its last axis.
    center, factor, missing : arrays, silos × columns
        A factor of 0 is that of a column which is constant where the model was trained; NaN
        in `factor` that of one which was never measured there, and in `missing` no stand-in.
    clip : float, optional
        What the model gets is cut to plus or minus this number.

    Examples
    --------
    >>> one = np.array([[50.0, 1.0]])
    >>> age = Preparation("features", ("age", "sex"), one, 1 / one, one)
    >>> age.of(0)["center"]
    [50.0, 1.0]
    """

    name: str
    columns: tuple[str, ...]
    center: Numbers
    factor: Numbers
    missing: Numbers
    clip: float | None = None

    @classmethod
    def unchanged(cls, name: str, columns: Sequence[str], silos: int) -> "Preparation":
        """Return that a model gets values as they are."""
        zero = np.zeros((silos, len(columns)))
        return cls(name, tuple(columns), zero, zero + 1.0, zero + np.nan)

    def only(self, silos: Sequence[int]) -> "Preparation":
        """Return the preparation of some silos, in this order."""
        chosen = list(silos)
        return replace(
            self,
            center=self.center[chosen],
            factor=self.factor[chosen],
            missing=self.missing[chosen],
        )

    def of(self, silo: int) -> dict[str, Any]:
        """Return one silo's preparation as plain values for JSON, in which None stands for NaN."""
        return {
            "name": self.name,
            "columns": list(self.columns),
            "center": _plain(self.center[silo]),
            "factor": _plain(self.factor[silo]),
            "missing": _plain(self.missing[silo]),
            "clip": self.clip,
        }


def _plain(values: Numbers) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]

"""Types of the arrays and partitions that the searches work on."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
"""Bitsets of 64-bit words."""

Partition = Sequence[Sequence[int]]
"""Coalitions by the positions of their members."""

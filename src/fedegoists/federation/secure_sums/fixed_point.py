"""Fixed-point numbers as elements of the ring of integers modulo 2³².

Sums in the ring are exact, so that masks cancel to the last bit. A float32 and an element of the
ring have as many bytes.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedegoists.errors import FedEgoistsError

Ring = NDArray[np.uint32]
"""Integers modulo 2³²: addition and subtraction of unsigned integers wrap around as they should."""

FRACTION_BITS = 24
"""Bits after the binary point, by default: a step of 6e-8, and numbers between -128 and 128."""


class OutOfRangeError(FedEgoistsError):
    """Numbers that have no place in the ring, and would come back as others."""


def largest(bits: int) -> float:
    """Return the largest absolute value that a weighted mean may have.

    Examples
    --------
    >>> largest(24)
    127.0
    """
    # One below the end of the ring, which is far more than all roundings together.
    return float(2 ** (31 - bits) - 1)


def encode(values: Tensor, weight: Tensor | float, bits: int = FRACTION_BITS) -> Ring:
    """Return weight · values as elements of the ring.

    Weights of all members sum to at most one, so no sum is out of range where no value is.

    Raises
    ------
    OutOfRangeError
        If a value is not finite or out of range.

    Examples
    --------
    >>> encode(torch.tensor([0.5, -0.5]), 1.0, bits=1).tolist()
    [1, 4294967295]
    """
    plain = values.detach().cpu()
    bound = largest(bits)
    low, high = plain.aminmax()
    if not (low >= -bound and high <= bound):  # as for NaN
        raise OutOfRangeError(
            f"numbers above {bound:g}, or not finite, cannot be added up under masks; clip "
            "updates, lower the learning rate, or use fewer fraction bits"
        )
    scaled = (plain.double() * (weight * 2.0**bits)).round_()
    return scaled.numpy().astype(np.int32).view(np.uint32)


def decode(total: Ring, bits: int = FRACTION_BITS) -> Tensor:
    """Return the numbers, with 64 bits, that elements of the ring represent.

    Examples
    --------
    >>> decode(encode(torch.tensor([0.5, -2.0]), 0.5)).tolist()
    [0.25, -1.0]
    """
    return torch.from_numpy(total.view(np.int32).astype(np.float64) / 2.0**bits)


def as_tensor(ring: Ring) -> Tensor:
    """Return elements of the ring as a tensor that travels: the same bits as signed integers."""
    return torch.from_numpy(ring.view(np.int32))


def as_ring(tensor: Tensor) -> Ring:
    """Return the elements of the ring in a tensor that travelled; see `as_tensor`."""
    array: NDArray[np.int32] = tensor.detach().cpu().contiguous().numpy()
    return array.view(np.uint32)

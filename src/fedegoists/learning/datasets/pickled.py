"""Safe reading of the official CIFAR batches, which are Python pickles.

A pickle may name any function of any module to be called while it is read. Here only the names that
numpy arrays need are known, and they lead to substitutes that take bytes and a shape, not to numpy.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.learning.data import DataError


def read_batch(content: bytes, where: str) -> dict[bytes, Any]:
    """Return the dictionary in a pickle of plain values and arrays of ``uint8``.

    Texts written by Python 2 become bytes. Any other content is refused with a `DataError`.
    """
    try:
        found = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged or hostile pickle can raise anything
        raise DataError(
            f"{where}: not a CIFAR batch ({error}); it was not read any further; "
            "download the file again"
        ) from None
    if not isinstance(found, dict):
        raise DataError(f"{where}: not a CIFAR batch: it holds {type(found).__name__}, not a dict")
    return {
        key: value.array if isinstance(value, _PickledArray) else value
        for key, value in found.items()
    }


class _PickledDtype:
    """Substitute for numpy.dtype; its state is the byte order, which single bytes do not have."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _PickledArray:
    """Substitute for numpy.ndarray, filled from its state."""

    array: npt.NDArray[np.uint8]

    def __setstate__(self, state: tuple[object, Any, object, object, object]) -> None:
        _, shape, dtype, by_columns, content = state
        if not isinstance(dtype, _PickledDtype) or dtype.code not in (b"u1", "u1"):
            raise pickle.UnpicklingError("it holds an array of other numbers than uint8")
        if not isinstance(content, bytes):
            raise pickle.UnpicklingError("it holds an array without its bytes")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.array = flat.reshape(shape, order="F" if by_columns else "C")


def _new_array(*_: object) -> _PickledArray:
    return _PickledArray()


# numpy 2 moved the module; official files have the old name.
_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): _new_array,
    ("numpy", "dtype"): _PickledDtype,
}


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., object]:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks to run {module}.{name}") from None

"""Machine code for the inner loops of method ``best``, made by Numba the first time it is needed.

What is compiled is kept on disk, beside the source or in the user's cache; where neither can be
written, it is compiled again in every process.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

__all__ = ["compiled", "must_compile"]

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function over numbers and arrays; floating point follows IEEE 754 strictly."""
    try:
        dispatcher = numba.njit(cache=True)(function)
    except RuntimeError:  # no place for the cache
        dispatcher = numba.njit()(function)
    return cast("F", dispatcher)


def must_compile() -> bool:
    """Whether there is nothing on disk yet, found out with the smallest of the functions."""
    from fedegoists.coalitions.exact import moves

    moves.uniform(np.ones(1, dtype=np.uint64))
    return bool(cast("Any", moves.uniform).stats.cache_misses)

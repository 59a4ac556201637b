"""Machine code for the inner loops of method ``best``, made by Numba when first needed.

Without Numba the same functions run as they are written, some hundred times slower: searches then
look at the clock more often, and get less far in the same time.

Compiled code is kept on disk, beside the source or in the user's cache; where neither can be
written, it is compiled again in every process. Floating point follows IEEE 754 strictly, so that
the same seed gives the same partition on every machine.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import ParamSpec, TypeVar, cast

import numpy as np

try:
    import numba
except ImportError:
    numba = None  # type: ignore[assignment, unused-ignore]

COMPILED = numba is not None
"""Whether functions are compiled."""

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function over numbers and arrays."""
    return _compiled(function, inline=False)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into its callers, as passing a state of many arrays takes time."""
    return _compiled(function, inline=True)


def between_looks(steps: int) -> int:
    """Return how many steps to make between two looks at the clock, of those for machine code."""
    return steps if COMPILED else max(1, steps // 200)


def _compiled(function: Callable[P, R], *, inline: bool) -> Callable[P, R]:
    if numba is None:
        return function
    try:
        dispatcher = numba.njit(cache=True, forceinline=inline)(function)
    except RuntimeError:  # no place for the cache
        dispatcher = numba.njit(forceinline=inline)(function)
    return cast("Callable[P, R]", dispatcher)


def must_compile() -> bool:
    """Whether nothing is compiled on disk yet, judged by the smallest of the functions."""
    from fedegoists.coalitions.exact import moves

    if not COMPILED:
        return False
    moves.uniform(np.ones(1, dtype=np.uint64))
    return bool(attrgetter("stats.cache_misses")(moves.uniform))

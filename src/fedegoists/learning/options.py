"""Checking the values that a user gave to options."""

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedegoists.errors import SettingsError
from fedegoists.graphs.participants import shown

__all__ = ["generator", "one_of", "positive_number", "whole_number"]


def one_of(option: str, value: Any, allowed: Iterable[str]) -> Any:
    """Return a value that must be one of a few words.

    Examples
    --------
    >>> one_of("partition", "dirichlet", ("pathological", "dirichlet"))
    'dirichlet'
    """
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        raise SettingsError(f"{option} is {shown(value)}; choose one of {', '.join(words)}")
    return value


def whole_number(option: str, value: object, smallest: int = 0, largest: int | None = None) -> int:
    """Return a whole number that must lie between two others, both included."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = smallest - 1
    if isinstance(value, bool) or number < smallest or (largest is not None and number > largest):
        limits = f"of at least {smallest}" if largest is None else f"from {smallest} to {largest}"
        raise SettingsError(f"{option} is {shown(value)}; give a whole number {limits}")
    return number


def positive_number(option: str, value: object) -> float:
    """Return a finite number above zero."""
    if (
        isinstance(value, bool | np.bool_)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise SettingsError(f"{option} is {shown(value)}; give a number above 0")
    return float(value)


def generator(seed: object) -> np.random.Generator:
    """Return the random numbers that belong to a seed."""
    return np.random.default_rng(whole_number("seed", seed))

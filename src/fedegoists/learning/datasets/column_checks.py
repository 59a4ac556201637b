"""Signs that a column is not what it seems: codes for missing values, identifiers."""

import re

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

CODES = tuple(sign * (10.0**digits - 1) for digits in range(1, 7) for sign in (-1, 1))
"""9, 99, 999 and so on, and their negatives."""
FEWEST_OTHERS = 3
"""Different values that a column must have besides a code."""
FEWEST_ROWS = 20
"""Rows from which on different values in all of them are remarkable."""
IDENTIFIER = re.compile(
    r"(?:.*[_\s.-])?(?:id|ids|uid|uuid|guid|mrn|ssn|nr|number|key|index|pid|patient|case|fall)",
    re.IGNORECASE,
)


def missing_code(values: Numbers) -> float | None:
    """Return a number that looks like a code for a missing value.

    It is one of 9, 99, 999 … or their negatives, and farther from all other values than these are
    from one another.

    Examples
    --------
    >>> missing_code(np.array([61.0, 47.0, -999.0, 52.0, -999.0]))
    -999.0
    >>> missing_code(np.array([61.0, 47.0, 99.0, 85.0]))  # is None
    """
    known = values[~np.isnan(values)]
    present = [code for code in CODES if (known == code).any()]
    others = known[~np.isin(known, present)]
    if not present or not len(others):
        return None
    low, high = others.min(), others.max()
    away = {code: max(low - code, code - high) for code in present}
    code = max(away, key=lambda one: away[one])
    if away[code] <= high - low or len(np.unique(others)) < FEWEST_OTHERS:
        return None
    return code


def looks_like_identifier(name: str, values: npt.NDArray[np.generic]) -> bool:
    """Return whether a column seems to number its rows or to name patients.

    It is called like one, and at least half of its values are different; or they are consecutive
    whole numbers, each of them once.

    Examples
    --------
    >>> looks_like_identifier("patient_id", np.arange(100, 400, 7))
    True
    >>> looks_like_identifier("crp", np.linspace(0, 1, 50))
    False
    """
    if len(values) < FEWEST_ROWS:
        return False
    if IDENTIFIER.fullmatch(name):
        return 2 * len(np.unique(values)) >= len(values)
    numbered = values.dtype.kind in "iuf" and _is_numbering(values.astype(np.float64))
    return numbered and len(np.unique(values)) == len(values)


def _is_numbering(values: Numbers) -> bool:
    """Return whether values could be consecutive whole numbers."""
    low, high = values.min(), values.max()  # NaN if one is missing
    return bool(high - low + 1 == len(values) and (values == np.round(values)).all())

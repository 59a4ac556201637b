"""Numbers and lists as text."""

import math
from collections.abc import Iterable, Sequence

UNKNOWN = "–"


def listed(items: Sequence[str]) -> str:
    """Return a list as one phrase.

    Examples
    --------
    >>> listed(["North", "South", "East"])
    'North, South and East'
    """
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def counted(number: int, what: str, many: str | None = None) -> str:
    """Return a number with a noun.

    Examples
    --------
    >>> counted(1, "coalition"), counted(2, "coalition")
    ('1 coalition', '2 coalitions')
    """
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def decimals_for(values: Iterable[float]) -> int:
    """Return the number of decimals that shows three digits of the largest value.

    Examples
    --------
    >>> decimals_for([0.83, 0.7]), decimals_for([1234.5])
    (3, 0)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 3 if largest == 0 else max(0, 3 - math.ceil(math.log10(largest)))


def fixed(value: float, decimals: int) -> str:
    """Return a number with some decimals, or a dash for NaN."""
    return f"{value:,.{decimals}f}" if math.isfinite(value) else UNKNOWN


def signed(value: float, decimals: int) -> str:
    """Return a number with its sign, with a real minus.

    Examples
    --------
    >>> signed(-0.5, 2), signed(0.25, 2), signed(-0.001, 2)
    ('−0.50', '+0.25', '0.00')
    """
    if not math.isfinite(value):
        return UNKNOWN
    text = f"{abs(value):,.{decimals}f}"
    if not text.strip("0.,"):
        return text
    return ("−" if value < 0 else "+") + text


def weight(value: float) -> str:
    """Return a benefit's weight with three digits."""
    return f"{value:.3g}" if math.isfinite(value) else UNKNOWN


def spoken_time(seconds: float) -> str:
    """Return a duration with a unit that fits.

    Examples
    --------
    >>> spoken_time(42.3), spoken_time(200), spoken_time(9000)
    ('42 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 90:
        return counted(round(seconds), "second")
    if seconds < 90 * 60:
        return counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:.1f} hours"

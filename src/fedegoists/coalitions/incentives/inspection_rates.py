"""How often reports must be inspected so that lying does not pay."""

from fedegoists.errors import SettingsError


def inspection_probability(utility: float, gain: float, deposit: float = 0.0) -> float:
    """Return the lowest probability of an inspection at which a lie does not pay.

    A lie that is found costs the liar its place, so its utility, and its deposit. An undetected one
    raises the utility u by the gain g. Lying does not pay if and only if (1 − p)(u + g) − p d ≤ u,
    that is p ≥ g / (u + g + d). Without a deposit this is 1 for a participant that receives nothing
    when it tells the truth: exclusion takes nothing from it.

    Parameters
    ----------
    utility : float
        What the participant receives with a true report.
    gain : float
        The most that a lie adds.
    deposit : float
        What it loses besides if a lie is found, in the unit of the benefits.

    Examples
    --------
    >>> inspection_probability(3.0, 1.0)
    0.25
    >>> inspection_probability(0.0, 1.0), inspection_probability(0.0, 1.0, deposit=9.0)
    (1.0, 0.1)
    >>> inspection_probability(2.0, 0.0)
    0.0
    """
    for name, value in (("utility", utility), ("gain", gain), ("deposit", deposit)):
        if not 0 <= value < float("inf"):
            raise SettingsError(f"the {name} must be a number that is not negative, not {value!r}")
    return gain / (utility + gain + deposit) if gain > 0 else 0.0

"""Moments as text: UTC, ISO 8601, always of one length, so that they sort as they passed."""

import datetime

__all__ = [
    "BACK_SECONDS",
    "CLOCK_WENT_BACK",
    "LATEST",
    "as_moment",
    "from_moment",
    "seconds_between",
    "shifted",
    "system_clock",
]

LATEST = "9999-12-31T23:59:59.999999Z"

BACK_SECONDS = 60
"""A clock may be so much behind the audit log, as when it is set by a server; then time waits."""

CLOCK_WENT_BACK = "clock went back"
"""The action of an entry that tells what the clock says, where that is further behind."""


def system_clock() -> datetime.datetime:
    """Return what the clock says now."""
    return datetime.datetime.now(datetime.UTC)


def as_moment(time: datetime.datetime) -> str:
    """Return a point in time as it is stored; without a time zone it is UTC.

    Raises
    ------
    ValueError
        If in UTC it is before the year 1 or after the year 9999.

    Examples
    --------
    >>> as_moment(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))
    '2026-01-02T03:04:05.000000Z'
    """
    aware = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    try:
        utc = aware.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError("too close to an end of the calendar for its time zone") from None
    return utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)


def from_moment(moment: str) -> datetime.datetime:
    """Return what `as_moment` was given."""
    return datetime.datetime.fromisoformat(moment)


def seconds_between(one: str, other: str) -> float:
    """Return by how many seconds the second moment is later than the first.

    Examples
    --------
    >>> seconds_between('2026-01-02T03:04:05.000000Z', '2026-01-02T03:05:05.500000Z')
    60.5
    """
    return (from_moment(other) - from_moment(one)).total_seconds()


def shifted(moment: str, seconds: float) -> str:
    """Return a moment some seconds later.

    Examples
    --------
    >>> shifted('2026-01-02T03:04:05.000000Z', 60)
    '2026-01-02T03:05:05.000000Z'
    """
    return as_moment(from_moment(moment) + datetime.timedelta(seconds=seconds))

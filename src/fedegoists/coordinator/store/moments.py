"""Times as text: UTC, ISO 8601, of fixed length, so that they sort as text."""

import datetime

BACK_SECONDS = 60
"""Largest step back of the clock, as by a time server, that is not recorded."""

CLOCK_WENT_BACK = "clock went back"
"""Action of the entry that records a larger step back of the clock."""


def system_clock() -> datetime.datetime:
    """Return the time of the system clock."""
    return datetime.datetime.now(datetime.UTC)


def as_moment(time: datetime.datetime) -> str:
    """Return a time as it is stored; without a time zone it is UTC.

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
    """Return the time of a text; the inverse of `as_moment`."""
    return datetime.datetime.fromisoformat(moment)


def seconds_between(one: str, other: str) -> float:
    """Return by how many seconds the second time is later than the first.

    Examples
    --------
    >>> seconds_between('2026-01-02T03:04:05.000000Z', '2026-01-02T03:05:05.500000Z')
    60.5
    """
    return (from_moment(other) - from_moment(one)).total_seconds()


def shifted(moment: str, seconds: float) -> str:
    """Return the time some seconds later.

    Examples
    --------
    >>> shifted('2026-01-02T03:04:05.000000Z', 60)
    '2026-01-02T03:05:05.000000Z'
    """
    return as_moment(from_moment(moment) + datetime.timedelta(seconds=seconds))

"""Moments as text: UTC, ISO 8601, always of one length, so that they sort as they passed."""

import datetime

__all__ = ["LATEST", "as_moment", "from_moment", "shifted", "system_clock"]

LATEST = "9999-12-31T23:59:59.999999Z"


def system_clock() -> datetime.datetime:
    """Return what the clock says now."""
    return datetime.datetime.now(datetime.UTC)


def as_moment(time: datetime.datetime) -> str:
    """Return a point in time as it is stored.

    Examples
    --------
    >>> as_moment(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))
    '2026-01-02T03:04:05.000000Z'
    """
    return time.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)


def from_moment(moment: str) -> datetime.datetime:
    """Return what `as_moment` was given."""
    return datetime.datetime.fromisoformat(moment)


def shifted(moment: str, seconds: float) -> str:
    """Return a moment some seconds later.

    Examples
    --------
    >>> shifted('2026-01-02T03:04:05.000000Z', 60)
    '2026-01-02T03:05:05.000000Z'
    """
    return as_moment(from_moment(moment) + datetime.timedelta(seconds=seconds))

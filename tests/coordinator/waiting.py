"""Waiting for a condition; no result depends on how long it takes."""

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

Found = TypeVar("Found")

PAUSE = 0.02
LOOKS = 6000
"""Two minutes at least: only a condition that never holds takes so long."""


def until(condition: Callable[[], Found]) -> Found:
    """Return the first value of a condition that is true."""
    pause = threading.Event()
    for _ in range(LOOKS):
        found = condition()
        if found:
            return found
        pause.wait(PAUSE)
    raise AssertionError("waited in vain")

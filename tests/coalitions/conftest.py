"""Both ways to solve small components, and a clock that tests move."""

import time

import pytest

from fedegoists.coalitions.exact import enumeration


@pytest.fixture(params=["listed", "compiled"])
def way(request, monkeypatch):
    """Small components by listing all coalitions, or like large ones by the compiled search."""
    if request.param == "compiled":
        monkeypatch.setattr(enumeration, "SMALL", 0)


class Clock:
    """A clock that moves by `tick` seconds each time it is read, and otherwise when told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tick = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The clock that the searches read."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock

"""The chart of gains: dots with confidence intervals, in per cent of the width."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedegoists.consortium.report.results_section import GainRow
from fedegoists.consortium.report.wording import signed

MARGIN = 4.0
"""Free space on both sides, in per cent of the width."""

REACH = 3.0
"""Intervals are cut at this multiple of the largest gain: over two repetitions they are huge."""

MOST_TICKS = 4


@dataclass(frozen=True)
class GainMark:
    """One dot and its interval; all positions are per cent of the width.

    Attributes
    ----------
    cut_left, cut_right : bool
        Whether the interval is longer than shown.
    """

    row: GainRow
    dot: str
    low: str | None
    high: str | None
    cut_left: bool = False
    cut_right: bool = False


@dataclass(frozen=True)
class GainChart:
    """Marks by method, the position of zero, and positions and numbers of the ticks."""

    methods: tuple[tuple[str, tuple[GainMark, ...]], ...]
    zero: str
    ticks: tuple[tuple[str, str], ...]

    @property
    def cut(self) -> bool:
        """Whether any interval is longer than shown."""
        return any(m.cut_left or m.cut_right for _, marks in self.methods for m in marks)


def gains_chart(rows: Sequence[GainRow]) -> GainChart | None:
    """Return the chart of some gains, all on one scale; None without gains."""
    if not rows:
        return None
    largest = max(abs(row.gain.gain) for row in rows) or 1e-3
    ends = [0.0, *(row.gain.gain for row in rows)]
    ends += [
        min(max(end, -REACH * largest), REACH * largest)
        for row in rows
        for end in (row.gain.low, row.gain.high)
        if math.isfinite(end)
    ]
    left, right = min(ends), max(ends)
    if right - left == 0:
        left, right = -largest, largest

    def at(value: float) -> str:
        share = (min(max(value, left), right) - left) / (right - left)
        return f"{MARGIN + (100 - 2 * MARGIN) * share:.2f}%"

    def mark(row: GainRow) -> GainMark:
        gain = row.gain
        if not math.isfinite(gain.low):
            return GainMark(row, at(gain.gain), None, None)
        cut_left, cut_right = gain.low < left, gain.high > right
        return GainMark(row, at(gain.gain), at(gain.low), at(gain.high), cut_left, cut_right)

    methods = dict.fromkeys(row.gain.method for row in rows)
    return GainChart(
        tuple(
            (method, tuple(mark(row) for row in rows if row.gain.method == method))
            for method in methods
        ),
        at(0.0),
        tuple((at(value), text) for value, text in _ticks(left, right)),
    )


def _ticks(left: float, right: float) -> list[tuple[float, str]]:
    """Return a few round numbers between two ends, zero among them."""
    power = math.floor(math.log10((right - left) / MOST_TICKS))
    for factor in (1, 2, 5, 10):
        step = factor * 10.0**power
        first, last = math.ceil(left / step), math.floor(right / step)
        if last - first < MOST_TICKS:
            break
    decimals = max(0, -power)
    return [(k * step, signed(k * step, decimals)) for k in range(first, last + 1)]

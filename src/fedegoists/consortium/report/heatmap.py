"""The benefit weights as a picture and as a list."""

import math
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.benefit.curve_fit import pair_gains
from fedegoists.consortium.report.wording import decimals_for, fixed, weight
from fedegoists.graphs import CurveValues
from fedegoists.plotting import short_labels

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun

MOST_DRAWN = 60
"""With more participants, a picture of all pairs says nothing."""

MOST_NUMBERED = 12
LARGE_CELL, SMALL_CELL, GAP = 46, 20, 6
LETTER = 8.2
"""The width of a letter of a label, rather too large than too small."""


@dataclass(frozen=True)
class BenefitCell:
    """The benefit of one participant's data for another.

    Attributes
    ----------
    source, target : int
        Positions of the two participants.
    text, number : str
        The weight with three digits, and with fewer for a small cell.
    error : str
        The standard error of the weight, if it is known.
    share : str
        The weight as a share of the largest, from 0 to 1.
    counts, used : bool
        Whether it is an edge of the benefit graph, and one inside a coalition.
    sentence : str
        The cell in words.
    """

    source: int
    target: int
    text: str
    number: str
    error: str
    share: str
    counts: bool
    used: bool
    sentence: str


@dataclass(frozen=True)
class AxisLabel:
    """A name along the picture, and where it ends or begins."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class HeatMap:
    """The places of all elements of the picture, in pixels."""

    width: int
    height: int
    cell: int
    left: int
    top: int
    rows: tuple[AxisLabel, ...]
    columns: tuple[AxisLabel, ...]
    numbered: bool


def benefit_cells(run: "ConsortiumRun") -> list[BenefitCell]:
    """Return all pairs, source by source, with learned weights if there are any."""
    formation, graph, estimate = run.formation, run.formation.benefit, run.benefit.estimate
    names = formation.participants
    weights = graph.weights if estimate is None else estimate.weights
    largest = float(weights.max(initial=0.0)) or 1.0
    decimals = max(0, decimals_for([largest]) - 1)
    home = {name: k for k, group in enumerate(formation.coalitions) for name in group}
    spreads = None if estimate is None else estimate.spread
    if isinstance(formation.values, CurveValues):
        spreads = pair_gains(formation.values)[1]  # what the curves tell, not repeats of them
    found = []
    for j, source in enumerate(names):
        for i, target in enumerate(names):
            if i == j:
                continue
            value = float(weights[j, i])
            spread = math.nan if spreads is None else float(spreads[j, i])
            error = weight(spread) if math.isfinite(spread) else ""
            counts = bool(graph.weights[j, i] > 0)
            used = counts and home[source] == home[target]
            status = "used in a coalition" if used else "counts" if counts else "does not count"
            between = f" ± {error}" if error else ""
            found.append(
                BenefitCell(
                    j,
                    i,
                    weight(value),
                    fixed(value, decimals),
                    error,
                    f"{max(value, 0.0) / largest:.3f}",
                    counts,
                    used,
                    f"{source} → {target}: {weight(value)}{between}, {status}",
                )
            )
    return found


def heat_map(names: tuple[str, ...]) -> HeatMap | None:
    """Return the places of rows, columns and cells; None for very many participants."""
    n = len(names)
    if n > MOST_DRAWN or n < 2:
        return None
    numbered = n <= MOST_NUMBERED
    cell = LARGE_CELL if numbered else SMALL_CELL
    labels = short_labels(names)
    longest = max(map(_length, labels))
    left = math.ceil(longest) + GAP
    slope = math.sin(math.radians(45))
    top = math.ceil(longest * slope) + 2 * GAP + 6
    centers = [(k + 0.5) * cell for k in range(n)]
    over = max(x + _length(label) * slope + GAP for x, label in zip(centers, labels, strict=True))
    return HeatMap(
        width=left + math.ceil(max(n * cell + GAP, over)),
        height=top + n * cell + GAP,
        cell=cell,
        left=left,
        top=top,
        rows=tuple(
            AxisLabel(left - GAP, top + y + 4, label)
            for y, label in zip(centers, labels, strict=True)
        ),
        columns=tuple(
            AxisLabel(left + x + 4, top - GAP, label)
            for x, label in zip(centers, labels, strict=True)
        ),
        numbered=numbered,
    )


def _length(label: str) -> float:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in label)
    return LETTER * (len(label) + wide)

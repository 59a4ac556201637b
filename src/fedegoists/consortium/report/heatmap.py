"""The benefit matrix as a picture and as a list."""

import math
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.consortium.report.wording import decimals_for, fixed, weight
from fedegoists.plotting import short_labels

if TYPE_CHECKING:
    from fedegoists.consortium.pipeline import ConsortiumRun

__all__ = ["MOST_DRAWN", "Benefit", "HeatMap", "benefits", "heat_map"]

MOST_DRAWN = 60
"""With more participants than this, a picture of all pairs says nothing."""

MOST_NUMBERED = 12
LARGE_CELL, SMALL_CELL, GAP = 46, 20, 6
LETTER = 8.2
"""How wide a letter of a label is, rather too much than too little."""


@dataclass(frozen=True)
class Benefit:
    """What one participant is worth to another.

    Attributes
    ----------
    number : str
        The weight with few digits, for a small cell.
    share : str
        Of the largest weight, from 0 to 1.
    counts, used : bool
        Whether it is an edge of the benefit graph, and one inside a coalition.
    """

    source: int
    target: int
    text: str
    number: str
    spread: str
    share: str
    counts: bool
    used: bool
    sentence: str


@dataclass(frozen=True)
class Label:
    """A name along the picture, and where it ends or begins."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class HeatMap:
    """Everything's place in the picture, in pixels."""

    width: int
    height: int
    cell: int
    left: int
    top: int
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    numbered: bool


def benefits(run: "ConsortiumRun") -> list[Benefit]:
    """Return all pairs, source by source; without learned weights, those of the graph."""
    formation, graph = run.formation, run.formation.benefit
    names = formation.participants
    weights = graph.weights if run.benefit.weights is None else run.benefit.weights
    spread = run.benefit.spread
    largest = float(weights.max(initial=0.0)) or 1.0
    decimals = max(0, decimals_for([largest]) - 1)
    home = {name: k for k, group in enumerate(formation.coalitions) for name in group}
    found = []
    for j, source in enumerate(names):
        for i, target in enumerate(names):
            if i == j:
                continue
            value = float(weights[j, i])
            error = math.nan if spread is None else float(spread[j, i])
            deviation = weight(error) if math.isfinite(error) else ""
            counts = bool(graph.weights[j, i] > 0)
            used = counts and home[source] == home[target]
            status = "used in a coalition" if used else "counts" if counts else "does not count"
            between = f" ± {deviation}" if deviation else ""
            found.append(
                Benefit(
                    j,
                    i,
                    weight(value),
                    fixed(value, decimals),
                    deviation,
                    f"{max(value, 0.0) / largest:.3f}",
                    counts,
                    used,
                    f"{source} → {target}: {weight(value)}{between}, {status}",
                )
            )
    return found


def heat_map(names: tuple[str, ...]) -> HeatMap | None:
    """Return the places of rows, columns and cells; nothing for very many participants."""
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
    over = max((k + 0.5) * cell + _length(label) * slope + GAP for k, label in enumerate(labels))
    return HeatMap(
        width=left + math.ceil(max(n * cell + GAP, over)),
        height=top + n * cell + GAP,
        cell=cell,
        left=left,
        top=top,
        rows=tuple(
            Label(left - GAP, top + (k + 0.5) * cell + 4, label) for k, label in enumerate(labels)
        ),
        columns=tuple(
            Label(left + (k + 0.5) * cell + 4, top - GAP, label) for k, label in enumerate(labels)
        ),
        numbered=numbered,
    )


def _length(label: str) -> float:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in label)
    return LETTER * (len(label) + wide)

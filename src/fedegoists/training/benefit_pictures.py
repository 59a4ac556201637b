"""Pictures of a benefit estimate: a heat map of the weights, and a sweep over thresholds."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedegoists.plotting import TEXT_COLOR, plotting, saved, short_labels
from fedegoists.training.threshold_sweep import SweepPoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
BLUE, ORANGE = "#2B5C8A", "#B45309"
MOST_NUMBERED = 12
"""With more participants than this, cells are too small for numbers."""


def heat_map_png(
    weights: npt.NDArray[np.float64],
    participants: Sequence[str],
    edges: npt.NDArray[np.bool_],
    title: str,
) -> bytes:
    """Return a PNG heat map with a row for each source and a column for each target.

    Larger weights are darker; cells with an edge are framed.
    """

    def fill(figure: "Figure") -> None:
        from matplotlib.patches import Rectangle

        n = len(participants)
        size = min(14.0, 2.6 + 0.55 * n)
        figure.set_size_inches(size + 0.8, size)
        axes = figure.subplots()
        image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=max(float(weights.max()), 1e-9))
        figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02).set_label("weight")
        names = [label.replace("$", r"\$") for label in short_labels(tuple(participants))]
        axes.set_xticks(range(n), names, rotation=45, ha="right")
        axes.set_yticks(range(n), names)
        axes.tick_params(labelsize=8, length=0)
        axes.set_xlabel("target: who benefits")
        axes.set_ylabel("source: whose data")
        for j, i in np.argwhere(edges).tolist():
            axes.add_patch(
                Rectangle((i - 0.46, j - 0.46), 0.92, 0.92, fill=False, ec=ORANGE, lw=1.6)
            )
        if n <= MOST_NUMBERED:
            dark = 0.6 * weights.max()
            for (j, i), weight in np.ndenumerate(weights):
                if i != j:
                    color = "white" if weight > dark else TEXT_COLOR
                    axes.text(i, j, f"{weight:.2f}", ha="center", va="center", size=7, color=color)
        axes.set_title(f"{title}\nframed: an edge of the benefit graph", loc="left", size=10)

    return _drawn(fill)


def sweep_png(points: Sequence[SweepPoint], title: str) -> bytes:
    """Return a PNG with the numbers of edges and of participants in coalitions over thresholds."""

    def fill(figure: "Figure") -> None:
        figure.set_size_inches(6.5, 3.6)
        axes = figure.subplots()
        at = [point.threshold for point in points]
        axes.step(at, [p.edges for p in points], where="post", color=BLUE, label="edges")
        axes.set_xlabel("threshold ε")
        axes.set_ylabel("edges", color=BLUE)
        other = axes.twinx()
        other.step(at, [p.together for p in points], where="post", color=ORANGE)
        other.set_ylabel("participants in a coalition", color=ORANGE)
        axes.set_ylim(bottom=0)
        other.set_ylim(bottom=0)
        axes.set_title(title, loc="left", size=10)

    return _drawn(fill)


def _drawn(fill: "Callable[[Figure], None]") -> bytes:
    with plotting():
        from matplotlib.figure import Figure

        figure = Figure(dpi=DPI, layout="constrained")
        fill(figure)
        return saved(figure, "png")

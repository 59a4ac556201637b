"""Pictures of the silos' data."""

import os
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.files import write_bytes
from fedegoists.learning.data import Indices, SiloedData, Split
from fedegoists.plotting import QUIET_COLOR, TEXT_COLOR, format_of, plotting, saved, short_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NUMBERED = 20
"""With more classes, cells are too narrow for their counts."""
MOST_NAMED = 60
"""With more silos, only some are named."""
DPI = 150
BLUE = "#2B5C8A"


def draw_label_distribution(
    data: SiloedData,
    path: str | os.PathLike[str] | None = None,
    *,
    split: Split = "train",
    title: str | None = None,
) -> "Figure":
    """Draw the number of samples of each class in each silo of a classification.

    A row is a silo and a column a class; the darker a cell, the more samples, and white for none.
    Up to 20 classes, the cells show the counts. The bars at the right are the sizes of the silos.

    Parameters
    ----------
    path : path, optional
        Where to write the picture: ends in ``.png``, ``.svg`` or ``.pdf``.
    split : {"train", "validation", "test"}
        The samples to count.
    title : str, optional
        The heading; by default the data set's name and its number of silos.

    Returns
    -------
    matplotlib.figure.Figure
        A figure outside pyplot; it needs no display.

    Raises
    ------
    DataError
        For a regression, which has no classes.
    SettingsError
        If `path` has another suffix.
    MissingDependencyError
        If matplotlib is not installed.

    Examples
    --------
    >>> from fedegoists.learning.data import Samples, SiloIndices
    >>> samples = Samples((np.zeros((4, 1)),), np.array([0, 1, 1, 0]))
    >>> silo = SiloIndices("North", np.array([0, 1, 2]), np.array([3]), np.array([], dtype=int))
    >>> data = SiloedData("tiny", "classification", samples, (silo,), 2, "", ())
    >>> figure = draw_label_distribution(data)
    """
    picture_format = None if path is None else format_of(path)
    counts = data.label_counts(split)
    with plotting():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        _fill(figure, counts, data, split, title)
        content = None if picture_format is None else saved(figure, picture_format)
    if path is not None and content is not None:
        write_bytes(path, content)
    return figure


def _fill(
    figure: "Figure", counts: Indices, data: SiloedData, split: Split, title: str | None
) -> None:
    silos, classes = counts.shape
    width = min(15.0, 3.4 + (0.55 if classes <= MOST_NUMBERED else 0.11) * classes)
    height = min(16.0, 1.5 + 0.32 * max(silos, 3))
    figure.set_size_inches(max(width, 5.0), height)
    cells, bars = figure.subplots(
        1, 2, sharey=True, gridspec_kw={"width_ratios": [max(width - 2.6, 2.0), 1.3]}
    )
    _draw_cells(figure, cells, counts)
    _draw_bars(bars, counts.sum(axis=1), split)
    cells.set_xlabel("class", color=QUIET_COLOR)
    step = -(-silos // MOST_NAMED)
    # A dollar sign would begin mathematics.
    names = [label.replace("$", r"\$") for label in short_labels(data.participants)]
    cells.set_yticks(range(0, silos, step), names[::step])
    number = f"{silos} silo{'s' if silos > 1 else ''}"
    heading = title or f"{data.name}: labels of {number}"
    figure.suptitle(heading, x=0.01, ha="left", size=11, weight="bold", color=TEXT_COLOR)


def _draw_cells(figure: "Figure", axes: "Axes", counts: Indices) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    silos, classes = counts.shape
    # The square root keeps small counts visible beside large ones; white is for zero.
    colors = LinearSegmentedColormap.from_list("blues", ["#E3EDF6", BLUE, "#10263C"])
    norm = PowerNorm(0.5, vmin=0, vmax=max(int(counts.max()), 1))
    image = axes.pcolormesh(
        np.arange(classes + 1) - 0.5,
        np.arange(silos + 1) - 0.5,
        np.ma.masked_equal(counts, 0),
        cmap=colors,
        norm=norm,
        edgecolors="#EEF0F3",
        linewidth=0.4,
    )
    axes.invert_yaxis()
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 10**6) if classes / step <= 20)
    axes.set_xticks(range(0, classes, step))
    axes.tick_params(length=0, labelsize=8, labelcolor=TEXT_COLOR)
    for spine in axes.spines.values():
        spine.set_color("#C9CED6")
    if classes <= MOST_NUMBERED and silos <= MOST_NAMED:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                dark = (count / counts.max()) ** 0.5 > 0.3
                text, color = f"{count:,}", "white" if dark else TEXT_COLOR
                axes.text(column, row, text, ha="center", va="center", size=7, color=color)
    else:
        bar = figure.colorbar(image, ax=axes, location="left", pad=0.01, fraction=0.03, aspect=18)
        bar.ax.tick_params(labelsize=7, length=2)
        bar.set_label("samples", size=8, color=QUIET_COLOR)


def _draw_bars(axes: "Axes", sizes: Indices, split: Split) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.barh(range(len(sizes)), sizes, height=0.62, color=BLUE, alpha=0.75)
    axes.set_xlabel(f"{split} samples", color=QUIET_COLOR)
    axes.tick_params(length=0, labelsize=8, labelcolor=TEXT_COLOR)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    if len(sizes) <= MOST_NAMED:
        largest = max(int(sizes.max()), 1)
        axes.set_xlim(0, 1.5 * largest)
        axes.set_xticks([])
        for row, size in enumerate(sizes):
            axes.text(size + 0.04 * largest, row, f"{size:,}", va="center", size=7)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(2, integer=True))

"""The picture of a formation: coalitions, benefits and competition."""

import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.drawing.layout import NODE_RADIUS, Layout, free_spot, lay_out, route
from fedegoists.coalitions.drawing.scene import CLEAR, around, clearance
from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.welfare import welfare
from fedegoists.errors import SettingsError
from fedegoists.files import write_bytes
from fedegoists.plotting import (
    QUIET_COLOR,
    TEXT_COLOR,
    PictureFormat,
    format_of,
    in_two_lines,
    plotting,
    saved,
    short_labels,
    text_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Array = npt.NDArray[np.float64]

MOST_ACROSS = 60
"""With more benefits between coalitions, ``auto`` leaves them out."""
MOST_INSIDE = 400
"""With more benefits inside one coalition, only the largest are drawn."""
MOST_RIVALS = 40
"""With more competing pairs between regions, each two regions share one line."""
MOST_CHORDS, MOST_BUNDLES = 250, 120
"""With more lines of competition, inside or between regions, they are left out."""

# Paul Tol's "muted" colours, which colour-blind people can tell apart, without its reds: red
# means competition.
COALITION_COLORS = ("#332288", "#44AA99", "#999933", "#88CCEE", "#AA4499", "#117733", "#DDCC77")
RIVAL_COLOR, ACROSS_COLOR = "#C1121F", "#DADDE2"
SMALL_BENEFIT, LARGE_BENEFIT = (0.77, 0.79, 0.82), (0.12, 0.16, 0.22)
ALONE_COLOR, ALONE_FILL = "#8A8F98", "#FAFAFA"

LABEL_SIZE, CAPTION_SIZE, LEGEND_SIZE, TITLE_SIZE = 8.0, 7.0, 7.5, 13.0
MARGIN, SMALLEST_WIDTH = 0.35, 7.5
DPI, MOST_PIXELS = 160, 40e6


def draw(
    formation: Formation,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    show_across: bool | Literal["auto"] = "auto",
) -> "Figure":
    """Draw a formation, and write the picture to a file if `path` is given.

    Every coalition is a coloured disc; all participants on their own are in one pale disc. Arrows
    are benefits, wider and darker for larger ones. Red dashed lines with a cross join competitors;
    if there are too many, one line joins two regions and tells how many pairs of their members
    compete. The legend tells what is left out for clarity. Long names are shortened.

    Parameters
    ----------
    path : path, optional
        Ends in ``.png``, ``.svg`` or ``.pdf``. The same formation gives the same bytes.
    title : str, optional
        The heading; below it are the numbers of participants and coalitions, and the welfare.
    show_across : bool or "auto"
        Whether to draw benefits between coalitions, faintly. ``auto`` leaves them out when there
        are more than 60.

    Returns
    -------
    matplotlib.figure.Figure
        A figure that is not registered with pyplot; it needs no display.

    Raises
    ------
    SettingsError
        If `path` has another suffix.
    MissingDependencyError
        If matplotlib is not installed.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2], [1, 0]], ["North", "South"])
    >>> figure = draw(form(benefit, CompetitionGraph([], ["North", "South"])), title="Two banks")
    """
    picture_format = None if path is None else format_of(path)
    with plotting():
        figure = _figure(formation, title, show_across)
        content = None if picture_format is None else saved(figure, picture_format)
    if path is not None and content is not None:
        write_bytes(path, content)
    return figure


def render(
    formation: Formation,
    picture_format: PictureFormat,
    *,
    title: str | None = None,
    show_across: bool | Literal["auto"] = "auto",
) -> bytes:
    """Return the picture that `draw` writes, as bytes."""
    if picture_format not in get_args(PictureFormat):
        formats = ", ".join(get_args(PictureFormat))
        raise SettingsError(f"unknown picture format {picture_format!r}; formats are {formats}")
    with plotting():
        return saved(_figure(formation, title, show_across), picture_format)


def _figure(
    formation: Formation, title: str | None, show_across: bool | Literal["auto"]
) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if show_across not in (True, False, "auto"):
        raise SettingsError(f"show_across is True, False or 'auto', not {show_across!r}")
    position = {name: k for k, name in enumerate(formation.participants)}
    coalitions = [[position[name] for name in group] for group in formation.coalitions]
    home = np.zeros(len(position), dtype=int)
    for k, group in enumerate(coalitions):
        home[group] = k if len(group) > 1 else -1
    labels = short_labels(formation.participants)
    wrapped = [in_two_lines(label) for label in labels]
    pairs = np.argwhere(np.triu(formation.competition.matrix))
    bundled = bool(np.count_nonzero(np.diff(home[pairs], axis=1)) > MOST_RIVALS)
    layout = lay_out(
        coalitions,
        [text_size(label, LABEL_SIZE) for label in wrapped],
        [text_size(label, LABEL_SIZE)[0] for label in labels],
        pairs,
        joined=not bundled,
    )
    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    entries = [
        *_draw_regions(axes, layout, formation),
        *_draw_benefits(axes, layout, formation.benefit.weights, home, show_across),
        *_draw_rivals(axes, layout, pairs, bundled),
    ]
    _draw_participants(axes, layout, labels, wrapped)
    _frame(figure, axes, layout, entries, formation, title or "Who trains with whom")
    return figure


def _draw_regions(axes: "Axes", layout: Layout, formation: Formation) -> "list[Line2D]":
    """Draw discs with their welfare above them; return their legend entry."""
    from matplotlib.patches import Circle

    for k, region in enumerate(layout.regions):
        if region.together:
            caption = f"total benefit {welfare(formation.benefit.weights, [region.members]):.4g}"
            look = {"fc": _fill(k), "ec": _tint(_color(k), 0.55), "lw": 1.0}
        else:
            caption = _own(len(region.members))
            look = {"fc": ALONE_FILL, "ec": ALONE_COLOR, "lw": 0.7, "ls": (0, (2, 3))}
        axes.add_patch(Circle(region.center, region.radius, zorder=2, **look))
        x, y = region.center
        axes.text(
            x, y + region.radius + 0.04, caption, size=CAPTION_SIZE, color=QUIET_COLOR,
            ha="center", va="bottom", zorder=8, bbox=_backing("white"),
        )  # fmt: skip
    if not any(region.together for region in layout.regions):
        return []
    edge = _tint(_color(0), 0.55)
    return [_entry("coalition", ls="", marker="o", ms=9, mfc=_fill(0), mec=edge)]


def _draw_benefits(
    axes: "Axes",
    layout: Layout,
    weights: Array,
    home: npt.NDArray[np.int_],
    show_across: bool | Literal["auto"],
) -> "list[Line2D]":
    """Draw benefits as arrows; return their legend entries."""
    source, target = np.nonzero(weights)
    across = (home[source] != home[target]) | (home[source] < 0)
    entries = []

    # From small to large, so that the large ones lie on top.
    inside = np.flatnonzero(~across)
    inside = inside[np.argsort(weights[source[inside], target[inside]], kind="stable")]
    largest = [inside[home[source[inside]] == k][-MOST_INSIDE:] for k in np.unique(home[home >= 0])]
    shown = inside[np.isin(inside, np.concatenate([*largest, inside[:0]]))]
    if len(shown):
        values = weights[source[shown], target[shown]]
        shares = values / values[-1]
        # Thinner where there are many.
        width = 1.8 * max(0.4, min(1, (150 / max(map(len, largest))) ** 0.5))
        colors = [_shade(share) for share in shares]
        widths = 0.3 + width * shares
        _draw_arrows(axes, layout, source[shown], target[shown], colors, widths, zorder=4)
        for what, k in (("largest", -1), ("smallest", 0))[: 1 + (values[0] < values[-1])]:
            text = f"benefit {values[k]:.3g} ({what} shown)"
            entries.append(_entry(text, color=colors[k], lw=widths[k], marker=">", ms=5))
    if len(shown) < len(inside):
        text = f"{len(inside) - len(shown):,} smaller benefits inside are not shown"
        entries.append(_entry(text, ls=""))

    count = np.count_nonzero(across)
    if count and (show_across is True or (show_across == "auto" and count <= MOST_ACROSS)):
        look = [ACROSS_COLOR] * count, np.full(count, 0.6)
        _draw_arrows(axes, layout, source[across], target[across], *look, zorder=3)
        text = "benefit between coalitions (not used)"
        entries.append(_entry(text, color=ACROSS_COLOR, lw=0.7, marker=">", ms=3))
    elif count:
        entries.append(_entry(f"{count:,} benefits between coalitions not shown", ls=""))
    return entries


def _draw_arrows(
    axes: "Axes",
    layout: Layout,
    source: npt.NDArray[np.intp],
    target: npt.NDArray[np.intp],
    colors: Sequence[str | tuple[float, ...]],
    widths: Array,
    *,
    zorder: int,
) -> None:
    """Draw arrows that bend to their right, so that two opposite ones stay apart."""
    from matplotlib.collections import LineCollection, PolyCollection

    start, end = layout.nodes[source], layout.nodes[target]
    chord = end - start
    bend = (start + end) / 2 + 0.13 * np.column_stack([chord[:, 1], -chord[:, 0]])
    into = (end - bend) / np.hypot(*(end - bend).T)[:, None]
    tip = end - (NODE_RADIUS + 0.015) * into
    size = (0.04 + 0.03 * widths)[:, None]
    base = tip - size * into
    t = np.linspace(0, 1, 16)[:, None, None]
    curves = (1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * base
    wing = 0.42 * size * np.column_stack([into[:, 1], -into[:, 0]])
    heads = np.stack([tip, base + wing, base - wing], axis=1)
    lines = LineCollection(list(curves.swapaxes(0, 1)), colors=colors, linewidths=widths.tolist())
    axes.add_collection(lines).set_zorder(zorder)
    axes.add_collection(PolyCollection(list(heads), facecolors=colors, lw=0)).set_zorder(zorder)


def _draw_rivals(
    axes: "Axes", layout: Layout, pairs: npt.NDArray[np.int_], bundled: bool
) -> "list[Line2D]":
    """Draw competing pairs; return their legend entries."""
    regions = layout.region_of[pairs]
    apart = (regions[:, 0] != regions[:, 1]) & bundled
    look: dict[str, Any] = {"color": RIVAL_COLOR, "ls": (0, (4, 2.5))}
    discs = layout.discs
    captions = discs * (1, 1, 0) + discs[:, 2:] * (0, 1, 0) + (0, 0.1, 0.35)
    entries = []

    single = pairs[~apart]
    if 0 < len(single) <= MOST_CHORDS:
        many = len(single) > MOST_RIVALS
        thin, small = (0.6, 3) if many else (0.9, 4.5)
        dots = layout.obstacles[: len(layout.nodes)]
        obstacles = np.concatenate([layout.obstacles, captions])
        for a, b in single.tolist():
            line = layout.nodes[[a, b]] if many else route(dots, a, b, (0.06, 0.12, 0.18))
            if clearance(line, layout.nodes, a, b) < NODE_RADIUS:
                line = around(layout.nodes, a, b, CLEAR * NODE_RADIUS)
            x, y = free_spot(line, obstacles)
            obstacles = np.concatenate([obstacles, [(x, y, 0.08)]])
            axes.plot(*line.T, lw=thin, zorder=5, **look)
            axes.plot([x], [y], marker="x", ms=small, mew=1.2, color=RIVAL_COLOR, zorder=6)
        entries.append(_entry("competitors", lw=0.9, marker="x", ms=5, **look))
    elif len(single):
        entries.append(_entry(f"{len(single):,} competing pairs are not shown", ls=""))

    bundles = Counter((a, b) for a, b in np.sort(regions[apart]).tolist())
    if 0 < len(bundles) <= MOST_BUNDLES:
        obstacles = np.concatenate([discs, captions])
        for (a, b), count in sorted(bundles.items()):
            line = route(discs, a, b)
            x, y = free_spot(line, obstacles)
            obstacles = np.concatenate([obstacles, [(x, y, 0.1)]])
            axes.plot(*line.T, lw=0.9, zorder=1, **look)
            axes.text(
                x, y, f"×{count}", size=CAPTION_SIZE, weight="bold", color=RIVAL_COLOR,
                ha="center", va="center", zorder=6, bbox=_backing("white"),
            )  # fmt: skip
        entries.append(_entry("×3: three competing pairs between two regions", lw=0.9, **look))
    elif bundles:
        text = f"{bundles.total():,} competing pairs between regions not shown"
        entries.append(_entry(text, ls=""))
    return entries


def _draw_participants(
    axes: "Axes", layout: Layout, labels: Sequence[str], wrapped: Sequence[str]
) -> None:
    from matplotlib.patches import Circle

    for k, region in enumerate(layout.regions):
        color = _color(k) if region.together else ALONE_COLOR
        backing = _backing(_fill(k) if region.together else ALONE_FILL)
        for member in region.members:
            dot = Circle(layout.nodes[member].tolist(), NODE_RADIUS, fc=color, ec="white", lw=0.8)
            axes.add_patch(dot).set_zorder(7)
            x, y = layout.labels[member].tolist()
            axes.text(
                x, y, (labels if region.radial else wrapped)[member], size=LABEL_SIZE,
                color=TEXT_COLOR, rotation=float(layout.rotations[member]),
                rotation_mode="anchor", ha="center", va="center", linespacing=1.1,
                parse_math=False, zorder=6, bbox=backing,
            )  # fmt: skip


def _frame(
    figure: "Figure",
    axes: "Axes",
    layout: Layout,
    entries: "list[Line2D]",
    formation: Formation,
    title: str,
) -> None:
    """Set the size of the picture, and add heading and legend."""
    width = max(SMALLEST_WIDTH, layout.width + 2 * MARGIN)
    room = width - 2 * MARGIN
    heading = _wrapped_title(title, room)
    alone = sum(len(group) == 1 for group in formation.coalitions)
    summary = [
        _counted(len(formation.participants), "participant"),
        _counted(len(formation.coalitions) - alone, "coalition"),
        *([f"{alone} {_own(alone)}"] if alone else []),
        f"total benefit {formation.welfare:.6g}" + " (proven optimal)" * formation.optimal,
    ]
    longest = max((text_size(str(e.get_label()), LEGEND_SIZE)[0] for e in entries), default=0)
    columns = max(1, min(len(entries), int(room / (longest + 0.6))))
    rows = -(-len(entries) // columns)
    head, foot = 0.95 + 0.26 * len(heading), MARGIN + (0.2 + 0.2 * rows) * bool(rows)
    height = foot + layout.height + head
    left = (width - layout.width) / 2
    axes.set(xlim=(-left, width - left), ylim=(-foot, height - foot))
    figure.set_size_inches(width, height)
    figure.set_dpi(min(DPI, (MOST_PIXELS / (width * height)) ** 0.5))
    x, y = MARGIN - left, height - foot - MARGIN
    for k, line in enumerate(heading):
        axes.text(
            x, y - 0.26 * k, line, size=TITLE_SIZE, weight="bold", color=TEXT_COLOR, va="top",
            parse_math=False,
        )  # fmt: skip
    y -= 0.26 * len(heading) + 0.03
    axes.text(x, y, " · ".join(summary), size=LABEL_SIZE + 1, color=QUIET_COLOR, va="top")
    if entries:
        axes.legend(
            handles=entries, loc="lower left", bbox_to_anchor=(MARGIN / width, 0.25 / height),
            ncols=columns, frameon=False, fontsize=LEGEND_SIZE, labelcolor=TEXT_COLOR, borderpad=0,
            borderaxespad=0, handlelength=3, columnspacing=1.5,
        )  # fmt: skip


def _wrapped_title(title: str, room: float) -> list[str]:
    for characters in range(int(room / 0.05), 0, -1):
        lines = textwrap.wrap(title, characters)
        # Bold letters are wider by up to a fifth.
        if all(1.2 * text_size(line, TITLE_SIZE)[0] <= room for line in lines):
            return lines
    return [title]


def _entry(text: str, **look: Any) -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D([], [], label=text, **look)


def _color(k: int) -> str:
    return COALITION_COLORS[k % len(COALITION_COLORS)]


def _fill(k: int) -> str:
    return _tint(_color(k), 0.14)


def _tint(color: str, share: float) -> str:
    """Return a colour mixed with white."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (1 - share * (1 - channel) for channel in to_rgb(color))
    return to_hex((red, green, blue))


def _shade(share: float) -> tuple[float, ...]:
    """Return the colour of a benefit that is this share of the largest one."""
    ends = zip(SMALL_BENEFIT, LARGE_BENEFIT, strict=True)
    return tuple(small + float(share) * (large - small) for small, large in ends)


def _backing(color: str) -> dict[str, str | float]:
    """Return a background that keeps a text legible where a line passes below it."""
    return {"boxstyle": "square,pad=0.1", "fc": color, "ec": "none", "alpha": 0.8}


def _own(number: int) -> str:
    return "on its own" if number == 1 else "on their own"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

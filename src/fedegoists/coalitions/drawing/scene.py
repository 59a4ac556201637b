"""A formation as shapes for a screen: the layout of the printed picture, with lines around members.

No line comes closer to a third member than `CLEAR` times the radius of its dot, so that it never
seems to begin or end there. That is so for any decision: dots are at least three radii apart, and
a line that would come too close to one goes around it on a circle.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.drawing.layout import NODE_RADIUS, PAGE_ASPECT, lay_out
from fedegoists.coalitions.formation import Formation
from fedegoists.plotting import short_labels

Array = npt.NDArray[np.float64]

CLEAR = 1.35
"""Least distance of a line from a third member, in radii of a dot; circles of 1.5 would touch."""

SCALE = 100.0
"""Units of a scene in an inch of the layout."""

LINE = 0.15
"""Room for a label's line, in inches."""

PORTRAIT_ASPECT = 0.8
"""Width of a narrow screen as a multiple of its height."""

MOST_LINES = 1500
"""With more benefits, only the largest are drawn."""

MOST_ACROSS_MEMBERS, MOST_DRAWN = 30, 300
"""With more members, there are no benefits between coalitions, and then no lines at all."""

ASIDE = 0.45
"""Distance of a benefit from the line between the centers, in radii: two do not coincide."""


@dataclass(frozen=True)
class SceneLine:
    """A line between two members, as an SVG path.

    Attributes
    ----------
    weight : float
        The benefit as a fraction of the largest one; 0 for competition.
    used : bool
        Whether both are in one coalition.
    points : list of (float, float)
        Points on the line, close enough to one another to draw it by.
    """

    source: int
    target: int
    weight: float
    used: bool
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class SceneRegion:
    """The disc of a coalition, or of all members on their own."""

    members: list[int]
    together: bool
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Scene:
    """All shapes, with y downward as on a screen.

    Attributes
    ----------
    members : list of (float, float)
        Centers of the members' dots, all of the same `radius`.
    labels : list of (str, float, float, float, float)
        Text, center, rotation in degrees, clockwise, and the width that there is room for.
    """

    width: float
    height: float
    radius: float
    members: list[tuple[float, float]]
    labels: list[tuple[str, float, float, float, float]]
    regions: list[SceneRegion]
    benefit: list[SceneLine]
    competition: list[SceneLine]


def scene(
    participants: Sequence[str],
    coalitions: Sequence[Sequence[str]],
    benefit: Iterable[tuple[str, str, float]],
    competition: Iterable[tuple[str, str]],
    *,
    across: bool = True,
    portrait: bool = False,
) -> Scene:
    """Return the shapes of a partition over its graphs.

    Parameters
    ----------
    across : bool
        Whether benefits between coalitions are among the lines.
    portrait : bool
        Whether the screen is higher than wide.

    Examples
    --------
    >>> shapes = scene(["A", "B"], [["A", "B"]], [("A", "B", 2.0)], [])
    >>> [len(region.members) for region in shapes.regions], shapes.benefit[0].weight
    ([2], 1.0)
    """
    place = {name: k for k, name in enumerate(participants)}
    groups = [[place[name] for name in group] for group in coalitions]
    home = np.zeros(len(place), dtype=int)
    for k, group in enumerate(groups):
        home[group] = k
    texts = short_labels(participants)
    wide = np.array([_text_width(text) for text in texts])
    sizes = np.column_stack([wide, np.full(len(texts), LINE)])
    pairs = [(place[a], place[b]) for a, b in competition]
    aspect = PORTRAIT_ASPECT if portrait else PAGE_ASPECT
    rivals = np.array(pairs, dtype=int).reshape(-1, 2)
    layout = lay_out(groups, sizes, wide, rivals, joined=False, aspect=aspect)
    flip = np.array([1, -1]) * SCALE
    down = np.array([0, layout.height * SCALE])
    nodes = layout.nodes * flip + down
    labels = layout.labels * flip + down
    radius = NODE_RADIUS * SCALE
    edges = [(place[a], place[b], weight) for a, b, weight in benefit]
    heaviest = max((weight for *_, weight in edges), default=1.0)
    edges = [edge for edge in edges if across or home[edge[0]] == home[edge[1]]]
    edges = sorted(edges, key=lambda edge: -edge[2])[:MOST_LINES]
    return Scene(
        width=layout.width * SCALE,
        height=layout.height * SCALE,
        radius=radius,
        members=[(round(x, 2), round(y, 2)) for x, y in nodes.tolist()],
        labels=[
            (text, round(x, 2), round(y, 2), round(-float(turn), 1), round(SCALE * float(room), 2))
            for text, (x, y), turn, room in zip(
                texts, labels.tolist(), layout.rotations, wide, strict=True
            )
        ],
        regions=[
            SceneRegion(
                list(region.members),
                region.together,
                round(region.center[0] * SCALE, 2),
                round((layout.height - region.center[1]) * SCALE, 2),
                round(region.radius * SCALE, 2),
            )
            for region in layout.regions
        ],
        benefit=[
            _line(nodes, radius, a, b, weight / heaviest, bool(home[a] == home[b]), ASIDE)
            for a, b, weight in edges
        ],
        competition=[
            _line(nodes, radius, a, b, 0.0, bool(home[a] == home[b]), 0.0) for a, b in pairs
        ],
    )


def formation_scene(formation: Formation, *, portrait: bool = False) -> Scene:
    """Return the shapes of a formation; those of large ones have fewer lines."""
    n = len(formation.participants)
    drawn = n <= MOST_DRAWN
    return scene(
        formation.participants,
        formation.coalitions,
        formation.benefit.edges() if drawn else (),
        formation.competition.pairs if drawn else (),
        across=n <= MOST_ACROSS_MEMBERS,
        portrait=portrait,
    )


def _text_width(text: str) -> float:
    """Return room for a text in inches, enough for the letters of usual fonts.

    Examples
    --------
    >>> _text_width("ill") < _text_width("sea") < _text_width("SEA") < _text_width("WWW")
    True
    """
    return max(sum(_character_width(character) for character in text), 0.15)


def _character_width(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF" or character in "MWm@%…—":
        return 0.12
    if character in "fijlrtI.,:;'|!()[] -":
        return 0.048
    return 0.09 if character.isupper() or character in "wGOQ&" else 0.073


def _line(
    nodes: Array, radius: float, a: int, b: int, weight: float, used: bool, aside: float
) -> SceneLine:
    along = nodes[b] - nodes[a]
    right = np.array([-along[1], along[0]]) / math.hypot(*along) * radius * aside
    points = around(nodes, a, b, CLEAR * radius, right)
    rounded = [(round(x, 2), round(y, 2)) for x, y in points.tolist()]
    return SceneLine(a, b, round(weight, 4), used, rounded)


def around(nodes: Array, a: int, b: int, clear: float, shift: npt.ArrayLike = (0.0, 0.0)) -> Array:
    """Return points of a line between two nodes that keeps a distance from all others.

    Parameters
    ----------
    nodes : array of shape (n, 2)
        Centers; any two are more than ``2.1 * clear`` apart.
    clear : float
        The distance.
    shift : pair of float
        Added to both ends.

    Examples
    --------
    >>> straight = around(np.array([(0.0, 0), (10, 0), (5, 4)]), 0, 1, 1)
    >>> straight.tolist()
    [[0.0, 0.0], [10.0, 0.0]]
    >>> bent = around(np.array([(0.0, 0), (10, 0), (5, 0.5)]), 0, 1, 1)
    >>> bool((np.hypot(*(bent - (5, 0.5)).T) >= 1 - 1e-9).all())
    True
    """
    clear *= 1.02  # arcs are drawn by their chords, and lines join them a little beside the circle
    start, end = nodes[a] + np.asarray(shift), nodes[b] + np.asarray(shift)
    length = math.hypot(*(end - start))
    forward = (end - start) / length
    side = np.array([-forward[1], forward[0]])
    others = np.delete(nodes, [a, b], axis=0) - start
    ahead, off = others @ forward, others @ side
    half = np.sqrt(np.maximum(clear**2 - off**2, 0))
    met = np.flatnonzero((np.abs(off) < clear) & (ahead + half > 0) & (ahead - half < length))
    points = [start]
    for k in met[np.argsort(ahead[met])]:
        # The arc on the side of the line, which is the shorter one.
        turn = -1.0 if off[k] > 0 else 1.0
        reach = math.acos(max(-1.0, min(1.0, abs(float(off[k])) / clear)))
        angles = np.linspace(-reach, reach, 2 + math.ceil(reach / 0.15))
        # Chords of the arc are inside the circle; so it is drawn a little larger.
        wider = clear / math.cos(reach / (len(angles) - 1))
        center = start + ahead[k] * forward + off[k] * side
        arc = center + wider * (
            np.sin(angles)[:, None] * forward + turn * np.cos(angles)[:, None] * side
        )
        points.extend(arc)
    points.append(end)
    return np.array(points)


def clearance(line: Array, nodes: Array, a: int, b: int) -> float:
    """Return the least distance of a line through points from a third node.

    Examples
    --------
    >>> clearance(np.array([(0.0, 0), (4, 0)]), np.array([(0.0, 0), (4, 0), (2, 1)]), 0, 1)
    1.0
    """
    others = np.delete(nodes, [a, b], axis=0)
    start, along = line[:-1], np.diff(line, axis=0)
    square = np.maximum((along**2).sum(axis=1), 1e-12)
    t = np.clip(((others[:, None] - start) * along).sum(axis=2) / square, 0, 1)
    miss = others[:, None] - start - t[..., None] * along
    return float(np.hypot(miss[..., 0], miss[..., 1]).min(initial=math.inf))

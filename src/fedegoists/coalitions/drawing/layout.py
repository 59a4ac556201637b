"""The layout of a drawing: positions of coalitions, members and labels, in inches.

Members are on a ring with their labels outside it, so that no benefit edge inside a coalition
crosses a label. Participants on their own share one ring. The rings' discs are packed like coins.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Pairs = npt.NDArray[np.int_]

NODE_RADIUS = 0.075
LINE_HEIGHT = 0.135
REGION_GAP = 0.42
"""Between two discs: room for a caption and for the lines that pass between them."""

LABEL_GAP = 0.045
REGION_PADDING = 0.1
ARC_PER_MEMBER = 0.27
PAGE_ASPECT = 1.4
MOST_UPRIGHT_LABELS = 60
MOST_SEATED = 60
"""With more participants or lines, members keep their order: seating takes too long."""
MOST_PACKED = 150
"""More discs are put in rows: packing them takes too long."""


@dataclass(frozen=True)
class Region:
    """A disc with the members of a coalition, or with all participants on their own.

    Its labels are `radial` where upright ones would need a much larger disc.
    """

    members: tuple[int, ...]
    together: bool
    radial: bool
    center: tuple[float, float]
    radius: float


@dataclass(frozen=True)
class Layout:
    """All positions, with the lower left corner of the discs' bounding box at (0, 0).

    Attributes
    ----------
    nodes, labels : arrays of shape (n, 2)
        Centers of the participants' dots and labels.
    rotations : array of shape (n,)
        The labels' rotation in degrees, anticlockwise.
    sizes : array of shape (n, 2)
        The labels' width and height before they are rotated.
    """

    width: float
    height: float
    regions: tuple[Region, ...]
    nodes: Array
    labels: Array
    rotations: Array
    sizes: Array

    @property
    def discs(self) -> Array:
        """The regions' centers and radii, as an array of shape (m, 3)."""
        return np.array([(*r.center, r.radius) for r in self.regions]).reshape(-1, 3)

    @property
    def obstacles(self) -> Array:
        """Dots and labels as circles, five to a label: first the n dots, as (x, y, radius)."""
        dots = np.column_stack([self.nodes, np.full(len(self.nodes), NODE_RADIUS)])
        angles = np.radians(self.rotations)
        radii = self.sizes.min(axis=1, initial=math.inf) / 2
        ends = (self.sizes[:, 0] / 2 - radii)[:, None]
        ends = ends * np.column_stack([np.cos(angles), np.sin(angles)])
        words = [
            np.column_stack([self.labels + share * ends, radii]) for share in (-1, -0.5, 0, 0.5, 1)
        ]
        return np.concatenate([dots, *words])

    @property
    def region_of(self) -> npt.NDArray[np.int_]:
        """The position of each participant's region."""
        homes = np.zeros(len(self.nodes), dtype=int)
        for k, region in enumerate(self.regions):
            homes[list(region.members)] = k
        return homes


@dataclass(frozen=True)
class _Ring:
    """Seats on a ring, relative to the center of the disc that holds them and their labels.

    The label of any member fits within `room` (half width and height) around `beside`.
    """

    radius: float
    seats: Array
    outward: Array
    radial: bool
    beside: Array
    room: Array

    def labels(self, sizes: Array) -> Array:
        """Return the labels' centers, as near to the seats as their room allows."""
        slack = self.room - sizes / 2
        if self.radial:
            inward: Array = self.beside - slack[:, :1] * self.outward
            return inward
        return np.clip(self.seats, self.beside - slack, self.beside + slack)

    def rotations(self) -> Array:
        """Return the labels' rotations; no label is upside down."""
        if not self.radial:
            return np.zeros(len(self.seats))
        degrees = np.degrees(np.arctan2(self.outward[:, 1], self.outward[:, 0])).round(6)
        turned: Array = (degrees + 90) % 180 - 90
        return turned


def lay_out(
    coalitions: Sequence[Sequence[int]],
    upright: npt.ArrayLike,
    radial: npt.ArrayLike,
    pairs: npt.ArrayLike = (),
    *,
    joined: bool = True,
    aspect: float = PAGE_ASPECT,
) -> Layout:
    """Place the members of coalitions, given as positions, without any overlap.

    Parameters
    ----------
    coalitions : partition of 0 to n − 1
        Coalitions of one are gathered in one region, which comes last.
    upright : array of shape (n, 2)
        Width and height of each participant's label if it is upright.
    radial : array of shape (n,)
        Width of each participant's label if it points away from its ring.
    pairs : array of shape (m, 2)
        Competing pairs; regions with many pairs between them are placed close together.
    joined : bool
        Whether straight lines will join the pairs: members are then seated so that these lines
        are short and pass no third participant's dot.
    aspect : float
        Width of the page as a multiple of its height, which the discs are packed to fill.

    Examples
    --------
    >>> layout = lay_out([[0, 1], [2]], [(0.5, 0.2)] * 3, [0.5] * 3)
    >>> [(region.members, region.together) for region in layout.regions]
    [((0, 1), True), ((2,), False)]
    """
    groups = [list(group) for group in coalitions if len(group) > 1]
    singles = [k for group in coalitions if len(group) == 1 for k in group]
    joint = len(groups)
    groups += [singles] if singles else []
    if not groups:
        none = np.zeros((0, 2))
        return Layout(0, 0, (), none, none, np.zeros(0), none)
    boxes, lengths = np.asarray(upright, dtype=float), np.asarray(radial, dtype=float)
    rivals = np.asarray(pairs, dtype=int).reshape(-1, 2)
    rings = [_ring(boxes[group], lengths[group]) for group in groups]
    radii = np.array([ring.radius for ring in rings])
    if len(groups) <= MOST_PACKED:
        packed = _packed(radii, _rivalry(groups, rivals), aspect)
        centers = _turned(packed, radii, aspect)
    else:
        centers = _in_rows(radii, aspect)
    n = len(boxes)
    nodes, labels, rotations, sizes = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n), boxes.copy()
    for group, ring, center in zip(groups, rings, centers, strict=True):
        nodes[group] = center + ring.seats
    if joined and len(rivals) and max(n, len(rivals)) <= MOST_SEATED:
        names = [center + ring.beside for ring, center in zip(rings, centers, strict=True)]
        _seat(groups, nodes, np.concatenate(names), rivals)
    for k, (group, ring, center) in enumerate(zip(groups, rings, centers, strict=True)):
        if ring.radial:
            sizes[group] = np.column_stack([lengths[group], np.full(len(group), LINE_HEIGHT)])
        labels[group] = center + ring.labels(sizes[group])
        rotations[group] = ring.rotations()
        if not ring.radial:
            # Now that all are seated, the disc need not hold the widest label at each seat.
            corners = np.abs(labels[group] - center) + sizes[group] / 2
            dots = np.hypot(*ring.seats.T).max() + NODE_RADIUS
            radii[k] = max(np.hypot(*corners.T).max(), dots) + REGION_PADDING

    low, high = (centers - radii[:, None]).min(axis=0), (centers + radii[:, None]).max(axis=0)
    regions = tuple(
        Region(tuple(sorted(group)), k < joint, ring.radial, (float(x), float(y)), float(radius))
        for k, (group, ring, (x, y), radius) in enumerate(
            zip(groups, rings, centers - low, radii, strict=True)
        )
    )
    width, height = (high - low).tolist()
    return Layout(width, height, regions, nodes - low, labels - low, rotations, sizes)


def _ring(upright: Array, radial: Array) -> _Ring:
    k = len(upright)
    angles = _angles(k)
    outward = np.column_stack([np.cos(angles), np.sin(angles)])
    smallest = 0.0 if k == 1 else max(0.45 + 0.03 * k, k * ARC_PER_MEMBER / math.tau)
    room = np.array([radial.max() / 2, 0.0])
    beside = smallest + NODE_RADIUS + LABEL_GAP + room[0]
    disc = beside + room[0] + REGION_PADDING
    ring = _Ring(float(disc), smallest * outward, outward, True, beside * outward, room)
    if k <= MOST_UPRIGHT_LABELS:
        most = math.inf if k <= 4 else 1.35 * ring.radius
        ring = _upright_ring(outward, upright.max(axis=0) / 2, smallest, most) or ring
    return ring


def _upright_ring(outward: Array, room: Array, radius: float, most: float) -> _Ring | None:
    """Return the smallest ring with upright labels, or None if its disc exceeds `most`."""
    # A label moves away from its seat until it is clear of it sideways, or above or below it.
    clear = room + NODE_RADIUS + LABEL_GAP
    steps = (clear / np.maximum(np.abs(outward), 1e-9)).min(axis=1)
    offsets = steps[:, None] * outward
    if len(outward) <= 4:
        # No edge leads upward from an upper seat, so the whole room above it is free.
        offsets = np.column_stack([0 * steps, np.sign(outward[:, 1]) * clear[1]])
    while True:
        seats = radius * outward
        beside = seats + offsets
        # The smallest disc around all labels and seats has its center on the vertical axis.
        ends = np.concatenate([beside, seats])[:, 1]
        heights = np.linspace(ends.min() - room[1], ends.max() + room[1], 101)
        corners = np.abs(beside[None] - np.column_stack([0 * heights, heights])[:, None]) + room
        reaches = np.hypot(corners[..., 0], corners[..., 1]).max(axis=1)
        reaches = np.maximum(reaches, radius + np.abs(heights) + NODE_RADIUS)
        middle = np.array([0, heights[np.argmin(reaches.round(9))]])
        disc = float(reaches.min()) + REGION_PADDING
        if disc > most:
            return None
        apart = np.abs(beside[:, None] - beside[None]) >= 2 * room + LABEL_GAP
        misses = np.maximum(np.abs(seats[:, None] - beside[None]) - room, 0)
        touching = np.count_nonzero(~apart.any(axis=2)) > len(seats)
        if not touching and (np.hypot(misses[..., 0], misses[..., 1]) > NODE_RADIUS).all():
            return _Ring(disc, seats - middle, outward, False, beside - middle, room)
        radius *= 1.04


def _angles(k: int) -> Array:
    """Return k directions; two seats are above each other, and four in two rows."""
    start = math.pi / 2 + (math.pi / 4 if k == 4 else 0)
    return start - math.tau * np.arange(k) / k


def _rivalry(groups: Sequence[Sequence[int]], pairs: Pairs) -> Pairs:
    """Return the number of pairs between each two groups."""
    home = np.zeros(sum(map(len, groups)), dtype=int)
    for k, group in enumerate(groups):
        home[list(group)] = k
    tally = np.zeros((len(groups), len(groups)), dtype=int)
    np.add.at(tally, (home[pairs[:, 0]], home[pairs[:, 1]]), 1)
    return tally + tally.T


def _packed(radii: Array, rivalry: Pairs, aspect: float) -> Array:
    """Return centers of discs that do not touch, large discs first and in the middle.

    Each disc goes to the place beside two others that is nearest to the middle and to the discs
    with which it has competing pairs.
    """
    centers = np.zeros((len(radii), 2))
    reach = radii + REGION_GAP / 2
    order = np.argsort(-radii, kind="stable")
    for step, k in enumerate(order[1:], 1):
        placed = order[:step]
        distances = reach[placed] + reach[k]
        if step == 1:
            centers[k] = distances[0], 0
            continue
        spots = _tangent_spots(centers[placed], distances)
        gaps = np.hypot(*(spots[:, None] - centers[placed]).transpose(2, 0, 1))
        free = (gaps >= distances - 1e-9).all(axis=1)
        spots, gaps = spots[free], gaps[free]
        areas = reach[placed] ** 2
        middle = areas @ centers[placed] / areas.sum()
        eccentric = np.hypot(*((spots - middle) / (aspect, 1)).T)
        pull = gaps @ rivalry[k, placed] / max(rivalry[k, placed].sum(), 1)
        centers[k] = spots[np.argmin(np.round(eccentric + 0.3 * pull, 9))]
    return centers


def _tangent_spots(centers: Array, distances: Array) -> Array:
    """Return every point that has its given distance to two of the centers."""
    a, b = np.triu_indices(len(centers), k=1)
    near = np.hypot(*(centers[b] - centers[a]).T) <= distances[a] + distances[b]
    a, b = a[near], b[near]
    length = np.hypot(*(centers[b] - centers[a]).T)
    along = (length**2 + distances[a] ** 2 - distances[b] ** 2) / (2 * length)
    aside = np.sqrt(np.maximum(distances[a] ** 2 - along**2, 0))
    unit = (centers[b] - centers[a]) / length[:, None]
    foot = centers[a] + along[:, None] * unit
    normal = np.column_stack([-unit[:, 1], unit[:, 0]]) * aside[:, None]
    return np.concatenate([foot + normal, foot - normal])


def _turned(centers: Array, radii: Array, aspect: float) -> Array:
    """Rotate all discs together so that they fill a page of this format best."""

    def page(points: Array) -> float:
        width, height = np.ptp(
            np.concatenate([points - radii[:, None], points + radii[:, None]]), axis=0
        )
        return float(round(max(width / aspect, height), 9))

    turns = []
    for angle in np.linspace(0, math.pi, 36, endpoint=False):
        c, s = math.cos(angle), math.sin(angle)
        turns.append(centers @ np.array([[c, s], [-s, c]]))
    return min(turns, key=page)


def _in_rows(radii: Array, aspect: float) -> Array:
    """Return centers of discs in rows, large discs first."""
    reach = radii + REGION_GAP / 2
    page = max(float(np.sqrt(4 * aspect * (reach**2).sum())), 2 * float(reach.max()))
    centers = np.zeros((len(radii), 2))
    x, y, height = 0.0, 0.0, 0.0
    for k in np.argsort(-radii, kind="stable"):
        if x + 2 * reach[k] > page + 1e-9:
            x, y, height = 0.0, y - height, 0.0
        centers[k] = x + reach[k], y - reach[k]
        x, height = x + 2 * reach[k], max(height, 2 * reach[k])
    return centers


def _seat(groups: list[list[int]], nodes: Array, names: Array, lines: Pairs) -> None:
    """Exchange seats inside regions, in place, until no exchange makes the lines better."""
    busy = set(lines.ravel().tolist())
    cost = _line_cost(nodes, names, lines)
    for _ in range(4):
        before = cost
        for group in groups:
            for a, b in itertools.combinations(range(len(group)), 2):
                i, j = group[a], group[b]
                if i not in busy and j not in busy:
                    continue
                nodes[[i, j]] = nodes[[j, i]]
                exchanged = _line_cost(nodes, names, lines)
                if exchanged < cost - 1e-9:
                    cost = exchanged
                    group[a], group[b] = j, i
                else:
                    nodes[[i, j]] = nodes[[j, i]]
        if cost == before:
            return


def _line_cost(nodes: Array, names: Array, lines: Pairs) -> float:
    """Return the lines' length plus penalties for dots and labels that they come close to."""
    start, along = nodes[lines[:, 0]], nodes[lines[:, 1]] - nodes[lines[:, 0]]
    square = (along**2).sum(axis=1)
    from_start = np.concatenate([nodes, names]) - start[:, None]
    t = np.clip((from_start * along[:, None]).sum(axis=2) / square[:, None], 0, 1)
    miss = from_start - t[..., None] * along[:, None]
    close = np.maximum(1 - np.hypot(miss[..., 0], miss[..., 1]) / (3 * NODE_RADIUS), 0)
    rows, n = np.arange(len(lines)), len(nodes)
    close[rows, lines[:, 0]] = close[rows, lines[:, 1]] = 0
    return float(np.sqrt(square).sum() + 3 * close[:, :n].sum() + close[:, n:].sum())


def route(discs: Array, a: int, b: int, bends: Sequence[float] = (0.2, 0.4, 0.6, 0.8)) -> Array:
    """Return a line between the centers of two discs, bent so that others hide least of it.

    Parameters
    ----------
    discs : array of shape (m, 3)
        Centers and radii.
    bends : sequence of float
        How much the line may bend to either side, as fractions of its length.
    """
    start, end = discs[a, :2], discs[b, :2]
    aside = np.array([end[1] - start[1], start[0] - end[0]])
    others = np.delete(discs, [a, b], axis=0)
    low, high = (discs[:, :2] - discs[:, 2:]).min(axis=0), (discs[:, :2] + discs[:, 2:]).max(axis=0)
    t = np.linspace(0, 1, 121)[:, None]
    best, least = np.zeros((0, 2)), math.inf
    for bend in (0, *(sign * bend for bend in bends for sign in (1, -1))):
        control = (start + end) / 2 + bend * aside
        line = (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end
        hidden = np.count_nonzero(_clearance(line, others) < LABEL_GAP)
        off_page = np.count_nonzero(((line < low) | (line > high)).any(axis=1))
        cost = hidden + 8 * abs(bend) + 100 * off_page
        if cost < least:
            best, least = line, cost
    return best


def free_spot(line: Array, obstacles: Array) -> tuple[float, float]:
    """Return a point of a line near its middle and clear of obstacles (centers and radii)."""
    t = np.linspace(0, 1, 81)
    spots = np.column_stack([np.interp(t, np.linspace(0, 1, len(line)), xy) for xy in line.T])
    clear = np.minimum(_clearance(spots, obstacles), 0.1)
    x, y = spots[np.argmax(np.round(clear - 0.1 * np.abs(t - 0.5), 9))].tolist()
    return x, y


def _clearance(points: Array, discs: Array) -> Array:
    gaps = points[:, None] - discs[None, :, :2]
    nearest: Array = (np.hypot(gaps[..., 0], gaps[..., 1]) - discs[:, 2]).min(
        axis=1, initial=math.inf
    )
    return nearest

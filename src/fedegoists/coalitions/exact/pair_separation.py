"""Inequalities over pairs that a fractional solution violates, for the pair relaxation.

Each is written as text: its kind, its centre, and the others, by number. `docs/explanation-optimal`
derives why they hold. The searches are greedy or exact for short cycles, and vectorised.
"""

from collections.abc import Iterable

import numpy as np

from fedegoists.coalitions.array_types import Bools, Floats, Ints

Violated = tuple[float, str]
"""By how much a solution violates an inequality, and the inequality as text."""

LEAST_VIOLATION = 1e-3
"""Smaller violations are left alone."""

MOST_EACH = 8
"""Inequalities of a kind around one centre in a round: more would say much the same."""

LEAST_SPOKE = 0.02
"""Others with less of the centre are in no wheel that is worth adding."""


def violated_stars(
    together: Floats, kind: str = "star", credit: Floats | None = None
) -> list[Violated]:
    """Find stars: a centre is with more of the others than their being together explains.

    For each centre, one set grows from every other participant, by the one that adds most.

    Parameters
    ----------
    together : array
        The fractional solution x: symmetric, zero between competitors and on the diagonal.
    kind : str
        The kind of the inequalities.
    credit : array, optional
        By centre, the right side; 1 for a star.
    """
    n = len(together)
    found: list[Violated] = []
    apart = together + 9.0 * np.eye(n)  # nobody is added twice
    for centre in range(n):
        near = np.flatnonzero(together[centre] > 1e-6)
        right = 1.0 if credit is None else float(credit[centre])
        if len(near) and together[centre, near].sum() > right + LEAST_VIOLATION:
            total, inside = _grown_stars(together[centre, near], apart[np.ix_(near, near)])
            found += _chosen(kind, centre, near, inside, total - right)
    return found


def _grown_stars(spokes: Floats, apart: Floats) -> tuple[Floats, Bools]:
    """Grow a set from each participant; return the sums of the star, and the sets as rows."""
    every = np.arange(len(spokes))
    total = spokes.copy()
    inside = np.eye(len(spokes), dtype=np.bool_)
    gain = spokes - apart
    while True:
        best = gain.argmax(axis=1)
        growing = np.flatnonzero(gain[every, best] > 1e-9)
        if not len(growing):
            return total, inside
        new = best[growing]
        total[growing] += gain[growing, new]
        inside[growing, new] = True
        gain[growing] -= apart[new]


def _chosen(kind: str, centre: int, near: Ints, inside: Bools, excess: Floats) -> list[Violated]:
    found: dict[str, float] = {}
    for row in np.argsort(-excess, kind="stable").tolist():
        if excess[row] <= LEAST_VIOLATION or len(found) >= MOST_EACH:
            break
        others = " ".join(map(str, near[inside[row]].tolist()))
        found.setdefault(f"{kind} {centre} {others}", float(excess[row]))
    return [(by, text) for text, by in found.items()]


def violated_support(together: Floats, edges: Bools) -> list[Violated]:
    """Find stars with fewer givers, or takers, of the centre than others with it (Principle 1).

    Parameters
    ----------
    edges : array of bool
        Whether the first gives to the second; not between competitors.
    """
    found: list[Violated] = []
    for kind, helps in (("givers", edges.T), ("takers", edges)):
        credit = (together * helps).sum(axis=1)
        if (credit < 1 - LEAST_VIOLATION).any():
            # Givers among the others would count on both sides, so they are left out.
            rest = np.where(helps, 0.0, together)
            found += _supported_stars(together, rest, kind, credit)
    return found


def _supported_stars(together: Floats, rest: Floats, kind: str, credit: Floats) -> list[Violated]:
    found: list[Violated] = []
    apart = together + 9.0 * np.eye(len(together))
    for centre in np.flatnonzero(credit < 1 - LEAST_VIOLATION).tolist():
        near = np.flatnonzero(rest[centre] > 1e-6)
        if len(near):
            total, inside = _grown_stars(together[centre, near], apart[np.ix_(near, near)])
            found += _chosen(kind, centre, near, inside, total - credit[centre])[:3]
    return found


def violated_wheels(together: Floats, centres: Iterable[int]) -> list[Violated]:
    """Find odd wheels with cycles of five and seven around some centres.

    With the length w_tu = (1 + 2 x_tu − x_ct − x_cu) / 2 ≥ 0 of an edge, a wheel is violated by
    1/2 minus the length of its cycle.
    """
    found: list[Violated] = []
    for centre in centres:
        near = np.flatnonzero(together[centre] > LEAST_SPOKE)
        if len(near) < 5:
            continue
        spokes = together[centre, near]
        length = (1 + 2 * together[np.ix_(near, near)] - spokes[:, None] - spokes[None, :]) / 2
        np.fill_diagonal(length, np.inf)
        found += _short_cycles(centre, near, length)
    return found


def _short_cycles(centre: int, near: Ints, length: Floats) -> list[Violated]:
    """Join two shortest paths of two or three edges from a participant by one more edge."""
    m = len(near)
    two, between = _joined(length, length)
    three, before = _joined(two, length)
    found: dict[frozenset[int], Violated] = {}
    for edges, reach in ((2, two), (3, three)):
        # closed[i, j, k]: from i to j, over the edge {j, k}, and back from k to i.
        closed = reach[:, :, None] + length[None] + reach[:, None, :]
        flat = closed.reshape(m, -1)
        best = flat.argmin(axis=1)
        for i in np.argsort(flat[np.arange(m), best], kind="stable").tolist():
            excess = 0.5 - float(flat[i, best[i]])
            if excess <= LEAST_VIOLATION or len(found) >= MOST_EACH:
                break
            j, k = divmod(int(best[i]), m)
            cycle = [i, *_path(i, j, edges, between, before), j, k]
            cycle += reversed(_path(i, k, edges, between, before))
            if len(set(cycle)) == len(cycle):  # otherwise it falls into shorter ones
                text = " ".join(map(str, near[cycle].tolist()))
                found.setdefault(frozenset(cycle), (excess, f"wheel {centre} {text}"))
    return list(found.values())


def _joined(one: Floats, other: Floats) -> tuple[Floats, Ints]:
    """Return the shortest two-part paths, and where their parts meet."""
    total = one[:, :, None] + other[None]
    meeting = total.argmin(axis=1)
    return np.take_along_axis(total, meeting[:, None], axis=1)[:, 0], meeting


def _path(i: int, j: int, edges: int, between: Ints, before: Ints) -> list[int]:
    """Return the participants between i and j on the shortest path of two or three edges."""
    if edges == 2:
        return [int(between[i, j])]
    last = int(before[i, j])
    return [int(between[i, last]), last]

"""Layouts: nothing overlaps, and lines go around what is in their way."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.coalitions.drawing.layout import NODE_RADIUS, Layout, free_spot, lay_out, route

BANKS = [
    "Deutsche Bank", "BNP Paribas", "Santander", "HSBC", "ING", "UniCredit", "Barclays",
    "Crédit Agricole", "Société Générale", "Commerzbank",
]  # fmt: skip


partitions = st.lists(st.integers(1, 30), min_size=1, max_size=12).map(
    lambda sizes: [list(range(sum(sizes[:k]), sum(sizes[: k + 1]))) for k in range(len(sizes))]
)


@settings(max_examples=40, deadline=None)
@given(partitions, st.integers(0, 2**32 - 1))
def test_regions_hold_their_members_and_nobody_else(coalitions, seed):
    rng = np.random.default_rng(seed)
    n = sum(map(len, coalitions))
    upright = np.column_stack([rng.uniform(0.1, 1.2, n), rng.choice([0.13, 0.27], n)])
    pairs = np.argwhere(np.triu(rng.random((n, n)) < 0.05, k=1))
    layout = lay_out(coalitions, upright, rng.uniform(0.1, 1.6, n), pairs)
    check_geometry(layout, coalitions)


def test_many_regions_do_not_overlap_either():
    coalitions = [[2 * k, 2 * k + 1] for k in range(200)]
    layout = lay_out(coalitions, [(0.5 + 0.001 * k, 0.2) for k in range(400)], [0.5] * 400)
    check_geometry(layout, coalitions)


def check_geometry(layout: Layout, coalitions: list[list[int]]) -> None:
    together = [tuple(group) for group in coalitions if len(group) > 1]
    alone = tuple(k for group in coalitions if len(group) == 1 for k in group)
    assert [region.members for region in layout.regions] == together + [alone] * bool(alone)
    discs = layout.discs
    for one, other in combinations(discs, 2):
        assert np.hypot(*(one - other)[:2]) > one[2] + other[2] + 0.3
    assert (discs[:, :2] - discs[:, 2:]).min() >= -1e-9
    assert ((discs[:, :2] + discs[:, 2:]) <= np.array([layout.width, layout.height]) + 1e-9).all()

    angles = np.radians(layout.rotations)
    turned = np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]])
    turned = turned.transpose(2, 0, 1)
    along = turned[..., 0] * layout.sizes[:, :1] / 2
    across = turned[..., 1] * layout.sizes[:, 1:] / 2
    for k, (x, y, radius) in enumerate(discs):
        members = list(layout.regions[k].members)
        others = [m for m in range(len(layout.nodes)) if m not in members]
        distance = np.hypot(*(layout.nodes - (x, y)).T)
        assert (distance[members] + NODE_RADIUS <= radius).all()
        assert (distance[others] - NODE_RADIUS > radius).all()
        for corner in (along + across, along - across, -along + across, -along - across):
            reach = np.hypot(*(layout.labels + corner - (x, y)).T)
            assert (reach[members] <= radius + 1e-9).all()
        dots = layout.nodes[members]
        gaps = np.hypot(*(dots[:, None] - dots[None]).transpose(2, 0, 1))
        assert gaps[~np.eye(len(dots), dtype=bool)].min(initial=9) > 3 * NODE_RADIUS
    # Dots as seen from each label, as if that were upright.
    seen = (layout.nodes[None] - layout.labels[:, None]) @ turned
    beyond = np.maximum(np.abs(seen) - layout.sizes[:, None] / 2, 0)
    assert (np.hypot(beyond[..., 0], beyond[..., 1]) >= NODE_RADIUS).all()
    for group in (region.members for region in layout.regions if not region.radial):
        for a, b in combinations(group, 2):
            apart = np.abs(layout.labels[a] - layout.labels[b])
            assert (apart >= (layout.sizes[a] + layout.sizes[b]) / 2 - 1e-9).any()


def test_competitors_are_seated_face_to_face():
    # Eight in a ring; the last one, whose usual seat is anywhere, competes with the single one.
    def distance(joined: bool) -> float:
        sizes = [(0.3, 0.15)] * 9
        layout = lay_out([range(8), [8]], sizes, [0.3] * 9, [(3, 8)], joined=joined)
        return float(np.hypot(*(layout.nodes[3] - layout.nodes[8])))

    assert distance(joined=True) < distance(joined=False)


def test_a_route_goes_around_the_disc_in_its_way():
    discs = np.array([(0, 0, 1.0), (10, 0, 1.0), (5, 0.5, 2.0), (5, -6, 1.0)])
    line = route(discs, 0, 1)
    assert np.allclose(line[0], (0, 0))
    assert np.allclose(line[-1], (10, 0))
    assert (np.hypot(*(line - (5, 0.5)).T) > 2).all()
    assert (np.hypot(*(line - (5, -6)).T) > 1).all()
    assert np.allclose(route(discs[:2], 0, 1)[:, 1], 0)


def test_a_mark_keeps_to_the_middle_unless_something_is_there():
    line = np.array([(0.0, 0.0), (10.0, 0.0)])
    assert free_spot(line, np.zeros((0, 3))) == pytest.approx((5, 0))
    x, y = free_spot(line, np.array([(5.0, 0.0, 1.0)]))
    assert y == 0
    assert 1 < abs(x - 5) < 2

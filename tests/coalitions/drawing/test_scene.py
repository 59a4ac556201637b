"""Scenes: coalitions do not overlap, and no line seems to touch a third member."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions.drawing.scene import CLEAR, MOST_LINES, Scene, around, scene


def of(formation) -> Scene:
    return scene(
        formation.participants,
        formation.coalitions,
        formation.benefit.edges(),
        formation.competition.pairs,
    )


def decision(n, density, rivals, seed):
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random((n, n)) < density, rng.random((n, n)), 0)
    np.fill_diagonal(weights, 0)
    upper = np.triu(rng.random((n, n)) < rivals, k=1)
    names = [f"member {k}" * (1 + k % 3) for k in range(n)]
    return form(
        BenefitGraph(weights, names), CompetitionGraph.from_numpy(upper | upper.T, names), "stable"
    )


def distances(points, spots):
    """Return the distance of each spot from a line through points."""
    start, along = points[:-1], np.diff(points, axis=0)
    square = np.maximum((along**2).sum(axis=1), 1e-12)
    t = ((spots[:, None] - start) * along).sum(axis=2) / square
    near = start + np.clip(t, 0, 1)[..., None] * along
    return np.hypot(*(spots[:, None] - near).transpose(2, 0, 1)).min(axis=1)


def check(shapes: Scene) -> None:
    spots = np.array(shapes.members).reshape(-1, 2)
    for line in (*shapes.benefit, *shapes.competition):
        points = np.array(line.points)
        others = np.delete(spots, [line.source, line.target], axis=0)
        if len(others):
            assert distances(points, others).min() >= shapes.radius
        for end, member in ((points[0], line.source), (points[-1], line.target)):
            assert np.hypot(*(end - spots[member])) < shapes.radius
    for one, other in combinations(shapes.regions, 2):
        gap = np.hypot(one.x - other.x, one.y - other.y) - one.radius - other.radius
        assert gap > 0
    for region in shapes.regions:
        for member, (x, y) in enumerate(shapes.members):
            far = np.hypot(x - region.x, y - region.y)
            assert (far < region.radius) == (member in region.members)
    assert (spots >= 0).all()
    assert (spots <= (shapes.width, shapes.height)).all()


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    st.integers(1, 40), st.floats(0, 1), st.floats(0, 0.6), st.integers(0, 2**32 - 1)
)  # fmt: skip
def test_no_line_comes_nearer_to_a_third_member_than_its_radius(n, density, rivals, seed):
    check(of(decision(n, density, rivals, seed)))


@pytest.mark.parametrize("n", [100, 300])
def test_large_consortia(n):
    shapes = of(decision(n, 0.05, 0.02, 0))
    check(shapes)
    assert len(shapes.benefit) <= MOST_LINES


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_a_line_goes_around_whatever_is_in_its_way(n, seed):
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.arange(n), np.arange(n)), axis=-1).reshape(-1, 2) * 3.0
    spots = grid + rng.uniform(-0.4, 0.4, grid.shape)  # at least 2.2 apart
    a, b = rng.choice(len(spots), 2, replace=False)
    points = around(spots, a, b, 1.0, rng.uniform(-0.3, 0.3, 2))
    assert distances(points, np.delete(spots, [a, b], axis=0)).min() >= 1 - 1e-9


def test_the_line_that_read_as_another_one():
    """Alder and Dogwood compete; Elm is between them and does not compete with either."""
    spots = np.array([(0.0, 0.0), (10.0, 0.0), (5.0, 0.3)])
    assert distances(around(spots, 0, 1, CLEAR), spots[2:])[0] >= CLEAR - 1e-9


def test_two_benefits_between_the_same_members_do_not_coincide():
    shapes = scene(["A", "B"], [["A", "B"]], [("A", "B", 1.0), ("B", "A", 0.5)], [])
    one, other = (np.array(line.points) for line in shapes.benefit)
    assert np.hypot(*(one[0] - other[-1])) > 0.5 * shapes.radius
    assert [line.weight for line in shapes.benefit] == [1.0, 0.5]


def test_benefits_between_coalitions_can_be_left_out():
    edges = [("A", "B", 1.0), ("B", "A", 1.0), ("A", "C", 1.0)]
    shapes = scene(["A", "B", "C"], [["A", "B"], ["C"]], edges, [("B", "C")], across=False)
    assert {(line.source, line.target) for line in shapes.benefit} == {(0, 1), (1, 0)}
    assert [line.used for line in shapes.competition] == [False]


def test_nobody():
    assert scene([], [], [], []).members == []

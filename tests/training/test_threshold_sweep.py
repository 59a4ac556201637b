"""Edges and coalitions over thresholds, by hand."""

from fedegoists.graphs import CompetitionGraph
from fedegoists.training.threshold_sweep import threshold_sweep
from tests.benefit.test_estimate import NAMES, WEIGHTS, estimate


def test_edges_fall_and_coalitions_dissolve_along_the_threshold():
    points = threshold_sweep(estimate(WEIGHTS), [0.0, 0.15, 0.35, 0.5])
    assert [point.edges for point in points] == [5, 3, 1, 0]
    assert points[0].coalitions == (("a", "b", "c"),)
    assert points[-1].together == 0
    rivals = CompetitionGraph([("a", "b"), ("a", "c"), ("b", "c")], NAMES)
    assert threshold_sweep(estimate(WEIGHTS), [0.0], rivals)[0].together == 0

"""The fairest partition, against brute force."""

import numpy as np
import pytest

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import fairest_partition as fairness
from fedegoists.coalitions.exact.fairest_partition import fairer, fairest_partition
from tests.instances import (
    apart,
    as_positions,
    random_graphs,
    valid_partitions,
)


def sorted_utilities(partition, benefit) -> list[float]:
    got = [sum(benefit.weights[j, i] for j in group) for group in partition for i in group]
    return sorted(round(float(value), 9) for value in got)


@pytest.mark.parametrize("density", [0.25, 0.5, 1.0])
@pytest.mark.usefixtures("way")
def test_fair_is_the_highest_of_all_sorted_utilities(density):
    for seed in range(8):
        benefit, competition = random_graphs(7, density, 0.3, seed)
        formation = form(benefit, competition, objective="fair", time_limit=20)
        assert formation.proven, seed
        best = max(sorted_utilities(p, benefit) for p in valid_partitions(benefit, competition))
        reached = as_positions(formation.coalitions, benefit.participants)
        assert sorted_utilities(reached, benefit) == pytest.approx(best, abs=1e-8), seed


def test_what_is_fairer():
    def utilities(*values: float) -> np.ndarray:
        return np.array(values, dtype=float)

    assert fairer(utilities(3, 1, 2), utilities(9, 1, 1))
    assert fairer(utilities(1, 0), utilities(0, 0))
    assert not fairer(utilities(2, 1), utilities(1, 2))
    assert not fairer(utilities(0, 9), utilities(1, 1))


def test_fair_is_proven_and_right_beside_a_huge_benefit():
    """a and b give each other far more than anybody else; still nobody needs to be alone."""
    names = ["a", "b", "c", "d"]
    for huge in (10.0, 1e10):
        edges = [("a", "b", huge), ("b", "a", huge)]
        edges += [(x, y, 1.5) for x, y in (("a", "c"), ("c", "a"), ("b", "d"), ("d", "b"))]
        benefit = BenefitGraph.from_edges(edges, names)
        rivals = CompetitionGraph([("c", "d"), ("a", "d"), ("b", "c")], names)
        formation = form(benefit, rivals, objective="fair")
        assert formation.coalitions == (("a", "c"), ("b", "d"))
        assert formation.best_by_objective


def test_fairness_without_time_keeps_the_start_and_says_so(monkeypatch):
    def refuse(*_):
        raise AssertionError("there is no time for a solver")

    monkeypatch.setattr(fairness, "solve_until", refuse)
    benefit, competition = apart(3, 10, 0.4)
    alone = [[i] for i in range(benefit.n)]
    effort = Effort(10, deadline=0.0)
    partition, proven = fairest_partition(benefit.weights, competition.matrix, [alone], effort)
    assert sorted(partition) == alone
    assert not proven
    assert effort.clock_ended

"""Branching on pairs: the highest welfare of all branches is that of the whole."""

import numpy as np
import pytest

from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.best_partition import load_searches
from fedegoists.coalitions.exact.branching import Branching
from fedegoists.coalitions.exact.column_generation import ColumnGeneration
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.exact.restricted_master import RestrictedMaster
from fedegoists.coalitions.proof.coalition_listing import Allowance
from fedegoists.coalitions.proof.price_proof import ExactConsortium
from tests.instances import random_graphs

SPLIT = (3, 6, 12, 18, 30, 37)
"""Seeds for which the linear program is not integral."""


def without_closing(monkeypatch, *, cuts: bool = False) -> None:
    """Let column generation neither list nor cut, so that only branching closes a gap."""

    def list_nothing(self, most):
        self._too_many = True
        return False

    monkeypatch.setattr(ColumnGeneration, "_list", list_nothing)
    if cuts:
        least = RestrictedMaster.separate
        monkeypatch.setattr(RestrictedMaster, "separate", lambda self: least(self, most=1))
    else:
        monkeypatch.setattr(RestrictedMaster, "separate", lambda *_: 0)


def optimum(benefit, competition) -> float:
    consortium = ExactConsortium(benefit, competition, 1)
    total = sum(one.highest_welfare(Allowance()) for one in consortium.components())
    return total / consortium.unit


def branched(benefit, competition, start, seconds=60.0) -> tuple[Incumbent, Branching]:
    load_searches()
    weights = np.where(competition.matrix, 0.0, benefit.weights)
    problem = Subproblem(weights, weights > 0, np.asarray(competition.matrix))
    incumbent = Incumbent(weights, start, 1e9)
    effort = Effort(seconds)
    generation = ColumnGeneration(problem, incumbent, effort)
    generation.resume(effort)
    branching = Branching(problem, incumbent, generation, effort)
    branching.run()
    return incumbent, branching


@pytest.mark.parametrize("seed", SPLIT)
def test_branching_proves_the_optimum_without_cuts_and_lists(seed, monkeypatch):
    """Without an annealing, too: the partition comes from the branches."""
    without_closing(monkeypatch)
    density, rivalry = [(1.0, 0.3), (0.3, 0.2), (0.2, 0.4)][seed % 3]
    instance = random_graphs(13, density, rivalry, seed)
    incumbent, branching = branched(*instance, [[i] for i in range(13)])
    assert next(branching._number) > 1
    assert incumbent.optimal
    assert incumbent.value == pytest.approx(optimum(*instance), rel=1e-9)


def test_a_bound_before_the_end_is_no_lower_than_the_optimum(monkeypatch):
    without_closing(monkeypatch)
    instance = random_graphs(14, 1.0, 0.3, seed=5)
    reached = optimum(*instance)
    bounds = []
    for seconds in (0.001, 0.02, 0.05, 0.1):
        incumbent, _ = branched(*instance, [[i] for i in range(14)], seconds)
        bounds.append(incumbent.upper_bound)
    assert min(bounds) >= reached * (1 - 1e-9)


def test_two_that_serve_each_other_may_be_united_and_receive_nothing_else():
    """a and b serve each other, and both give to c, which gives to d, which gives to c.

    United, a and b have takers and no givers; the coalition of all four is valid nevertheless.
    """
    weights = np.zeros((4, 4))
    for giver, taker in [(0, 1), (1, 0), (0, 2), (1, 2), (2, 3), (3, 2)]:
        weights[giver, taker] = 1.0
    load_searches()
    problem = Subproblem(weights, weights > 0, np.zeros((4, 4), dtype=np.bool_))
    incumbent = Incumbent(weights, [[0], [1], [2], [3]], 100.0)
    effort = Effort(10)
    generation = ColumnGeneration(problem, incumbent, effort)
    branching = Branching(problem, incumbent, generation, effort)
    child = branching._together(branching._open[0][2], 0, 1)
    assert child.inside == 2.0
    branching._explore(child)
    assert incumbent.value == 6.0
    assert incumbent.partition == [[0, 1, 2, 3]]


@pytest.mark.parametrize("seed", range(6))
def test_prices_that_branches_inherit_are_high_enough_for_every_coalition(seed, monkeypatch):
    """Those of triples, too: of a triple that holds both united, everybody with them pays."""
    without_closing(monkeypatch, cuts=True)
    instance = random_graphs(13, 1.0, 0.3, seed=SPLIT[seed])
    benefit, competition = instance
    weights = np.where(competition.matrix, 0.0, benefit.weights)
    problem = Subproblem(weights, weights > 0, np.asarray(competition.matrix))
    load_searches()
    incumbent, effort = Incumbent(weights, [[i] for i in range(13)], 1e9), Effort(60)
    generation = ColumnGeneration(problem, incumbent, effort)
    generation.resume(effort)
    branching = Branching(problem, incumbent, generation, effort)
    root = branching._open[0][2]
    prices, triples, _ = generation.inheritance
    pairs = [(i, j) for i in range(13) for j in range(i) if not competition.matrix[i, j]]
    for i, j in pairs[:: 1 + len(pairs) // 12]:
        for child in (branching._apart(root, i, j), branching._together(root, i, j)):
            own, own_triples, _ = child.generation.inheritance
            for group in valid_coalitions_of(child.problem):
                paid = sum(own[k] for k in group) + sum(
                    price
                    for triple, price in zip(own_triples, own[child.problem.n :], strict=True)
                    if len(set(triple) & set(group)) > 1
                )
                value = child.problem.pair_values[np.ix_(group, group)].sum() / 2
                assert paid >= value - 1e-9
            assert own.sum() + child.inside <= prices.sum() + 1e-9
    assert triples or seed


def valid_coalitions_of(problem: Subproblem) -> list[list[int]]:
    sets: list[list[int]] = [[]]
    for i in range(problem.n):
        sets += [[*one, i] for one in sets if not problem.competition[i, one].any()]
    return [
        one
        for one in sets
        if len(one) > 1
        and problem.edges[np.ix_(one, one)].any(axis=0).all()
        and problem.edges[np.ix_(one, one)].any(axis=1).all()
    ]

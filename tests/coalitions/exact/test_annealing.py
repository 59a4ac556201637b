"""The annealing by itself: what it finds, and that its tables stay true."""

import numpy as np
import pytest

from fedegoists import BenefitGraph, CompetitionGraph
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.annealing import Annealing
from fedegoists.coalitions.exact.moves import BEST, FOE, GIVER, TAKER
from fedegoists.coalitions.exact.reduction import Subproblem
from tests.instances import is_valid, random_graphs, utility


@pytest.mark.parametrize("seed", range(3))
def test_annealing_alone_finds_circles_of_four(seed):
    """25 circles are hidden among rare smaller benefits and many competitors.

    By hand: all circles together are worth 25 · 4.
    """
    rng = np.random.default_rng(seed)
    n = 100
    members = rng.permutation(n).reshape(25, 4)
    circle = np.empty(n, dtype=int)
    circle[members] = np.arange(25)[:, None]
    weights = np.where(rng.random((n, n)) < 0.05, 0.1 * rng.random((n, n)), 0.0)
    weights[members, np.roll(members, 1, axis=1)] = 1.0
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu((rng.random((n, n)) < 0.4) & (circle[:, None] != circle), 1)
    rivals |= rivals.T
    weights[rivals] = 0.0
    problem = Subproblem(weights, weights > 0, rivals, seed)
    annealing = Annealing(problem, [[i] for i in range(n)])
    assert annealing.sparse
    annealing.run(200_000, Effort(100))
    benefit, competition = BenefitGraph(weights), CompetitionGraph.from_numpy(rivals)
    assert all(is_valid(group, benefit, competition) for group in annealing.best)
    assert sum(utility(group, benefit) for group in annealing.best) > 98


@pytest.mark.parametrize(("density", "bonus"), [(0.1, 0.0), (0.1, 3.0), (1.0, 0.0)])
def test_the_tables_say_what_the_definitions_say(density, bonus):
    """After many moves, count givers, takers, competitors and worth anew from the graphs."""
    benefit, competition = random_graphs(40, density, 0.2, seed=1)
    weights, rivals = benefit.weights, competition.matrix
    problem = Subproblem(weights, weights > 0, rivals, bonus=bonus)
    annealing = Annealing(problem, [[i] for i in range(40)])
    reached = annealing.run(30_000, Effort(100))
    t = annealing._state
    value = np.where(rivals, 0.0, weights + weights.T)
    for c in range(len(t.size)):
        inside = (t.label == c).astype(int)
        assert inside.sum() == t.size[c]
        assert sorted(t.member[c, : t.size[c]]) == np.flatnonzero(inside).tolist()
        assert t.worth[c] == pytest.approx(inside @ value, abs=1e-9)
        givers, takers = inside @ (weights > 0), (weights > 0) @ inside
        foes = inside @ rivals
        assert (t.found[c] == GIVER * givers + TAKER * takers + FOE * foes).all()
    assert all(is_valid(group, benefit, competition) for group in reached)
    together = sum(len(group) for group in annealing.best if len(group) > 1)
    welfare = sum(utility(group, benefit) for group in annealing.best)
    assert t.totals[BEST] == pytest.approx(welfare + bonus * together)


def test_the_same_seed_makes_the_same_moves():
    benefit, competition = random_graphs(60, 0.3, 0.2, seed=2)
    weights, rivals = benefit.weights, competition.matrix
    alone = [[i] for i in range(60)]
    runs = []
    for seed in (5, 5, 6):
        annealing = Annealing(Subproblem(weights, weights > 0, rivals, seed), alone)
        runs.append(annealing.run(5_000, Effort(100)))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]

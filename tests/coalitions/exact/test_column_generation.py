"""Column generation: cuts, listing, and the clock."""

import math

import numpy as np
import pytest

from benchmarks.pair_model import solve_pairs
from fedegoists import form
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.best_partition import (
    best_partition,
    load_searches,
)
from fedegoists.coalitions.exact.column_generation import ColumnGeneration
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.welfare import welfare
from fedegoists.graphs.participant_graph import Entries
from tests.instances import (
    assert_sound,
    random_graphs,
)


@pytest.mark.parametrize("seed", range(4))
def test_cuts_and_closing_are_sound_where_the_linear_program_is_not_integral(seed):
    """Dense instances of 18, where mixtures of coalitions are worth more than any partition."""
    instance = random_graphs(18, 1.0, 0.3, seed)
    formation = form(*instance, time_limit=20)
    assert formation.optimal
    assert_sound(formation)
    peer = solve_pairs(instance[0].weights, instance[1].matrix, seconds=20, work=1e9, seed=0)
    if peer.optimal:
        assert formation.welfare == pytest.approx(peer.upper_bound, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_listing_rests_on_its_prices_however_good_the_bound(seed):
    """A start that can be improved, and a bound from elsewhere that is nearly tight."""

    n = 16
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random((n, n)) < 0.5, rng.random((n, n)), 0.0)
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < 0.3, 1)
    rivals |= rivals.T
    alone = [[i] for i in range(n)]
    best = best_partition(
        Entries.of(weights), Entries.of(rivals), [alone], seconds=30, deadline=math.inf, seed=0
    )
    assert best.optimal
    value = welfare(weights, best.partition)
    incumbent = Incumbent(weights, alone, value * 1.0001)
    problem = Subproblem(weights, weights > 0, rivals)
    ColumnGeneration(problem, incumbent, Effort(30))._list(20_000)
    assert not incumbent.optimal or incumbent.value == pytest.approx(value)


def test_a_list_that_the_clock_cut_short_says_so():
    """Else the same seed would give another result on a slower machine, without a word."""
    load_searches()
    benefit, competition = random_graphs(16, 0.5, 0.3, seed=1)
    incumbent = Incumbent(benefit.weights, [[i] for i in range(16)], 1e3)
    effort = Effort(30, deadline=0.0)
    problem = Subproblem(benefit.weights, benefit.weights > 0, competition.matrix)
    generation = ColumnGeneration(problem, incumbent, effort)
    assert not generation._list(20_000)
    assert effort.clock_ended

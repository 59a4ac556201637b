"""Pricing with triples, against a trial of all coalitions; and splits of pairs' values."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import pricing as pricing_module
from fedegoists.coalitions.exact.pair_splits import bound_groups, sweep
from fedegoists.coalitions.exact.pricing import Pricing
from fedegoists.coalitions.exact.reduction import Subproblem
from tests.instances import graphs, is_valid, random_graphs

PRICE = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0, 1.5, 2.0])


def above(benefit, competition, prices, triples, triple_prices, threshold, room=None):
    """Return the coalitions that pricing lists above a threshold, and those by definition."""
    weights, rivals, n = benefit.weights, competition.matrix, benefit.n
    problem = Subproblem(weights, (weights > 0) & ~rivals, rivals)
    pricing = Pricing(problem, Effort(1e6))
    pricing.set_prices(prices, triples, triple_prices)
    if room is not None:  # fewer branches may have splits of their own
        s = pricing._search
        pricing._search = s._replace(pair=s.pair[:room].copy(), share=s.share[:room].copy())
    rows = [pricing.all_above(root, threshold, 10_000, 10**9) for root in range(n)]
    found = {tuple(np.flatnonzero(row).tolist()) for part in rows for row in part}
    expected = set()
    for size in range(2, n + 1):
        for group in itertools.combinations(range(n), size):
            if not is_valid(list(group), benefit, competition):
                continue
            profit = weights[np.ix_(group, group)].sum() - prices[list(group)].sum()
            for triple, price in zip(triples, triple_prices, strict=True):
                profit -= price * (len({*triple} & {*group}) > 1)
            if profit > threshold:
                expected.add(group)
    return found, expected


@pytest.mark.parametrize("room", [None, 2])
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_all_coalitions_above_a_threshold_are_found(room, data):
    both = data.draw(graphs(min_n=3, max_n=8))
    n = both[0].n
    prices = np.array([data.draw(PRICE) for _ in range(n)])
    every = list(itertools.combinations(range(n), 3))
    triples = data.draw(st.lists(st.sampled_from(every), unique=True, max_size=8))
    triple_prices = np.array([data.draw(PRICE) for _ in triples])
    threshold = -data.draw(PRICE) - 0.012345  # no profit is equal to it
    found, expected = above(*both, prices, triples, triple_prices, threshold, room)
    assert found == expected


@pytest.mark.parametrize("competition", [0.1, 0.3])
def test_larger_branches_with_better_splits_forget_nothing(competition):
    """With 12 participants who all give to each other, branches are split again."""
    assert pricing_module.LEAST_TO_SPLIT < 10
    for seed in range(4):
        both = random_graphs(12, 1.0, competition, seed)
        rng = np.random.default_rng(seed)
        prices = rng.random(12) * 3
        every = list(itertools.combinations(range(12), 3))
        triples = [every[k] for k in rng.permutation(len(every))[:30]]
        found, expected = above(*both, prices, triples, rng.random(30), -0.4)
        assert expected
        assert found == expected


def test_sweeps_find_the_best_split_of_a_chain():
    """a, b and c are worth 4 as a pair a-b and b-c each, and cost 1, 5 and 1.

    Halves give a and c 2 - 1 each, and b 4 - 5: together 2. Together they are worth 8 - 7 = 1, and
    so they are with the splits 1 for a and c, and 3 twice for b.
    """
    value = np.array([[0.0, 4, 0], [4, 0, 4], [0, 4, 0]])
    share, margin = value / 2, np.array([-1.0, -5, -1])
    candidates, start = np.arange(3), np.arange(4)
    top = np.zeros(3)
    bound_groups(share, margin, candidates, start, 3, top)
    assert top.tolist() == [1, 0, 1]
    for _ in range(30):
        sweep(value, share, margin, candidates, start, 3, np.zeros((3, 3)), np.zeros(3))
    bound_groups(share, margin, candidates, start, 3, top)
    assert top.sum() == pytest.approx(1)


@given(st.integers(0, 10**6), st.integers(2, 9))
@settings(max_examples=100, deadline=None)
def test_a_sweep_never_raises_the_bound_and_keeps_the_sums(seed, n):
    rng = np.random.default_rng(seed)
    value = np.triu(rng.random((n, n)) - 0.2, 1)
    start = np.array(sorted({0, n, *rng.integers(0, n, 3).tolist()}))
    group = np.searchsorted(start, np.arange(n), side="right")
    value[group[:, None] == group] = 0.0  # competitors
    value += value.T
    share, margin = value / 2, rng.random(n) - 1.0
    groups, candidates = len(start) - 1, np.arange(n)
    top, before = np.zeros(n), np.inf
    for _ in range(4):
        bound_groups(share, margin, candidates, start, groups, top)
        assert top[:groups].sum() <= before + 1e-12
        before = top[:groups].sum()
        assert np.allclose(share + share.T, value)
        sweep(value, share, margin, candidates, start, groups, np.zeros((n, n)), np.zeros(n))

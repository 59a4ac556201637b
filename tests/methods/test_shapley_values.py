"""Shapley values: by hand, and properties that hold for any values."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.methods.shapley_values import shapley_values


def game(members, seed, receivers=2):
    """Any values of all subsets, and the function that tells them."""
    rng = np.random.default_rng(seed)
    known = {
        frozenset(one): rng.normal(size=receivers)
        for size in range(1, members + 1)
        for one in itertools.combinations(range(members), size)
    }
    return known, lambda subsets: np.array([known[one] for one in subsets])


def test_three_members_by_hand():
    """v: a 1, b 2, c 0, ab 4, ac 1, bc 3, abc 6; the mean of six orders."""
    reached = {"a": 1, "b": 2, "c": 0, "ab": 4, "ac": 1, "bc": 3, "abc": 6}
    known = {frozenset("abc".index(one) for one in key): [v] for key, v in reached.items()}
    found = shapley_values(3, lambda subsets: np.array([known[one] for one in subsets], float))
    # a: (1 + 1 + 2 + 1 + 3 + 3) / 6 over abc, acb, bac, cab, bca, cba.
    np.testing.assert_allclose(found[:, 0], [11 / 6, 20 / 6, 5 / 6])


@given(st.integers(2, 9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_parts_sum_to_the_value_of_all(members, seed, drawn):
    known, values = game(members, seed)
    found = shapley_values(members, values, seed=drawn)
    np.testing.assert_allclose(found.sum(0), known[frozenset(range(members))], atol=1e-12)


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_members_that_can_be_exchanged_have_equal_parts(members, seed):
    known, _ = game(members, seed)
    swap = {0: 1, 1: 0}
    alike = {
        one: (row + known[frozenset(swap.get(k, k) for k in one)]) / 2 for one, row in known.items()
    }
    found = shapley_values(members, lambda subsets: np.array([alike[one] for one in subsets]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


def test_drawn_orders_repeat_by_seed_and_approach_the_exact_parts(monkeypatch):
    _, values = game(7, 3)
    one = shapley_values(7, values, seed=1)
    assert np.array_equal(one, shapley_values(7, values, seed=1))
    assert not np.array_equal(one, shapley_values(7, values, seed=2))
    many = shapley_values(7, values, seed=1, permutations=4000, tolerance=0.0)
    monkeypatch.setattr("fedegoists.methods.shapley_values.MOST_EXACT", 7)
    exact = shapley_values(7, values)
    assert np.abs(many - exact).max() < 0.1 < np.abs(exact).max()


def test_an_order_is_cut_off_where_nothing_more_is_to_come():
    asked = []

    def values(subsets):
        asked.extend(subsets)
        return np.ones((len(subsets), 1))

    found = shapley_values(8, values, seed=0)
    assert max(len(one) for one in asked if len(one) < 8) == 1
    np.testing.assert_allclose(found.sum(), 1)

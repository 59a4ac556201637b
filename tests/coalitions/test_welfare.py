"""Utilities and welfare: by hand, against their definitions, and exact beside large numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph
from fedegoists.coalitions.welfare import utilities, utilities_by, welfare, welfare_change_by
from tests import instances
from tests.instances import graphs

WEIGHTS = np.array([[0.0, 2.0, 4.0], [1.0, 0.0, 5.0], [3.0, 0.0, 0.0]])


def test_by_hand():
    """0 and 1 give each other 2 and 1; with 2 they give 4 + 5 and get 3."""
    assert utilities(WEIGHTS, [[0, 1], [2]]).tolist() == [1, 2, 0]
    assert welfare(WEIGHTS, [[0, 1], [2]]) == 3
    assert utilities(WEIGHTS, [[0, 1, 2]]).tolist() == [4, 2, 9]
    assert welfare(WEIGHTS, [[0, 1, 2]]) == 15
    graph = BenefitGraph(WEIGHTS)
    assert welfare_change_by(graph, [[0, 1], [2]], [[0, 1, 2]]) == 12
    assert welfare_change_by(graph, [[0, 1, 2]], [[0], [1], [2]]) == -15


@given(graphs(max_n=6), st.data())
@settings(max_examples=100, deadline=None)
def test_the_utility_of_a_coalition_is_the_sum_of_its_members(instance, data):
    benefit, _ = instance
    labels = data.draw(st.lists(st.integers(0, 2), min_size=benefit.n, max_size=benefit.n))
    groups = [[i for i, label in enumerate(labels) if label == k] for k in range(3)]
    partition = [group for group in groups if group]
    expected = pytest.approx(instances.welfare(partition, benefit), rel=1e-12)
    assert welfare(benefit.weights, partition) == expected
    assert welfare(benefit.entries, partition) == expected
    assert utilities(benefit.weights, partition).sum() == expected
    own = utilities(benefit.weights, partition)
    assert np.array_equal(utilities_by(benefit, partition), own)


def test_a_small_change_is_not_lost_beside_a_large_welfare():
    weights = np.zeros((3, 3))
    weights[0, 1] = weights[1, 0] = 1e16
    weights[1, 2] = 0.25
    assert welfare(weights, [[0, 1, 2]]) == welfare(weights, [[0, 1], [2]])
    assert welfare_change_by(BenefitGraph(weights), [[0, 1], [2]], [[0, 1, 2]]) == 0.25

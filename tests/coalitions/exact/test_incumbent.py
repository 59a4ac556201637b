"""When a value and a bound meet."""

import numpy as np

from fedegoists.coalitions.exact.incumbent import Incumbent, together


def test_bonuses_do_not_hide_what_welfare_could_gain():
    """Two pairs worth 2 each; by hand, the value is 4 · 1e12 + 4."""
    weights = np.zeros((4, 4))
    weights[0, 1] = weights[1, 0] = weights[2, 3] = weights[3, 2] = 1.0
    partition = [[0, 1], [2, 3]]
    value = 4e12 + 4
    assert together(partition) == 4
    assert Incumbent(weights, partition, value, 1e12).optimal
    # Half a unit of welfare is 1e-13 of the value, but an eighth of the welfare.
    incumbent = Incumbent(weights, partition, value + 0.5, 1e12)
    assert not incumbent.optimal
    assert 4.5 <= incumbent.welfare_bound < 4.6


def test_without_bonus_the_bound_is_about_welfare():
    weights = np.array([[0.0, 2.0], [1.0, 0.0]])
    incumbent = Incumbent(weights, [[0], [1]], 5.0)
    assert incumbent.welfare_bound == 5.0
    incumbent.offer([[0, 1]])
    assert incumbent.value == 3.0
    assert not incumbent.optimal
    incumbent.bound(2.0)
    assert incumbent.upper_bound == 3.0
    assert incumbent.optimal

"""The weights of contributors: the best ones on the simplex, and own trees where in doubt."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.learning.contributor_weights import chosen_weights, on_simplex
from fedegoists.learning.task import TASKS


def samples(n, seed=0):
    """A rule, binary targets that follow it, and three contributors: noise, the rule, noise."""
    generator = torch.Generator().manual_seed(seed)
    rule, noise, other = torch.randn(3, n, generator=generator)
    targets = (torch.rand(n, generator=generator) < (2 * rule).sigmoid()).float()
    return torch.stack([0.7 * noise, 2 * rule, 0.7 * other], 1)[..., None], targets


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
@settings(deadline=None)
def test_the_projection_is_on_the_simplex_and_no_point_of_it_is_nearer(values):
    vector = torch.tensor(values, dtype=torch.double)
    found = on_simplex(vector)
    assert found.min() >= 0
    assert found.sum().item() == pytest.approx(1)
    for corner in torch.eye(len(values), dtype=torch.double):
        # The angle towards every corner is at least a right one.
        assert (vector - found) @ (corner - found) <= 1e-9


def test_a_useful_contributor_is_found_and_useless_ones_are_not_used():
    contributions, targets = samples(2000)
    weights = chosen_weights(torch.zeros(1), contributions, targets, TASKS["binary"], 1.0)
    assert weights[1] > 0.85
    assert weights[2] < 0.1
    assert weights.sum().item() == pytest.approx(1)


def test_caution_keeps_own_trees_where_samples_are_few():
    """Others save about 0.4 a sample: eight samples are not worth a caution of 30."""
    contributions, targets = samples(8)
    task, zero = TASKS["binary"], torch.zeros(1)
    assert chosen_weights(zero, contributions, targets, task, 30.0).tolist() == [1.0, 0.0, 0.0]
    assert chosen_weights(zero, contributions, targets, task, 0.0)[0] < 1.0


def test_the_optimum_of_a_regression_by_hand():
    """With c = (0, t), w = (1 − a, a): loss s·(1 − a)²·m + caution·a/n, where s·m = 1/2.

    The derivative, −(1 − a) + caution/n, is zero at a = 1 − caution/n.
    """
    targets = torch.tensor([1.0, -1.0, 2.0, -2.0])
    contributions = torch.stack([torch.zeros(4), targets], 1)[..., None]
    found = chosen_weights(torch.zeros(1), contributions, targets, TASKS["regression"], 1.0)
    torch.testing.assert_close(found, torch.tensor([0.25, 0.75]), atol=1e-3, rtol=0)


def test_outputs_that_are_not_finite_and_missing_contributors_get_no_weight():
    contributions, targets = samples(50)
    contributions[:, 1] = torch.inf
    contributions[:, 2] = 0.0
    found = chosen_weights(torch.zeros(1), contributions, targets, TASKS["binary"], 1.0)
    assert found.tolist() == [1.0, 0.0, 0.0]
    nobody = chosen_weights(torch.zeros(1), contributions[:0], targets[:0], TASKS["binary"], 1.0)
    assert nobody.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_sample_of_weight_two_counts_as_two(task):
    contributions, targets = samples(40)
    copies = torch.arange(40).repeat_interleave(torch.arange(40) % 2 + 1)
    factors = (torch.arange(40) % 2 + 1) / 1.5  # 1 on average
    zero, of = torch.zeros(1), TASKS[task]
    found = chosen_weights(zero, contributions, targets, of, 2.0, factors)
    # The caution is shared by as many samples as there are: 60 instead of 40.
    both = chosen_weights(zero, contributions[copies], targets[copies], of, 3.0)
    torch.testing.assert_close(found, both, atol=1e-3, rtol=0)
    plain = chosen_weights(zero, contributions, targets, of, 2.0)
    assert (found - plain).abs().max() > 0.01

"""The weights of contributors: the best ones on the simplex, and own trees where in doubt."""

import numpy as np
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
def test_a_sample_that_counts_three_times_is_as_good_as_three(task):
    contributions, targets = samples(40)
    first, zero = torch.arange(40) < 20, torch.zeros(1)
    factors = torch.where(first, 1.5, 0.5)  # 1 on average
    weighted = chosen_weights(zero, contributions, targets, TASKS[task], 2.0, factors)
    copies = torch.cat([torch.arange(40), torch.arange(20), torch.arange(20)])
    # With twice the samples, the same caution is half of it for each.
    repeated = chosen_weights(zero, contributions[copies], targets[copies], TASKS[task], 4.0)
    torch.testing.assert_close(weighted, repeated, atol=1e-3, rtol=0)
    alike = chosen_weights(zero, contributions, targets, TASKS[task], 2.0)
    assert (weighted - alike).abs().max() > 0.01


def test_copies_of_a_patient_save_no_more_than_the_patient():
    contributions, targets = samples(40)
    task, zero = TASKS["binary"], torch.zeros(1)
    once = chosen_weights(zero, contributions, targets, task, 20.0)
    copies = contributions.repeat(3, 1, 1), targets.repeat(3)
    grouped = chosen_weights(zero, *copies, task, 20.0, groups=np.tile(np.arange(40), 3))
    torch.testing.assert_close(grouped, once, atol=1e-3, rtol=0)
    assert chosen_weights(zero, *copies, task, 20.0)[0] < once[0] - 0.05


def test_in_a_survival_task_events_save_loss():
    """Times follow the second contributor; without any event nothing is known."""
    generator = torch.Generator().manual_seed(0)
    rule, noise = torch.randn(2, 300, generator=generator)
    contributions = torch.stack([noise, 2 * rule], 1)[..., None]
    times = torch.exp(-2 * rule)
    task, zero = TASKS["survival"], torch.zeros(1)
    assert chosen_weights(zero, contributions, times, task, 1.0)[1] > 0.9
    assert chosen_weights(zero, contributions, -times, task, 1.0).tolist() == [1.0, 0.0]

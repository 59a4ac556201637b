"""Losses and metrics, worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedegoists.learning.task import TASKS, partial_likelihood


def test_an_error_is_told_in_the_units_of_the_target() -> None:
    outputs, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([2.0, 1.0])
    task = TASKS["regression"]
    assert task.score(outputs, targets) == 2.0
    # The targets were divided by 10: an error of 2 is one of 20.
    assert task.score(outputs, targets, 10.0) == 200.0
    assert task.loss(outputs, targets).item() == 2.0  # what is minimised has no units


def test_a_scale_changes_no_other_metric() -> None:
    outputs, targets = torch.tensor([[0.3], [0.1]]), torch.tensor([1.0, 0.0])
    assert TASKS["binary"].score(outputs, targets, 10.0) == 1.0
    assert math.isnan(TASKS["binary"].score(outputs[:1], targets[:1]))
    assert TASKS["binary"].loss(outputs, targets).item() == pytest.approx(0.6494, abs=1e-4)


def breslow(risks: torch.Tensor, targets: torch.Tensor) -> list[float]:
    """Return the parts of the partial likelihood as the textbook has them."""
    times = targets.abs()
    return [
        (torch.logsumexp(risks[times >= times[k]], 0) - risks[k]).item() if targets[k] > 0 else 0.0
        for k in range(len(targets))
    ]


TIMES = st.lists(
    st.sampled_from([1.0, 2.0, 2.0, 3.0, 5.0, -1.0, -2.0, -4.0]), min_size=1, max_size=8
)


@settings(max_examples=100, deadline=None)
@given(TIMES, st.integers(0, 9), st.integers(0, 3))
def test_the_partial_likelihood(times: list[float], seed: int, padding: int) -> None:
    targets = torch.tensor(times)
    risks = torch.randn(len(times), generator=torch.Generator().manual_seed(seed))
    events = max(1, int((targets > 0).sum()))
    expected = sum(breslow(risks, targets)) / events
    task = TASKS["survival"]
    assert task.loss(risks[:, None], targets).item() == pytest.approx(expected, abs=1e-4)
    # Padding changes nothing, whatever it holds.
    more = torch.cat([risks, torch.full((padding,), 9.0)])
    later = torch.cat([targets, torch.full((padding,), 2.0)])
    weights = torch.tensor([1 / len(times)] * len(times) + [0.0] * padding)
    assert task.loss(more[:, None], later, weights).item() == pytest.approx(expected, abs=1e-4)


def test_many_silos_at_once() -> None:
    risks = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([3.0, -3.0, 2.0, 2.0, -5.0, 1.0, 4.0]).repeat(4, 1)
    together = vmap(partial_likelihood)(risks, targets)
    alone = torch.stack([partial_likelihood(r, t) for r, t in zip(risks, targets, strict=True)])
    torch.testing.assert_close(together, alone)
    slopes = vmap(grad(lambda r, t: partial_likelihood(r, t).sum()))(risks, targets)
    assert slopes.isfinite().all()
    assert slopes.sum(1).abs().max() < 1e-4  # only differences of risks matter


def test_the_concordance_index_by_hand() -> None:
    targets = torch.tensor([2.0, 5.0, -3.0, -5.0])
    # Comparable: 2 before 5, 3+, 5+; 5 before 5+. Right: all, and the tie counts half.
    assert TASKS["survival"].score(torch.tensor([[3.0], [1.0], [2.0], [1.0]]), targets) == 3.5 / 4
    assert TASKS["survival"].score(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), targets) == 0.0
    assert math.isnan(TASKS["survival"].score(torch.zeros(2, 1), torch.tensor([-1.0, -2.0])))

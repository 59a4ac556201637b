"""Silos that fail or lie: the others' rows stay right."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.benefit import learn
from fedegoists.federation import Evaluate, Participant, Trained
from fedegoists.learning.models import build_model
from tests.benefit.consortia import OTHER, TASK, federation, regressions
from tests.benefit.test_learning_benefit import quick

HONEST = [0, 1, 3]  # the positions of a1, a2 and b; x is the one in between


def consortium():
    return regressions({"a1": TASK, "a2": TASK, "x": TASK, "b": OTHER}, train=120, seed=1)


def with_numbers(reply, change):
    """A reply with another gradient, or other parameters, where it has any."""
    numbers = {k: change(v) for k, v in vars(reply).items() if isinstance(v, torch.Tensor)}
    return reply.model_copy(update=numbers) if numbers else "nothing"


def broken(request, reply):
    return with_numbers(reply, lambda numbers: torch.full_like(numbers, torch.nan))


def constant(request, reply):
    return with_numbers(reply, torch.ones_like)


def scaled(request, reply):
    return with_numbers(reply, lambda numbers: 1e6 * numbers)


def silent(request, reply):
    raise ConnectionError("gone")


@pytest.mark.parametrize("estimator", ["hypernetwork", "transfer", "alignment", "curves"])
@pytest.mark.parametrize("behaviour", [broken, constant, scaled, silent])
def test_one_bad_silo_does_not_spoil_the_others_rows(estimator, behaviour):
    silos = federation(consortium(), behaviours={"x": behaviour})
    estimate = learn(silos, quick(estimator, repeats=2))
    weights = estimate.weights
    assert np.isfinite(weights).all()
    assert weights[1, 0] > weights[3, 0]  # a1 still draws on a2 more than on b
    assert weights[0, 1] > weights[3, 1]
    edges = {(source, target) for source, target, _ in estimate.graph().edges()}
    assert not edges & {("a1", "b"), ("a2", "b"), ("b", "a1"), ("b", "a2")}
    if behaviour in (broken, silent):
        assert estimate.absent == ("x",)
        assert estimate.failures[0].startswith("x: failed")
        assert ("gone" in estimate.failures[0]) == (behaviour is silent)  # the cause is told
        assert not any("x" in pair for pair in edges)


def test_honest_weights_hardly_change_when_a_silo_scales_its_gradients():
    honest = learn(federation(consortium()), quick("hypernetwork"))
    lied = learn(federation(consortium(), behaviours={"x": scaled}), quick("hypernetwork"))
    rows = np.ix_(HONEST, HONEST)
    assert np.abs(honest.weights - lied.weights)[rows].max() < 0.15


@pytest.mark.parametrize("estimator", ["hypernetwork", "transfer"])
def test_who_lies_to_look_useful_is_found_out_on_the_receivers_own_data(estimator):
    """The silo `x` has another task and returns what `a1` would: its own row, not a1's, is wrong.

    A liar may copy an honest silo's answers. Then it is worth to the others what that silo is. If
    it invents answers, every row is learned on the receiver's validation data, where inventions do
    not help: a useless silo cannot get more weight than an honest helper.
    """
    rng = torch.Generator().manual_seed(0)

    def inventing(request, reply):
        invented = with_numbers(
            reply, lambda numbers: torch.randn(numbers.shape, generator=rng) * numbers.norm()
        )
        if isinstance(invented, Trained):
            return invented.model_copy(update={"loss": 0.0})
        return invented.model_copy(update={"losses": (0.0,) * len(reply.losses)})

    data = regressions({"a1": TASK, "a2": TASK, "x": OTHER, "b": OTHER}, train=120, seed=2)
    estimate = learn(federation(data, behaviours={"x": inventing}), quick(estimator))
    weights = estimate.weights
    assert weights[2, 0] < 0.5 * weights[1, 0]
    assert weights[2, 1] < 0.5 * weights[0, 1]
    assert not any(s == "x" and t in ("a1", "a2") for s, t, _ in estimate.graph().edges())


def test_a_model_beyond_all_numbers_does_not_hide_the_others_from_a_row():
    """Its loss on a receiver's data is no number; what that one says of the others still counts."""

    def beyond(request, reply):
        if not isinstance(reply, Trained):
            return reply
        return reply.model_copy(update={"parameters": 1e11 * reply.parameters})

    network = build_model("mlp", 0, features=4)
    honest, lied = (
        learn(federation(consortium(), network, behaviours=behaviours), quick("transfer"))
        for behaviours in ({}, {"x": beyond})
    )
    assert lied.failures == ()
    rows = np.ix_(HONEST, HONEST)
    np.testing.assert_allclose(lied.weights[rows], honest.weights[rows], rtol=1e-3, atol=1e-4)
    assert not any(source == "x" for source, _, _ in lied.graph(threshold=0.0).edges())


@pytest.mark.parametrize(
    ("estimator", "more"),
    [("transfer", {}), ("pairs", {}), ("hypernetwork", {}), ("hypernetwork", {"clip": 5.0})],
)
def test_who_trains_but_is_never_heard_about_its_own_validation_data_has_no_edges(estimator, more):
    def training_only(request, reply):
        if request.operation == "evaluate" or reply.samples == 60:  # all of the validation data
            raise ConnectionError("gone")
        return reply

    silos = federation(consortium(), behaviours={"x": training_only})
    estimate = learn(silos, quick(estimator, steps=50, **more))
    assert estimate.absent == ("x",)
    assert (estimate.weights[:, 2] == 0).all()
    for graph in (estimate.graph(0.0), estimate.graph()):
        assert not any("x" in (source, target) for source, target, _ in graph.edges())
    assert (estimate.weights[np.ix_(HONEST, HONEST)] >= 0).all()
    if estimator != "pairs":
        assert estimate.weights[1, 0] > estimate.weights[3, 0]


def test_a_single_validation_sample_cannot_say_how_sure_it_is():
    """Both halves would be that sample, and their difference, zero, would mean certainty."""
    data = regressions({"a": TASK, "b": TASK, "x": TASK}, train=40)
    few = replace(data.silos[2], validation=data.silos[2].validation[:1])
    silos = federation(replace(data, silos=(*data.silos[:2], few)))
    estimate = learn(silos, quick("transfer"))
    assert estimate.absent == ("x",)
    assert "0.5 of 1 validation samples is none" in str(silos.call({X: HALF})[X])
    assert estimate.weights[0, 1] > 0


X = Participant("x")
HALF = Evaluate(parameters=torch.zeros(5), split="validation", share=0.5)

"""Sharpness-aware steps (SAM): by hand, on both engines, and where they are refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    LocalTerms,
    Participant,
    SimulatedFederation,
    Train,
    Trained,
    TrainSettings,
)
from fedegoists.learning.own_models import ModelParts
from fedegoists.learning.task import TASKS
from tests.federation.test_module_trainer import SETTINGS as OTHERS
from tests.federation.test_module_trainer import STACKABLE, replies
from tests.methods.hand import (
    CHAIN_START,
    HEAD,
    START,
    assert_close,
    chain_gradient,
    chains,
    descended,
    lines,
)
from tests.own_modules import CLASSES, FEATURES, own_silos

SILOS = lines((6, 3))
SETTINGS = TrainSettings(
    steps=3, batch_size=64, learning_rate=0.1, momentum=0.5, weight_decay=0.2, sam_radius=0.7
)


def asked(both, start, own=SETTINGS, **fields):
    vector = torch.tensor(start).float()
    request = Train(parameters=vector, settings=own, **fields)
    return list(both.call({Participant(name): request for name in SILOS.names}).values())


def ahead(gradient, w):
    """The gradient where the loss is higher: at a distance of 0.7 along the gradient here."""
    here = gradient(w)
    return gradient(w + 0.7 * here / np.linalg.norm(here))


def slope_of(k):
    return lambda w: SILOS.gradient(k, w)


def test_steps_take_the_gradient_at_moved_parameters():
    for both in SILOS.federations():
        for k, reply in enumerate(asked(both, START)):
            slope = slope_of(k)
            end = descended(lambda w, f=slope: ahead(f, w) + 0.2 * w, START, [0.1] * 3, 0.5)
            assert_close(reply.parameters, end)
            plain = descended(lambda w, f=slope: f(w) + 0.2 * w, START, [0.1] * 3, 0.5)
            assert abs(end - plain).max() > 0.01
            # Each gradient counts, and the loss is that of the models that train.
            assert reply.sample_passes == 2 * 3 * (6, 3)[k]
            (first,) = (asked(both, START, SETTINGS.changed(steps=1))[k].loss,)
            assert first == pytest.approx(SILOS.loss(k, START), rel=1e-4)


def test_terms_of_methods_are_added_where_the_step_begins():
    """A pull to an anchor and a correction have no part in the way to the second gradient."""
    anchor, more = np.array([1.0, 0.5, -1.0]), np.array([0.3, -0.4, 0.2])
    terms = LocalTerms(
        anchor=torch.tensor(anchor).float(), pull=2.0, correction=torch.tensor(more).float()
    )
    for both in SILOS.federations():
        for k, reply in enumerate(asked(both, START, terms=terms)):
            end = descended(
                lambda w, k=k: ahead(slope_of(k), w) + 0.2 * w + 2.0 * (w - anchor) + more,
                START,
                [0.1] * 3,
                0.5,
            )
            assert_close(reply.parameters, end)


def test_what_is_frozen_is_not_moved_along_the_gradient():
    def of_head(k):
        return lambda w: HEAD * chain_gradient(SILOS, k, w)

    for both in chains(SILOS):
        for k, reply in enumerate(asked(both, CHAIN_START, terms=LocalTerms(frozen=("body.",)))):
            end = descended(
                lambda w, k=k: HEAD * (ahead(of_head(k), w) + 0.2 * w),
                CHAIN_START,
                [0.1] * 3,
                0.5,
            )
            assert_close(reply.parameters, end)


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(STACKABLE),
    batch=st.integers(2, 60),
    passes=st.integers(1, 3),
    optimiser=st.sampled_from(["sgd", "adamw"]),
    precision=st.sampled_from(["float32", "bf16"]),
    seed=st.integers(0, 5),
)
def test_looped_and_stacked_silos_take_the_same_steps(
    name, batch, passes, optimiser, precision, seed
):
    if name in ("dropout", "batch norm"):  # parts of a padded batch have other masks
        passes = 1
    if name == "batch norm":  # its biases have gradients of rounding errors alone
        precision = "float32"
    if name == "batch norm" or precision == "bf16":  # Adam goes by the sign of gradients near zero
        optimiser = "sgd"
    own = OTHERS.changed(batch_size=batch, passes=passes, optimiser=optimiser, sam_radius=0.05)
    own = own.changed(precision=precision)
    looped, stacked = (
        replies(name, execution, Train, settings=own, seed=seed)
        for execution in ("looped", "stacked")
    )
    coarse = 1 if precision == "float32" else 100
    for one, other in zip(looped.values(), stacked.values(), strict=True):
        close = {"rtol": coarse * 1e-3, "atol": coarse * 2e-4}
        torch.testing.assert_close(one.parameters, other.parameters, **close)
        assert one.loss == pytest.approx(other.loss, rel=coarse * 1e-3)
        assert one.sample_passes == other.sample_passes


SEEN = []
"""What a pass of `Recorded` sees: both running means, noise, and the weights of its last layer."""


class Recorded(nn.Module):
    """A network with batch normalisation, noise and a running mean of its own."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.register_buffer("centre", torch.zeros(FEATURES))
        self.output = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        if self.training:
            noise, weight = torch.randn_like(x), self.output.weight.detach()
            own = (self.centre, self.norm.running_mean, noise, weight)
            SEEN.append([one.clone() for one in own])
            self.centre.mul_(0.5).add_(0.5 * x.detach().mean(0))
            x = x + 0.1 * noise
        return self.output(self.norm(x - self.centre))


def jittered(x):
    return x + 0.1 * torch.randn_like(x)


@pytest.mark.parametrize("passes", [1, 2])
def test_both_gradients_are_of_the_same_function(passes):
    """The second pass draws the same noise, and does not change running means again."""
    records = []
    for radius in (0.0, 0.05):
        torch.manual_seed(0)
        model = Recorded()
        parts = ModelParts(model, TASKS["classification"], jittered)
        silos = SimulatedFederation(own_silos("linear"), parts, execution="looped")
        row = silos.schema.flatten(dict(model.named_parameters()))
        own = OTHERS.changed(passes=passes, sam_radius=radius)
        SEEN.clear()
        (reply,) = silos.call({silos.participants[0]: Train(parameters=row, settings=own)}).values()
        assert isinstance(reply, Trained)
        assert len(SEEN) == 3 * passes * own.gradients_each_step
        records.append([*SEEN])
    plain, both = records
    of_first = [one for k, one in enumerate(both) if k // passes % 2 == 0]
    of_second = [one for k, one in enumerate(both) if k // passes % 2 == 1]
    for one, two, before in zip(of_first, of_second, plain, strict=True):
        assert torch.equal(one[1], two[1])  # of batch normalisation: not tracked in training
        assert torch.equal(one[2], two[2])
        assert not torch.equal(one[3], two[3])
        # Running means are those of a training with one gradient in each step.
        assert torch.equal(one[0], before[0])


def test_without_a_gradient_there_is_no_direction():
    """Parameters at which the gradient vanishes stay where they are, and finite."""
    for both in SILOS.federations():
        best = [
            np.linalg.lstsq(x, t, rcond=None)[0]
            for x, t in zip(SILOS.designs["train"], SILOS.targets["train"], strict=True)
        ]
        calm = SETTINGS.changed(weight_decay=0.0, sam_radius=1e-3)
        for k, start in enumerate(best):
            assert abs(asked(both, start, calm)[k].parameters.numpy() - start).max() < 0.01


def test_no_silo_may_claim_more_samples_than_both_gradients_take():
    lying = {"a": lambda _, reply: reply.model_copy(update={"sample_passes": 37})}
    for both in SILOS.federations(behaviours=lying):
        failed, fine = asked(both, START)
        assert "claims 37 sample passes; there are 36 in a round" in failed.detail
        assert fine.sample_passes == 18


def test_privacy_refuses_two_gradients_of_a_batch():
    with pytest.raises(SettingsError, match="privacy accounts for one; leave out sam_radius"):
        TrainSettings(clip=1.0, noise=1.0, sam_radius=0.1)
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(SettingsError, match="sam_radius is"):
            TrainSettings(sam_radius=wrong)

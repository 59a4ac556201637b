"""Sharpness-aware steps: by hand, on both engines, and where they are refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import SettingsError
from fedegoists.federation import LocalTerms, Participant, Train, TrainSettings
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

SILOS = lines((6, 3))
SETTINGS = TrainSettings(
    steps=3, batch_size=64, learning_rate=0.1, momentum=0.5, weight_decay=0.2, sharpness=0.7
)


def request(start, **changes):
    return Train(parameters=torch.tensor(start).float(), settings=SETTINGS, **changes)


def sharp(gradient, w):
    """The gradient where the loss is higher: at a distance of 0.7 along the gradient here."""
    here = gradient(w)
    return gradient(w + 0.7 * here / np.linalg.norm(here))


def test_steps_take_the_gradient_at_moved_parameters():
    for both in SILOS.federations():
        sent = {Participant(name): request(START) for name in SILOS.names}
        for k, reply in enumerate(both.call(sent).values()):
            slope = lambda w, k=k: sharp(lambda v: SILOS.gradient(k, v), w) + 0.2 * w  # noqa: E731
            assert_close(reply.parameters, descended(slope, START, [0.1] * 3, 0.5))
            flat = descended(lambda w, k=k: SILOS.gradient(k, w) + 0.2 * w, START, [0.1] * 3, 0.5)
            assert abs(reply.parameters.numpy() - flat).max() > 0.01
            # Each gradient counts, and the loss is that of the models that train.
            assert reply.sample_passes == 2 * 3 * (6, 3)[k]
    assert TrainSettings().gradients_each_step == 1


def test_what_is_frozen_is_not_moved_along_the_gradient():
    terms = LocalTerms(frozen=("body.",))
    for both in chains(SILOS):
        sent = {Participant(name): request(CHAIN_START, terms=terms) for name in SILOS.names}
        for k, reply in enumerate(both.call(sent).values()):
            slope = lambda w, k=k: (
                HEAD
                * (  # noqa: E731
                    sharp(lambda v: HEAD * chain_gradient(SILOS, k, v), w) + 0.2 * w
                )
            )
            assert_close(reply.parameters, descended(slope, CHAIN_START, [0.1] * 3, 0.5))


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from([name for name in STACKABLE if name not in ("batch norm", "residual")]),
    batch=st.integers(2, 60),
    passes=st.integers(1, 3),
    optimiser=st.sampled_from(["sgd", "adamw"]),
    seed=st.integers(0, 5),
)
def test_looped_and_stacked_silos_take_the_same_steps(name, batch, passes, optimiser, seed):
    if name == "dropout":  # parts of a padded batch have other masks
        passes = 1
    own = OTHERS.changed(batch_size=batch, passes=passes, optimiser=optimiser, sharpness=0.05)
    looped, stacked = (
        replies(name, execution, Train, settings=own, seed=seed)
        for execution in ("looped", "stacked")
    )
    for one, other in zip(looped.values(), stacked.values(), strict=True):
        torch.testing.assert_close(one.parameters, other.parameters, rtol=1e-3, atol=2e-4)
        assert one.loss == pytest.approx(other.loss, rel=1e-3)
        assert one.sample_passes == other.sample_passes


def test_without_a_gradient_there_is_no_direction():
    """Parameters at which the gradient vanishes stay where they are, and finite."""
    for both in SILOS.federations():
        best = [
            np.linalg.lstsq(x, t, rcond=None)[0]
            for x, t in zip(SILOS.designs["train"], SILOS.targets["train"], strict=True)
        ]
        calm = SETTINGS.changed(weight_decay=0.0, sharpness=1e-3)
        sent = {
            Participant(name): request(best[k]).changed(settings=calm)
            for k, name in enumerate(SILOS.names)
        }
        for k, reply in enumerate(both.call(sent).values()):
            assert abs(reply.parameters.numpy() - best[k]).max() < 0.01


def test_privacy_refuses_two_gradients_of_a_batch():
    with pytest.raises(SettingsError, match="privacy accounts for one; leave out sharpness"):
        TrainSettings(clip=1.0, noise=1.0, sharpness=0.1)

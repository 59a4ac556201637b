"""FedPer, FedRep and FedBABU by hand: two rounds with a head and a body, from their papers."""

from dataclasses import replace

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.methods import METHODS, FedBABU, FedPer, FedRep
from tests.methods.hand import (
    BODY,
    CHAIN_START,
    HEAD,
    assert_close,
    chain_gradient,
    chains,
    descended,
    lines,
    played,
    whole_models,
)

SETTINGS = TrainSettings(steps=4, batch_size=64, learning_rate=0.1, momentum=0.5)
GROUP = [["a", "b"], ["c"]]
SILOS = lines((6, 3, 4))


def moved(k, w, steps, part):
    """Some steps of silo k in a part of the parameters."""
    return descended(lambda v: part * chain_gradient(SILOS, k, v), w, [0.1] * steps, 0.5)


def two_rounds(local):
    """Both members train in some way, then body ← (6 body_a + 3 body_b)/9, and heads stay."""
    models, expected = [CHAIN_START, CHAIN_START], []
    for _ in range(2):
        trained = [local(k, models[k]) for k in range(2)]
        body = (6 * trained[0] + 3 * trained[1]) / 9
        models = [BODY * body + HEAD * own for own in trained]
        expected.append(models)
    return expected


CASES = {
    # Head and body at once.
    "fedper": (FedPer, {}, lambda k, w: moved(k, w, 4, BODY + HEAD)),
    # A quarter of the four steps with the head, then three with the body.
    "fedrep": (FedRep, {"head": 0.25}, lambda k, w: moved(k, moved(k, w, 1, HEAD), 3, BODY)),
    # The body alone; the head remains as it was.
    "fedbabu": (FedBABU, {}, lambda k, w: moved(k, w, 4, BODY)),
}


@pytest.mark.parametrize("name", CASES)
def test_two_rounds_by_hand(name):
    """As PFLlib; but for FedRep it takes the steps with the head in addition."""
    kind, given, local = CASES[name]
    method, expected = kind(SETTINGS, **given), two_rounds(local)
    alone = moved(2, moved(2, CHAIN_START, 4, BODY + HEAD), 4, BODY + HEAD)
    for both in chains(SILOS):
        states, reports = played(method, both, GROUP, 2, CHAIN_START)
        models = whole_models(method, both, states[2])
        np.testing.assert_allclose(models[:2], expected[1], rtol=2e-4, atol=2e-6)
        # Alone one trains the whole model, exactly as Local does, and keeps its head, too.
        np.testing.assert_allclose(models[2], alone, rtol=2e-4, atol=2e-6)
        # The head does not travel: two numbers of four bytes each way.
        assert reports[1].bytes_sent == reports[1].bytes_received == {"a": 8, "b": 8}
        assert reports[1].sample_passes == {"a": 24, "b": 12, "c": 16}
        # The server holds the first head in the place of heads, which it never sees.
        assert_close(states[2].parameters[:, 2:], [CHAIN_START[2:]] * 3)


def test_members_of_a_coalition_have_one_body_and_different_heads():
    for both in chains(SILOS):
        states, _ = played(FedPer(SETTINGS), both, GROUP, 2, CHAIN_START)
        a, b, _ = whole_models(FedPer(SETTINGS), both, states[2])
        assert (a[:2] == b[:2]).all()
        assert (a[2:] != b[2:]).all()


@pytest.mark.parametrize("name", CASES)
def test_a_model_without_body_or_head_is_refused(name):
    method = METHODS[name](SETTINGS)
    for both in SILOS.federations():  # nothing but an output layer
        with pytest.raises(SettingsError, match=f"{name}: silos keep output. and share the rest"):
            played(method, both, GROUP, 1)
    for both in chains(SILOS):
        other = replace(method, personal=("head.",))
        with pytest.raises(SettingsError, match=r"this model has only body\.weight, output"):
            played(other, both, GROUP, 1, CHAIN_START)


def test_a_round_of_one_step_trains_the_head_alone():
    once = SETTINGS.changed(steps=1)
    for both in chains(SILOS):
        states, _ = played(FedRep(once), both, [["a", "b", "c"]], 1, CHAIN_START)
        assert_close(states[1].parameters[:, :2], [CHAIN_START[:2]] * 3)
        models = whole_models(FedRep(once), both, states[1])
        np.testing.assert_allclose(
            models, [moved(k, CHAIN_START, 1, HEAD) for k in range(3)], rtol=2e-4, atol=2e-6
        )

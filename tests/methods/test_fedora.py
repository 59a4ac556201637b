"""FedORA by hand."""

import math

import numpy as np
import pytest
import torch

from fedegoists.federation import TrainSettings
from fedegoists.methods import FedORA, Local
from tests.methods.hand import START, Lines, assert_close, lines, played
from tests.silos import groups

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.5)


def propagation(silos: Lines, members, p: float, neighbours: int):
    """(1−p)(I − pS)⁻¹ from the top left singular vectors of the samples [x; y]."""
    directions = []
    for k in members:
        x, y = silos.designs["train"][k][:, :2], silos.targets["train"][k]
        labels = y[:, None] if silos.data.classes is None else np.stack([1 - y, y], 1)
        directions.append(np.linalg.svd(np.hstack([x, labels]).T)[0][:, 0])
    similarity = np.exp(10 * np.abs(np.array(directions) @ np.array(directions).T))
    np.fill_diagonal(similarity, 0)
    for row in similarity:
        row[np.argsort(row)[:-neighbours]] = 0
    s = similarity / similarity.sum(1, keepdims=True)
    return (1 - p) * np.linalg.inv(np.eye(len(s)) - p * s)


def pulled(silos: Lines, k: int, w, anchor, pull: float):
    """Three steps with momentum 0.5, and in each a tenth of the pull beside the momentum."""
    speed = np.zeros(3)
    for _ in range(3):
        speed = 0.5 * speed + silos.gradient(k, w)
        w = w - 0.1 * speed - 0.1 * pull * (w - anchor)
    return w


def test_three_rounds_by_hand():
    """The pull is exp((ℓ_own − ℓ_propagated)/2) of validation losses where that is above one.

    Beside the momentum, as in public code. That adds up the losses of batches, where these are mean
    losses, and pulls with strength one where both are equal, as they are in the first round.
    """
    silos = lines((6, 3, 4), slopes=[[1.0, 2.0], [2.0, 1.0], [-1.0, 3.0]])
    matrix = propagation(silos, range(3), 0.6, 1)
    own, spread = [START] * 3, [START] * 3
    expected, pulls = [], []
    for _ in range(3):
        gains = [
            silos.loss(k, own[k], "validation") - silos.loss(k, spread[k], "validation")
            for k in range(3)
        ]
        pulls += [math.exp(gain / 2) if gain > 0 else 0.0 for gain in gains]
        own = [pulled(silos, k, own[k], spread[k], pulls[k - 3]) for k in range(3)]
        spread = list(matrix @ own)
        expected.append((own, spread))
    # Own and propagated models are the same at first; later some are drawn and others are not.
    assert pulls[:3] == [0, 0, 0]
    assert 0 < sum(pull > 0 for pull in pulls[3:]) < 6
    method = FedORA(SETTINGS, propagation=0.6, neighbours=1)
    for federation in silos.federations():
        states, reports = played(method, federation, [["a", "b", "c"]], 3)
        assert_close(states[0].tensors["propagation"], matrix)
        for state, (own, spread) in zip(states[1:], expected, strict=True):
            assert_close(state.parameters, own)
            assert_close(state.tensors["propagated"], spread)
        assert reports[0].sample_passes == {"a": 18, "b": 9, "c": 12}
        assert reports[0].bytes_sent == reports[0].bytes_received == dict.fromkeys("abc", 12)


def test_labels_are_one_hot_and_two_neighbours_are_kept():
    silos = lines((6, 4, 5, 7), positives=(3, 0, 4, 2))
    for federation in silos.federations():
        state = FedORA().start(federation, groups([["a", "b", "c", "d"]]), torch.zeros(4, 3), 0)
        assert_close(state.tensors["propagation"], propagation(silos, range(4), 0.8, 2))


def test_coalitions_of_one_and_two():
    """Two have only each other: S swaps them, and P = 0.2 (I − 0.8 S)⁻¹ = [[5, 4], [4, 5]]/9."""
    silos = lines((6, 3, 4))
    for federation in silos.federations():
        states, _ = played(FedORA(SETTINGS), federation, [["a", "c"], ["b"]], 2)
        assert_close(states[0].tensors["propagation"] * 9, [[5, 0, 4], [0, 9, 0], [4, 0, 5]])
        a, _, c = states[1].parameters.numpy()
        assert_close(states[1].tensors["propagated"][0], (5 * a + 4 * c) / 9)
        alone, _ = played(Local(SETTINGS), federation, [["a", "c"], ["b"]], 2)
        assert_close(states[2].parameters[1], alone[2].parameters[1].numpy())


def test_a_step_never_goes_further_than_half_the_way():
    """A gain of 100 in the loss would be a pull of e⁵⁰; 0.5/rate is the most."""
    silos = lines((6, 3))
    far = np.array([300.0, 100.0, 50.0])
    settings = TrainSettings(steps=1, batch_size=64, learning_rate=0.01, momentum=0.0)
    for federation in silos.federations():
        state = FedORA(settings).start(
            federation, groups([["a", "b"]]), torch.tensor(np.array([far] * 2)).float(), 0
        )
        near = torch.tensor(np.array([START] * 2)).float()
        state = type(state)(0, {**state.tensors, "propagated": near})
        after, _ = FedORA(settings).round(federation, groups([["a", "b"]]), state, 0)
        for k in range(2):
            assert silos.loss(k, far, "validation") > silos.loss(k, START, "validation") + 100
            moved = far - 0.01 * silos.gradient(k, far) - 0.5 * (far - START)
            assert_close(after.parameters[k], moved)


@pytest.mark.parametrize(
    "direction",
    [None, "up", torch.tensor([math.nan, 0, 1]), torch.ones(2), torch.ones(1, 3)],
)
def test_who_has_no_usable_direction_stays_apart(direction):
    """One silo's nonsense must not stop the others."""

    def nonsense(request, reply):
        described = request.operation == "describe"
        return reply.model_copy(update={"direction": direction}) if described else reply

    silos = lines((6, 3, 4))
    for federation in silos.federations(behaviours={"b": nonsense}):
        states, _ = played(FedORA(SETTINGS), federation, [["a", "b", "c"]], 1)
        assert_close(states[0].tensors["propagation"] * 9, [[5, 0, 4], [0, 9, 0], [4, 0, 5]])
        assert torch.isfinite(states[1].parameters).all()

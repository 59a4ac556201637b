"""FedDBE by hand."""

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods import FedDBE, Local
from fedegoists.methods.feddbe import shifted_bias
from tests.methods.hand import (
    CHAIN_START,
    Chain,
    assert_close,
    chain_gradient,
    chains,
    descended,
    lines,
    played,
)
from tests.methods.test_representation_measures import outputs_of
from tests.silos import Line, simulated

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.5)
GROUP = [["a", "b"], ["c"]]
SILOS = lines((6, 3, 4), slopes=[[1.0, 2.0], [-2.0, 1.0], [-1.0, 3.0]])
FIVE = lines((6, 3, 4, 5, 7))
KAPPA = 0.7


def slope(k, v, mean):
    """Of the mean of (o (z + s) + c − t)² + κ/2 (z̄ − m)², with z = b · x; s is the last number."""
    x, t = SILOS.designs["train"][k][:, :2], SILOS.targets["train"][k]
    z = x @ v[:2]
    error = 2 * (v[2] * (z + v[4]) + v[3] - t) / len(t)
    held = KAPPA * (z.mean() - mean) * x.mean(0)
    head = [error @ (z + v[4]), error.sum(), v[2] * error.sum()]
    return np.array([*(v[2] * x.T @ error + held), *head])


def by_hand(rounds):
    """After a round alone, which tells the means: all members together, each with its shift.

    Public code follows z̄ with a running mean over batches and trains the shift without momentum;
    here z̄ is that of a batch, and the means are over all samples after the round.
    """
    alone = [
        descended(lambda v, k=k: chain_gradient(SILOS, k, v), CHAIN_START, [0.1] * 3, 0.5)
        for k in range(2)
    ]
    told = [(SILOS.designs["train"][k][:, :2] @ alone[k][:2]).mean() for k in range(2)]
    mean, shared, shifts = (6 * told[0] + 3 * told[1]) / 9, CHAIN_START, [0.0, 0.0]
    found = [(CHAIN_START, shifts, alone)]
    for _ in range(rounds - 1):
        ends = [
            descended(
                lambda v, k=k: slope(k, v, mean), np.array([*shared, shifts[k]]), [0.1] * 3, 0.5
            )
            for k in range(2)
        ]
        shared = (6 * ends[0][:4] + 3 * ends[1][:4]) / 9
        shifts = [end[4] for end in ends]
        models = [shared + np.array([0, 0, 0, shared[2] * shift]) for shift in shifts]
        found.append((shared, shifts, models))
    return mean, found


def test_three_rounds_by_hand():
    mean, expected = by_hand(3)
    for both in chains(SILOS):
        states, reports = played(FedDBE(SETTINGS, kappa=KAPPA), both, GROUP, 3, CHAIN_START)
        assert_close(states[1].tensors["mean"][:2], [[mean]] * 2)
        for state, (shared, shifts, models) in zip(states[1:], expected, strict=True):
            assert_close(state.tensors["shared"][:2], [shared] * 2)
            assert_close(state.tensors["shift"][:2, 0], shifts)
            assert_close(state.parameters[:2], models)
        alone, _ = played(Local(SETTINGS), both, GROUP, 3, CHAIN_START)
        assert torch.equal(states[3].parameters[2], alone[3].parameters[2])
        assert not any(report.failures for report in reports)
        # Model and shift each way, and the mean; at first, two models and two gradients more.
        assert reports[2].bytes_sent == {"a": 20, "b": 20}
        assert reports[2].bytes_received == {"a": 24, "b": 24}
        assert reports[0].bytes_sent == {"a": 20 + 32, "b": 20 + 32}
        assert reports[0].sample_passes == {"a": 18 + 12, "b": 9 + 6, "c": 12}


def test_each_coalition_has_its_own_mean():
    for both in chains(FIVE):
        states, _ = played(FedDBE(SETTINGS), both, [["a", "d"], ["c"], ["b", "e"]], 1, CHAIN_START)
        told = []
        for k, model in enumerate(states[1].parameters.double().numpy()):
            told.append((FIVE.designs["train"][k][:, :2] @ model[:2]).mean())
        first, second = (6 * told[0] + 5 * told[3]) / 11, (3 * told[1] + 7 * told[4]) / 10
        expected = [[first], [second], [0.0], [first], [second]]
        assert_close(states[1].tensors["mean"], expected)


def test_a_shift_is_a_bias_once_models_are_trained():
    model = build_model("mlp", 0, features=4, outputs=3)
    schema = ParameterSchema.of(model)
    row, x = schema.drawn(2), torch.randn(5, 4)
    shift = torch.randn(1, model.output.in_features)
    wanted, _ = outputs_of(model, row, x, lambda z: z + shift)
    found, _ = outputs_of(model, shifted_bias(schema, row[None], shift)[0], x)
    torch.testing.assert_close(found, wanted)


def test_a_silo_with_limits_on_single_samples_takes_no_part():
    """The others train as if it were not there."""
    for both in chains(SILOS):
        private = SETTINGS.changed(clip=1.0, noise=0.1)
        _, reports = played(FedDBE(private), both, GROUP, 1, CHAIN_START)
        assert {one.participant.name for one in reports[0].failures} == {"a", "b"}
        assert all("no privacy" in one.detail for one in reports[0].failures)


@pytest.mark.parametrize(
    ("model", "personal", "why"),
    [
        (Line(2), (), "above other layers"),
        (Chain(), ("output.",), "must not be personal"),
    ],
)
def test_models_without_representations_are_refused(model, personal, why):
    method = FedDBE(SETTINGS, personal=personal)
    federation = simulated(SILOS.data, model)
    with pytest.raises(SettingsError, match=why):
        played(method, federation, GROUP, 1, federation.schema.drawn(0).numpy())

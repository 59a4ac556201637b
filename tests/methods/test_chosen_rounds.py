"""Which round's model a participant keeps: by the metric of its validation data, or by its loss."""

import numpy as np
import pytest
import torch
from torch import nn

from fedegoists.federation import (
    Candidate,
    Deliver,
    Delivered,
    Participant,
    SimulatedFederation,
    TrainSettings,
)
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.methods import METHODS, RunSettings, run
from fedegoists.methods.method_run import fine_tune

NAMES = (Participant("a"), Participant("b"))
FAST = TrainSettings(steps=5, batch_size=16, learning_rate=0.5, momentum=0.0)


@pytest.fixture(scope="module")
def silos():
    """Noisy labels and a steep rate: probabilities become too sure while their order improves."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(240, 6)).astype(np.float32)
    y = (x[:, 0] + 1.5 * rng.normal(size=240) > 0).astype(np.int64)
    parts = [
        SiloIndices(one.name, *np.split(np.arange(120 * k, 120 * k + 120), [50, 90]))
        for k, one in enumerate(NAMES)
    ]
    data = SiloedData("noisy", "binary", Samples((x,), y), tuple(parts), 2, "", ())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    return SimulatedFederation(data, model), model


def outcome_by(silos, choose_by):
    federation, model = silos
    start = federation.schema.flatten(dict(model.named_parameters())).expand(2, -1).clone()
    settings = RunSettings(rounds=12, seed=0, choose_by=choose_by)
    return run(METHODS["local"](FAST), federation, [(one,) for one in NAMES], start, settings)


def best_rounds(outcome, metric, sign):
    """The round with the best validation value of each participant, the start left out."""
    found = {}
    for row in outcome.rows:
        if (row.split, row.metric) == ("validation", metric) and row.round > 0:
            value = (sign * row.value, -row.round)
            found[row.participant] = max(found.get(row.participant, (-np.inf, 0)), value)
    return [-found[one][1] for one in NAMES]


def test_the_loss_decides_where_it_is_asked_for(silos):
    by_loss, by_metric = outcome_by(silos, "loss"), outcome_by(silos, "metric")
    assert by_loss.best_round == best_rounds(by_loss, "loss", -1)
    assert by_loss.best_round != by_metric.best_round  # or the test would show nothing
    tuned = fine_tune(METHODS["local"](FAST), silos[0], by_loss, FAST, 4, choose_by="loss")
    losses = {
        (row.participant, row.round): row.value
        for row in tuned.rows
        if (row.split, row.metric) == ("validation", "loss")
    }
    for one, chosen in zip(NAMES, tuned.best_round, strict=True):
        assert losses[one, chosen] == min(losses[one, k] for k in range(5))


def test_a_silo_chooses_among_models_by_the_same_measure(silos):
    """A model with the better order of its outputs, and one with the better probabilities."""
    federation, _ = silos
    x = torch.zeros(federation.schema.size)
    outcome = outcome_by(silos, "metric")
    steep = 30.0 * outcome.best[0]  # about the same order, and far too sure
    models = {"local": x, "fedavg": steep}
    replies = {}
    for choose_by in ("metric", "loss"):
        request = Deliver(
            parameters=torch.stack(list(models.values())),
            candidates=tuple(Candidate(method=name, round=1) for name in models),
            choose_by=choose_by,
        )
        replies[choose_by] = federation.deliver({NAMES[0]: request})[NAMES[0]]
    assert replies == {
        "metric": Delivered(kept=True, method="fedavg"),
        "loss": Delivered(kept=True, method="local"),
    }

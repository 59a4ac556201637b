"""Means of the models before and after fine-tuning, by hand."""

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.methods import FedAvg, FedPer
from fedegoists.methods.method_run import RunSettings, fine_tune, run
from reproduction.interpolation import interpolate
from tests.methods.hand import START, chains, lines
from tests.silos import groups

SETTINGS = TrainSettings(steps=2, batch_size=64, learning_rate=0.1, momentum=0.0)


def trained(method, federation, rate=0.3):
    coalitions = groups([["a", "b"], ["c"]])
    start = torch.tensor(START[: federation.schema.size], dtype=torch.float32)
    start = start.repeat(len(federation.participants), 1)
    before = run(method, federation, coalitions, start, RunSettings(rounds=2, seed=0))
    tuning = SETTINGS.changed(steps=3, learning_rate=rate)
    return before, fine_tune(method, federation, before, tuning, 2)


def test_every_mean_is_judged_and_the_best_on_validation_data_is_kept():
    silos = lines((6, 3, 4), seed=0)
    for federation in silos.federations():
        method = FedAvg(SETTINGS)
        before, after = trained(method, federation)
        rows_before = len(after.rows)
        found = interpolate(method, federation, before, after)
        assert len(after.rows) == rows_before  # fine-tuning stays what it was
        start, end = before.best.double().numpy(), after.state.parameters.double().numpy()
        for k in range(3):
            wanted = ("abc"[k], "validation", "loss")
            path = [
                row.value
                for row in after.rows
                if (row.participant.name, row.split, row.metric) == wanted
            ]
            means = [(1 - share) * start[k] + share * end[k] for share in (0.25, 0.5, 0.75)]
            losses = [*path, *(silos.loss(k, mean, "validation") for mean in means)]
            assert found.best_score[k][1] == pytest.approx(-min(losses), rel=1e-4)
            assert found.best_round[k] == int(np.argmin(losses))
            if found.best_round[k] > 2:
                kept = found.best[k].double().numpy()
                np.testing.assert_allclose(kept, means[found.best_round[k] - 3], rtol=1e-4)
        assert {3, 4} <= set(found.best_round)  # means are among what is kept
        assert found.spent == after.spent


def test_parts_that_stay_at_home_cannot_be_mixed_here():
    federation = next(chains(lines((6, 3, 4))))
    method = FedPer(SETTINGS, ("output.",))
    start = torch.tensor([0.3, -0.2, 0.8, 0.1]).repeat(3, 1)
    coalitions = groups([["a", "b"], ["c"]])
    before = run(method, federation, coalitions, start, RunSettings(rounds=1, seed=0))
    after = fine_tune(method, federation, before, SETTINGS, 1)
    with pytest.raises(SettingsError, match="fedper: parts of the models stay in their silos"):
        interpolate(method, federation, before, after)

"""The search for weight decays."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.training.decay_search import DECAYS, searched_decays, searched_decays_together
from fedegoists.training.decisions import Decisions
from fedegoists.training.repetitions import Repetitions, Wanted, method_of
from tests.silos import simulated

ROWS = 60


def silos(noise: float, features: int = 20) -> SiloedData:
    """Two silos with one true linear model; the last third of the rows is for validation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4 * ROWS, features)).astype(np.float32)
    y = x @ rng.normal(size=features) / features**0.5 + noise * rng.normal(size=4 * ROWS)
    parts = [
        SiloIndices(name, own[:40], own[40:110], own[110:])
        for name, own in (("a", np.arange(2 * ROWS)), ("b", np.arange(2 * ROWS, 4 * ROWS)))
    ]
    samples = Samples((x,), y.astype(np.float32))
    return SiloedData("line", "regression", samples, tuple(parts), None, "", ())


def repetitions(noise: float) -> Repetitions:
    return Repetitions.simulated({0: silos(noise)}, steps=600, device="cpu", model="linear")


def test_noise_asks_for_more_weight_decay_and_clean_data_for_none():
    clean, noisy = (searched_decays(repetitions(noise))[0] for noise in (0.0, 3.0))
    assert clean == min(DECAYS)
    assert noisy >= 0.3


def test_what_is_found_is_the_best_of_those_tried_and_nothing_is_left_behind():
    data, told = silos(1.0), []
    before = repetitions(1.0)
    (found,) = searched_decays(before, lambda done, total: told.append((done, total))).values()
    assert searched_decays(before) == {0: found}
    assert told == [(k, len(DECAYS)) for k in range(len(DECAYS))]
    # By hand: ridge regression minimises the same loss, mean squared error / 2 + decay / 2 ‖w‖²,
    # up to its offset, on which the decay is weaker and which is near zero here.
    errors = {}
    for decay in DECAYS:
        own = []
        for silo in data.silos:
            x, y = (data.samples.inputs[0][silo.train], data.samples.targets[silo.train])
            # The loss of a regression is the squared error, so its gradient has a factor of two.
            w = np.linalg.solve(2 * x.T @ x / len(x) + decay * np.eye(x.shape[1]), 2 * x.T @ y / 40)
            rest = data.samples.inputs[0][silo.validation] @ w
            own.append(np.mean((rest - data.samples.targets[silo.validation]) ** 2))
        errors[decay] = np.mean(own)
    assert found == min(errors, key=lambda one: errors[one])


def test_every_repetition_has_its_own():
    both = {0: silos(0.0), 1: silos(3.0)}
    found = searched_decays(Repetitions.simulated(both, steps=600, device="cpu", model="linear"))
    assert found[0] < found[1]


def test_a_silo_that_does_not_tell_is_not_left_out():
    before = repetitions(1.0)

    def silent(request, reply):
        if isinstance(request, Evaluate):
            raise SettingsError("not told")
        return reply

    plain = simulated({0: silos(1.0)}, torch.nn.Linear(20, 1))
    some = simulated({0: silos(1.0)}, torch.nn.Linear(20, 1), {plain.participants[0]: silent})
    start = torch.zeros(len(some.participants), 21)
    with pytest.raises(SettingsError, match="answer of every silo about its validation data"):
        searched_decays(Repetitions(some, start, before.defaults, {}))


def test_a_coalition_needs_less_weight_decay_than_its_members_alone():
    """Six silos with one model have six times the samples of each."""
    rng = np.random.default_rng(3)
    features, count, own = 20, 6, 40
    x = rng.normal(size=(count * (own + 60), features)).astype(np.float32)
    y = x @ rng.normal(size=features) / features**0.5 + 1.5 * rng.normal(size=len(x))
    parts = []
    for k, rows in enumerate(np.split(np.arange(len(x)), count)):
        parts.append(SiloIndices(f"s{k}", rows[:own], rows[own:-1], rows[-1:]))
    samples = Samples((x,), y.astype(np.float32))
    data = SiloedData("line", "regression", samples, tuple(parts), None, "", ())
    whole = Repetitions.simulated({0: data}, steps=600, device="cpu", model="linear")
    alone = searched_decays(whole)[0]
    everybody = whole.federation.participants
    together = searched_decays_together(whole, [everybody])[0]
    assert together < alone
    # By hand: the mean of squared errors over all silos' samples, which are equally many.
    train = np.concatenate([one.train for one in parts])
    rest = np.concatenate([one.validation for one in parts])
    errors = {}
    for decay in DECAYS:
        square = 2 * x[train].T @ x[train] / len(train) + decay * np.eye(features)
        w = np.linalg.solve(square, 2 * x[train].T @ y[train] / len(train))
        errors[decay] = np.mean((x[rest] @ w - y[rest]) ** 2)
    assert together == min(errors, key=lambda one: errors[one])
    assert searched_decays_together(whole, [(one,) for one in everybody]) == {}


def test_methods_in_coalitions_have_the_weight_decay_of_coalitions():
    before = repetitions(1.0)
    own = replace(before, defaults=replace(before.defaults, together_decay=0.007))
    wanted = Wanted(("local", "fedavg"))
    decays = [
        method_of(name, wanted, own, Decisions([], [], None)).settings.weight_decay
        for name in wanted.methods
    ]
    assert decays == [before.defaults.train.weight_decay, 0.007]

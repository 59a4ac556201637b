"""The search for weight decays."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Participant
from fedegoists.federation.batches import batch_at, stream_seed
from fedegoists.learning.data import Indices, Samples, SiloedData, SiloIndices
from fedegoists.training.decay_search import (
    DECAYS,
    REPEATS,
    SLOT,
    searched_decays,
    searched_decays_together,
)
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


def halves(
    whole: Repetitions, silo: SiloIndices, name: Participant
) -> list[tuple[Indices, Indices]]:
    """The rows of each half of a silo, and those of the other half."""
    found = []
    for repeat in range(REPEATS):
        seed = stream_seed(stream_seed(0, repeat, SLOT), whole.federation.stream_name(name))
        half = len(silo.train) // 2
        rows = [silo.train[batch_at(len(silo.train), half, k, seed)] for k in (0, 1)]
        found += [(rows[0], rows[1]), (rows[1], rows[0])]
    return found


def ridge(x: np.ndarray, y: np.ndarray, decay: float) -> np.ndarray:
    """The loss of a regression is the squared error, so its gradient has a factor of two."""
    square = 2 * x.T @ x / len(x) + decay * np.eye(x.shape[1])
    return np.linalg.solve(square, 2 * x.T @ y / len(x))


def test_noise_asks_for_more_weight_decay_and_clean_data_for_none():
    clean, noisy = (searched_decays(repetitions(noise))[0] for noise in (0.0, 3.0))
    assert clean == min(DECAYS)
    assert noisy >= 0.3


def test_what_is_found_is_the_best_of_those_tried_and_nothing_is_left_behind():
    data, told = silos(0.5), []
    before = repetitions(0.5)
    (found,) = searched_decays(before, lambda done, total: told.append((done, total))).values()
    assert searched_decays(before) == {0: found}
    assert told == [(k, len(DECAYS)) for k in range(len(DECAYS))]
    # By hand: ridge regression minimises the same loss, mean squared error / 2 + decay / 2 ‖w‖²,
    # up to its offset, on which the decay is weaker and which is near zero here.
    x, y = data.samples.inputs[0], data.samples.targets
    errors = dict.fromkeys(DECAYS, 0.0)
    for decay in DECAYS:
        for silo, name in zip(data.silos, before.federation.participants, strict=True):
            for own, other in halves(before, silo, name):
                w = ridge(x[own], y[own], 2 * decay)  # a half has half the samples
                errors[decay] += np.mean((x[other] @ w - y[other]) ** 2)
    assert found == min(errors, key=lambda one: errors[one])
    assert found not in (DECAYS[0], DECAYS[-1])


def test_every_training_sample_judges_as_often_and_no_validation_sample_does():
    data, before = silos(1.0), repetitions(1.0)
    told = np.zeros(len(data.samples.targets), dtype=int)
    for silo, name in zip(data.silos, before.federation.participants, strict=True):
        for own, other in halves(before, silo, name):
            assert not set(own) & set(other)
            told[other] += 1
    for silo in data.silos:
        assert (told[silo.train] == REPEATS).all()
        assert not told[silo.validation].any()
    (everybody,) = [before.federation.participants]
    changed = data.samples.targets.copy()
    for silo in data.silos:
        changed[silo.validation] = 100.0
    other = replace(data, samples=Samples(data.samples.inputs, changed))
    after = Repetitions.simulated({0: other}, steps=600, device="cpu", model="linear")
    assert searched_decays(after) == searched_decays(before)
    groups = [everybody]
    assert searched_decays_together(after, groups) == searched_decays_together(before, groups)


def test_a_silo_with_one_sample_has_no_halves_and_does_not_judge():
    data = silos(1.0)
    one, other = data.silos
    few = replace(data, silos=(replace(one, train=one.train[:1]), other))
    whole = Repetitions.simulated({0: few}, steps=600, device="cpu", model="linear")
    alone = replace(data, silos=(other,))
    single = Repetitions.simulated({0: alone}, steps=600, device="cpu", model="linear")
    assert searched_decays(whole) == searched_decays(single)
    assert searched_decays_together(whole, [whole.federation.participants])[0] in DECAYS


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
    with pytest.raises(SettingsError, match="answer of every silo about its own data"):
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
    # By hand: the mean of squared errors over all silos' halves, which are equally many.
    divided = [halves(whole, silo, name) for silo, name in zip(parts, everybody, strict=True)]
    errors = dict.fromkeys(DECAYS, 0.0)
    for decay in DECAYS:
        for turn in zip(*divided, strict=True):
            train, rest = (np.concatenate([one[k] for one in turn]) for k in (0, 1))
            w = ridge(x[train], y[train], 2 * decay)
            errors[decay] += np.mean((x[rest] @ w - y[rest]) ** 2)
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

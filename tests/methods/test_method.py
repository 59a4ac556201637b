"""Methods over sums: models that stay at home become the same as those that the server sees."""

import numpy as np
import pytest
import torch

from fedegoists.federation import Personal, SimulatedFederation, TrainSettings
from fedegoists.federation.seam import MemoryKey
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.methods import METHODS, Callbacks, RunSettings, fine_tune
from fedegoists.methods import run as run_method
from fedegoists.methods.silo_training import coalition_sums
from tests.federation.sums import SummingFederation
from tests.silos import groups

SIZES = (60, 30, 50, 40, 55, 35, 45)
GROUPS = groups([["s1", "s2", "s3", "s6"], ["s4", "s5"], ["s0"]])
TRAIN = TrainSettings(steps=3, batch_size=16, learning_rate=0.05, total_steps=18)
PLAIN = {"own": "nothing", "keep_momentum": False, "outer": 0.0}
SUMMED = [
    ("local", {}),
    ("local", {"keep_momentum": True}),
    ("fedavg", {}),
    ("fedavg", {"personal": ("output.",)}),
    ("fedprox", {}),
    ("feddisco", {}),
    ("fedavgm", {}),
    ("fedavgm", {"buffers": "averaged"}),
    ("slowmo", {"buffers": "averaged"}),
    ("egomix", PLAIN),
    ("egomix", {}),
    ("egomix", {"own": "layer", "alone": 0.35, "tune": 0.35}),
]
HOME = {"local": "s0 s1 s2 s3 s4 s5 s6", "egomix": "s0 s1 s2 s3 s6", "ditto": "s0 s1 s2 s3 s6"}
"""With other methods, only the participant that is alone keeps its model."""


HEAD, BODY = ("output.",), ("hidden.",)
PERSONAL = [
    ("local", {"personal": HEAD, "keep_momentum": True}),
    ("fedavg", {"personal": BODY}),
    ("fedper", {}),
    ("ditto", {"personal": HEAD}),
    ("egomix", {"personal": HEAD}),
    ("egomix", {"personal": HEAD, "alone": 0.35, "tune": 0.35}),
    ("egomix", {"personal": BODY, "own": "nothing"}),
    ("egomix", {"personal": ("output.bias",), "own": "layer"}),
]


def data():
    """Samples of three classes, which are not equally frequent in the silos."""
    rng = np.random.default_rng(0)
    parts, labels, start = [], [], 0
    for k, size in enumerate(SIZES):
        rows = np.arange(start, start + size + 20)
        parts.append(SiloIndices(f"s{k}", rows[:-20], rows[-20:-10], rows[-10:]))
        labels.append(rng.choice(3, size + 20, p=rng.dirichlet([1, 1, 1])))
        start += size + 20
    targets = np.concatenate(labels)
    inputs = rng.normal(size=(start, 4)).astype(np.float32) + targets[:, None]
    samples = Samples((inputs.astype(np.float32),), targets)
    return SiloedData("three", "classification", samples, tuple(parts), 3, "", ())


def federation(kind=SimulatedFederation):
    return kind(data(), build_model("mlp", 0, features=4, outputs=3))


def trained(over, name, settings, rounds=6):
    method = METHODS[name](TRAIN, **settings)
    start = over.schema.drawn(1).repeat(len(SIZES), 1)
    return method, run_method(method, over, GROUPS, start, RunSettings(rounds=rounds, seed=2))


def chosen(over, name, outcome):
    """The chosen models, from the silos' memories where they are at home."""
    return torch.stack(
        [
            over.silo_memory(one).slots[f"{name}/best"] if one in outcome.at_home else own
            for one, own in zip(over.participants, outcome.best, strict=True)
        ]
    )


def assert_same(there, home):
    assert not home.failures
    assert [row.participant for row in there.rows] == [row.participant for row in home.rows]
    np.testing.assert_allclose(
        [row.value for row in home.rows], [row.value for row in there.rows], rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(("name", "settings"), SUMMED)
def test_models_at_home_are_those_that_a_server_would_have_made(name, settings):
    plain, summing = federation(), federation(SummingFederation)
    _, there = trained(plain, name, settings)
    _, home = trained(summing, name, settings)
    assert not there.at_home
    assert [one.name for one in home.at_home] == HOME.get(name, "s0").split()
    assert_same(there, home)
    if "personal" not in settings:
        torch.testing.assert_close(
            chosen(summing, name, home), chosen(plain, name, there), rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize(("name", "settings"), PERSONAL)
def test_personal_layers_of_models_at_home_are_those_of_a_simulation(name, settings):
    plain, summing = federation(), federation(SummingFederation)
    method, there = trained(plain, name, settings)
    _, home = trained(summing, name, settings)
    assert [one.name for one in home.at_home] == HOME.get(name, "s0").split()
    assert_same(there, home)
    best = Personal(prefixes=method.personal, slot=f"{name}/best")
    for one, own, shared in zip(plain.participants, home.best, there.best, strict=True):
        sent = summing.personal_model(one, own, best) if one not in home.at_home else None
        whole = summing.silo_memory(one).slots[best.slot] if sent is None else sent
        expected = plain.personal_model(one, shared, best)
        torch.testing.assert_close(whole, expected, rtol=1e-3, atol=1e-5)
    withheld = plain.schema.mask(method.personal)
    sums = [one for one in summing.seen if len(one) % plain.schema.size == 0]
    assert not any(one.view(-1, plain.schema.size)[:, withheld].any() for one in sums)


@pytest.mark.parametrize("kind", [SimulatedFederation, SummingFederation])
def test_a_second_run_begins_with_no_personal_layers_of_the_first(kind):
    for name in ("ditto", "egomix"):
        over = federation(kind)
        first, second = (trained(over, name, {"personal": HEAD}, rounds=2)[1] for _ in range(2))
        assert [row.value for row in first.rows] == [row.value for row in second.rows]


@pytest.mark.parametrize(("name", "settings"), SUMMED)
def test_a_second_run_begins_with_no_momentum_of_the_first(name, settings):
    over = federation(SummingFederation)
    first, second = (trained(over, name, settings, rounds=2)[1] for _ in range(2))
    assert [row.value for row in first.rows] == [row.value for row in second.rows]


@pytest.mark.parametrize(("name", "settings"), SUMMED)
def test_the_server_sees_no_single_model(name, settings):
    plain, summing = federation(), federation(SummingFederation)
    trained(summing, name, settings, rounds=1)
    method = METHODS[name](TRAIN, **settings)
    start = plain.schema.drawn(1).repeat(len(SIZES), 1)
    state = method.start(plain, GROUPS, start, 2)
    silo_models = []
    call = plain.call

    def recorded(requests, timeout=None):
        replies = call(requests, timeout)
        silo_models.extend(reply.parameters for reply in replies.values())
        return replies

    plain.call = recorded
    method.round(plain, GROUPS, state, 2)
    assert len(silo_models) == len(SIZES)
    hidden = [k for k, one in enumerate(plain.participants) if one not in GROUPS[1]]
    for k in hidden:
        for seen in summing.seen:
            differences = (seen[: len(start[0])] - silo_models[k]).abs()
            assert (differences > 1e-6).float().mean() > 0.5, (k, name)


def test_fine_tuning_begins_with_the_models_at_home():
    outcomes = []
    for kind in (SimulatedFederation, SummingFederation):
        over = federation(kind)
        for name in ("fedavg", "egomix"):
            method, outcome = trained(over, name, {}, rounds=3)
            outcomes.append(fine_tune(method, over, outcome, TRAIN, 2))
    for there, home in zip(outcomes[:2], outcomes[2:], strict=True):
        assert_same(there, home)
        assert home.at_home


@pytest.mark.parametrize("name", ["fedavg", "egomix"])
def test_those_who_keep_the_model_that_fine_tuning_began_with_can_be_given_it(name):
    over = federation(SummingFederation)
    method, outcome = trained(over, name, {}, rounds=3)
    ruinous = TRAIN.changed(learning_rate=20.0)
    tuned = fine_tune(method, over, outcome, ruinous, 2)
    began = [
        one for one, chosen in zip(over.participants, tuned.best_round, strict=True) if not chosen
    ]
    assert began
    kept = over.memory(f"{name}+ft")
    for one in tuned.at_home:
        assert MemoryKey(one, f"{name}+ft/best") in kept
    # Where the server has the start, it has the chosen model, too.
    for one in set(began) - set(outcome.at_home):
        assert one not in tuned.at_home
        k = over.participants.index(one)
        assert torch.equal(tuned.best[k], outcome.best[k])


def test_a_run_of_models_at_home_is_continued_from_its_checkpoint(tmp_path):
    settings = {"rounds": 5, "seed": 2}
    whole = federation(SummingFederation)
    start = whole.schema.drawn(1).repeat(len(SIZES), 1)
    method = METHODS["egomix"](TRAIN)
    expected = run_method(method, whole, GROUPS, start, RunSettings(**settings))
    for rounds in (2, 5):
        again = federation(SummingFederation)
        outcome = run_method(
            method,
            again,
            GROUPS,
            start,
            RunSettings(**{**settings, "rounds": rounds}),
            Callbacks(tmp_path / "checkpoint.safetensors"),
        )
    assert outcome.rows == expected.rows
    assert torch.equal(chosen(again, "egomix", outcome), chosen(whole, "egomix", expected))


def test_weights_of_a_coalition_are_the_samples_that_silos_committed_to():
    first, second = coalition_sums(federation(), GROUPS)
    assert [one.name for one in first.weights] == ["s1", "s2", "s3", "s6"]
    assert list(first.weights.values()) == [30, 50, 40, 45]
    assert second.receivers == GROUPS[1]
    assert first.shown

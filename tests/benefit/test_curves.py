"""The estimator ``curves`` on consortia whose gains are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.benefit import BenefitEstimate, learn, learn_repetitions
from fedegoists.benefit.curve_fit import pair_gains
from fedegoists.benefit.curves import answers_needed, repeats_for, trial_company
from fedegoists.coalitions import form
from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Participant, Train, Trained, TrainSettings
from fedegoists.federation.batches import batch_at, share_of
from fedegoists.graphs import CompetitionGraph
from fedegoists.learning.datasets import load
from fedegoists.training.defaults import defaults_for, learn_settings
from tests.benefit.consortia import OTHER, TASK, federation, regressions
from tests.benefit.test_decoys import SECRET, Recorder
from tests.benefit.test_learning_benefit import quick

TASKS = {"a1": TASK, "a2": TASK, "b1": OTHER, "b2": OTHER, "a3": TASK}


TO_THE_END = TrainSettings(steps=400, learning_rate=0.05, total_steps=400, batch_size=256)


@pytest.fixture(scope="module")
def data():
    return regressions(TASKS, train=40, noise=1.0)


def test_opposite_tasks_have_negative_rates_and_are_kept_apart(data):
    estimate = learn(federation(data), quick("curves", local=TO_THE_END))
    values = estimate.values
    assert values.participants == tuple(TASKS)
    assert values.unit == "mean squared error"
    alike = np.array([[own == other for other in TASKS.values()] for own in TASKS.values()])
    off = ~np.eye(5, dtype=bool)
    assert (values.rates[alike & off] > 0).all()
    assert (values.rates[~alike] < 0).all()
    groups = form(values, CompetitionGraph([], values.participants)).coalitions
    assert {frozenset(group) for group in groups} == {
        frozenset({"a1", "a2", "a3"}),
        frozenset({"b1", "b2"}),
    }


def test_planted_deviations_are_found():
    """Inputs are independent with variance one: δ = |Δ|², and half of it counts by a quarter.

    Its cost is shrunk towards what is usual, so that only its order of magnitude is right.
    """
    tasks = {"a1": TASK, "a2": TASK, "b1": OTHER, "b2": OTHER}
    silos = federation(regressions(tasks, train=200, noise=1.0))
    gains, _ = pair_gains(learn(silos, quick("curves", repeats=4, local=TO_THE_END)).values)

    def between(one, other):
        return gains[one : one + 2, other : other + 2].mean()

    deviation = np.square(np.subtract(TASK, OTHER)).sum()
    assert between(2, 0) == pytest.approx(-deviation / 4, rel=0.5)
    # Least squares: 5 parameters, noise of variance one, 200 samples; twice as many help by half.
    assert gains[1, 0] == pytest.approx(5 / 200 / 2, abs=0.03)


def test_a_competitors_model_never_reaches_its_rival(data):
    """What a1 is asked about is the same, whatever the data of its competitor b1 is."""
    changed = regressions(TASKS | {"b1": [9.0, 9.0, 9.0, 9.0]}, train=40, noise=1.0)
    for apart, differ in (([], True), ([("a1", "b1")], False)):
        seen = []
        for each in (data, changed):
            recorder = Recorder(federation(each), "a1")
            learn(recorder, quick("curves"), apart=apart, secret=SECRET)
            seen.append([rows for _, rows, _ in recorder.calls])
        same = all(torch.equal(one, two) for one, two in zip(*seen, strict=True))
        assert same != differ


@pytest.mark.parametrize("rivals", [["b1"], ["a2", "b1", "b2", "a3"]])
def test_two_worlds_of_reports_look_the_same_to_a_deployed_silo(data, rivals):
    """Alone in a trial, it would get its own model back, and know that others have named it."""
    worlds = []
    for apart in ([], [(name, "a1") for name in rivals]):
        recorder = Recorder(federation(data), "a1")
        recorder.deployed = True
        learn(recorder, quick("curves"), apart=apart, secret=SECRET)
        worlds.append(recorder.calls)
    for (name, rows, rest), (other, others, more) in zip(*worlds, strict=True):
        assert (name, rows.shape, rest) == (other, others.shape, more)
        shown = rows.ndim == 2 and len(rows) == len(TASKS)
        differing = (rows != others).any(-1).sum().item()
        assert differing == (len(rivals) if shown else 0)  # decoys, and nothing else


def test_between_competitors_nothing_is_learned(data):
    estimate = learn(federation(data), quick("curves"), apart=[("a1", "a2")])
    assert not estimate.weights[[0, 1], [1, 0]].any()
    assert not estimate.gains[..., [0, 1], [1, 0]].any()
    assert not estimate.values.rates[[0, 1], [1, 0]].any()
    assert estimate.values.rates[4, 0] > 0


class Replies:
    """A federation that keeps all requests and replies."""

    def __init__(self, inner):
        self.inner, self.requests, self.replies = inner, [], []
        self.of = {one.name: [] for one in inner.participants}
        self.participants, self.schema = inner.participants, inner.schema
        self.task, self.device, self.deployed = inner.task, inner.device, inner.deployed

    def call(self, requests, timeout=None):
        replies = self.inner.call(requests, timeout)
        self.requests += requests.values()
        for one, request in requests.items():
            if isinstance(request, Train):
                self.of[one.name].append(request.parameters.clone())
        self.replies += replies.values()
        return replies


def test_without_transfers_no_model_leaves_a_silo(data):
    silos = Replies(federation(data))
    values = learn(silos, quick("curves", transfers=False)).values
    trained = [reply for reply in silos.replies if isinstance(reply, Trained)]
    assert trained
    assert not any(reply.parameters.any() for reply in trained)
    off = ~np.eye(5, dtype=bool)
    assert values.rates[off] == pytest.approx(1.0, abs=1e-3)  # nothing is known against anybody
    assert (values.slopes > 0).all()


def test_models_of_parts_stay_at_home_and_are_judged_on_what_they_did_not_see(data):
    silos = Replies(federation(data))
    learn(silos, quick("curves"))
    parts = [one for one in silos.requests if isinstance(one, Train)]
    assert {(one.share, one.part) for one in parts} == {(0.25, 0), (0.25, 3), (0.5, 0), (0.5, 1)}
    for one in parts:
        assert (one.personal is not None and one.personal.whole) == (one.share == 0.25)
    size, last = 40, None
    judged = []
    for one in silos.requests:
        if isinstance(one, Train):
            last = one
        elif isinstance(one, Evaluate):
            assert one.split == "train"
            seen, unseen = (
                set(batch_at(size, share_of(size, each.share, None), number, 3))
                for each, number in ((last, last.part), (one, one.step))
            )
            assert (one.seed, len(unseen)) == (last.seed, size // 2)
            assert not seen & unseen
            judged.append((last.share, last.part))
    assert set(judged) == {(0.25, 0), (0.25, 3), (0.5, 0), (0.5, 1)}
    slots = silos.inner.silo_memory(Participant("a1")).slots
    assert not slots  # and are forgotten in the end


def test_weight_decay_is_in_proportion_to_one_over_the_samples(data):
    """Of one silo alone it is 0.1: on a quarter 0.4, on a half 0.2, on five halves 0.04."""
    own = TrainSettings(steps=30, batch_size=64, weight_decay=0.1)
    for ridge, expected in ((True, {0.4, 0.2, 0.04}), (False, {0.1})):
        silos = Replies(federation(data))
        learn(silos, quick("curves", repeats=1, local=own, ridge=ridge))
        trained = [one for one in silos.requests if isinstance(one, Train)]
        assert {round(one.settings.weight_decay, 6) for one in trained} == expected


@pytest.mark.parametrize("transfers", [True, False])
def test_answers_are_counted_before_they_are_asked_for(data, transfers):
    """Silos limit answers about training samples in a day: each model and each score is one."""
    silos = Replies(federation(data))
    small = TrainSettings(steps=30, batch_size=64)
    own = quick("curves", repeats=2, transfers=transfers, local=small)
    learn(silos, own)
    given = sum(
        len(one.rows) if isinstance(one, Evaluate) else 1
        for one in silos.requests
        if isinstance(one, Train | Evaluate)
    )
    assert given == len(TASKS) * answers_needed(own, len(TASKS))


def test_a_silo_that_fails_is_absent_and_reported(data):
    def silent(request, reply):
        raise ConnectionError("gone")

    estimate = learn(federation(data, behaviours={"b1": silent}), quick("curves"))
    assert estimate.absent == ("b1",)
    assert estimate.failures[0].startswith("b1: failed")
    values = estimate.values
    assert values.participants == tuple(TASKS)
    assert values.slopes[2] == values.samples[2] == 0
    assert not values.rates[2].any()
    assert values.rates[1, 0] != 0  # the others are known


def test_one_silo_alone_is_not_enough(data):
    def silent(request, reply):
        raise ConnectionError("gone")

    away = dict.fromkeys(("a2", "a3", "b1", "b2"), silent)
    with pytest.raises(SettingsError, match=r"1 of 5 silos answered.*a2: failed"):
        learn(federation(data, behaviours=away), quick("curves"))


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_repetitions_at_once_are_as_one_at_a_time(data, execution):
    other = regressions(TASKS, train=40, noise=1.0, seed=1)
    both = learn_repetitions(
        federation({"x": data, "y": other}, execution=execution), quick("curves")
    )
    (alone,) = learn_repetitions(federation({"y": other}), quick("curves")).values()
    np.testing.assert_allclose(both["y"].values.slopes, alone.values.slopes, rtol=1e-3)
    np.testing.assert_allclose(both["y"].values.rates, alone.values.rates, rtol=1e-3, atol=1e-4)


def test_values_are_kept_with_the_estimate(data):
    estimate = learn(federation(data), quick("curves"))
    again = BenefitEstimate.from_json(estimate.participants, estimate.to_json())
    assert again.values == estimate.values


def test_defaults_train_to_the_end():
    synthetic = load("synthetic-weak")
    assert learn_settings(synthetic, "curves").local.steps == 2000
    assert learn_settings(synthetic, "curves", model="linear").local.steps == 600
    assert learn_settings(synthetic, "curves").transfers
    assert learn_settings(synthetic, "curves", repeats=4).repeats == 4


@pytest.mark.parametrize(
    ("task", "classes", "transfers"),
    [("classification", 10, False), ("binary", 2, True), ("regression", None, True)],
)
def test_only_owners_of_many_classes_of_images_are_told_apart_by_labels(task, classes, transfers):
    scans = SimpleNamespace(name="scans", task=task, classes=classes, shapes=((3, 32, 32),))
    assert learn_settings(scans, "curves").transfers == transfers


@pytest.mark.parametrize("model", ["linear", "auto"])
@pytest.mark.parametrize("size", [20, 64, 200, 256, 300, 600, 1024, 5000])
def test_evidence_costs_at_most_three_trainings_alone(model, size):
    synthetic = load("synthetic-weak")
    own = learn_settings(synthetic, "curves", model=model)
    training = defaults_for(synthetic, None, model)
    # Two quarters, two halves, and two halves in the trial; a step has a batch, or all samples.
    spent = sum(
        2 * own.local.steps * share * min(own.local.batch_size, size * share)
        for share in (0.25, 0.5, 0.5)
    )
    alone = training.rounds * training.train.steps * min(training.train.batch_size, size)
    assert repeats_for(own, [size] * 3) * spent <= 3 * alone


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(0, 10**6), st.floats(0, 1))
def test_trial_coalitions_have_no_competitors_and_are_as_large_as_they_may_be(n, seed, share):
    random = np.random.default_rng(seed)
    rivals = np.triu(random.random((n, n)) < share, 1)
    rivals = torch.from_numpy(rivals | rivals.T)
    together = trial_company(rivals, str(seed))
    assert not (together & rivals).any()
    assert torch.equal(together, together.T)
    assert torch.equal(together, (together.int() @ together.int()) > 0)  # groups are apart
    groups = {tuple(row.nonzero()[:, 0].tolist()) for row in together}
    for one in groups:
        for other in groups - {one}:
            assert rivals[np.ix_(one, other)].any()  # else both would be one


def test_no_average_with_a_competitor_reaches_a_silo(data):
    """In a trial a2 trains with b1, but never a1: nothing that a1 receives depends on b1."""
    changed = regressions(TASKS | {"b1": [9.0, 9.0, 9.0, 9.0]}, train=40, noise=1.0)
    seen = []
    for each in (data, changed):
        silos = Replies(federation(each))
        learn(silos, quick("curves", repeats=3), apart=[("a1", "b1")], secret=SECRET)
        seen.append(silos.of["a1"])
    assert len(seen[0]) == len(seen[1]) > 0
    for one, two in zip(*seen, strict=True):
        assert torch.equal(one, two)

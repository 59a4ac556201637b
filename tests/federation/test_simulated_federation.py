"""The simulated federation: the same numbers looped and stacked, and failures as values."""

import queue
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Describe,
    Evaluate,
    Failure,
    Gradient,
    Keep,
    LocalTerms,
    Participant,
    Personal,
    Train,
    Trained,
    TrainSettings,
    WithTimeout,
    behaviours,
)
from fedegoists.federation.batches import batch_at, batch_plan, share_of, stream_seed
from fedegoists.federation.silo_operations import learning_rates
from fedegoists.federation.stacked import StackedSilos
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from tests.silos import MODELS, SIZES, federation, initial, named, silos

S0, S1, S2 = map(Participant, ("s0", "s1", "s2"))
SETTINGS = TrainSettings(steps=4, batch_size=48, learning_rate=0.05, weight_decay=1e-3)


def terms(kind, model, silo):
    """Local terms of a kind; their strengths and vectors differ between silos."""
    vector = initial(model, 1, seed=10 + silo)[0]
    return {
        "proximal": LocalTerms(anchor=vector, pull=0.1 * (silo + 1), correction=0.01 * vector),
        "moving": LocalTerms(anchor=vector, pull=2.0, inner_steps=2, anchor_rate=0.1),
        "cosine": LocalTerms(towards=vector, attraction=0.5 + silo),
    }[kind]


def call(model, execution, kind, rows=0, **fields):
    """The replies of all silos to requests of a kind, by name."""
    silos_ = federation(model, execution=execution)
    requests = {}
    for k, name in enumerate(silos_.participants):
        start = initial(model, 1, seed=k)[0]
        if rows:  # the second silo is asked about fewer models than the others
            start = torch.cat([initial(model, 1, seed=r) for r in range(rows - (k == 1))])
        own = {"terms": terms(fields["terms"], model, k)} if "terms" in fields else {}
        requests[name] = kind(parameters=start, **{**fields, **own})
    return named(silos_.call(requests))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Train, {"settings": SETTINGS, "seed": 3}),
        (Train, {"settings": SETTINGS, "seed": 3, "terms": "proximal"}),
        (Train, {"settings": SETTINGS, "seed": 3, "terms": "moving"}),
        (Train, {"settings": SETTINGS, "seed": 3, "terms": "cosine"}),
        (Train, {"settings": SETTINGS, "seed": 3, "share": 0.5, "part": 1}),
        (Gradient, {"batch_size": 32, "seed": 3}),
        (Gradient, {"batch_size": 32, "seed": 3, "step": 2, "rows": 3}),
        (Gradient, {"split": "validation"}),
        (Evaluate, {"split": "test"}),
        (Evaluate, {"split": "validation", "rows": 3, "share": 0.5, "step": 1, "seed": 3}),
    ],
)
def test_looped_equals_stacked_on_every_model(model, kind, fields):
    if model.startswith("cifar") and kind is Train:
        fields = {**fields, "settings": SETTINGS.changed(augment=True)}
    if model.startswith("cifar") and kind is Gradient and "rows" in fields:
        fields = {**fields, "augment": True}
    looped = call(model, "looped", kind, **fields)
    stacked = call(model, "stacked", kind, **fields)
    assert looped.keys() == stacked.keys() == {"s0", "s1", "s2"}
    for name, one in looped.items():
        assert_alike(one, stacked[name])


def assert_alike(one, other):
    """Two replies are the same up to rounding."""
    assert type(one) is type(other)
    for key, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            # Rounding can decide which of two nearly equal pixels a pooling layer takes.
            torch.testing.assert_close(value, getattr(other, key), rtol=1e-3, atol=3e-4)
        elif isinstance(value, str | None):
            assert value == getattr(other, key)
        else:
            assert value == pytest.approx(getattr(other, key), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", [Gradient, Evaluate])
def test_more_models_than_fit_at_once_go_through_one_after_the_other(monkeypatch, kind):
    whole = call("mlp", "stacked", kind, rows=4, split="validation")
    monkeypatch.setattr("fedegoists.federation.stacked_network.PER_PASS", 16)
    monkeypatch.setattr("fedegoists.federation.stacked.EVALUATED", 7)
    parts = call("mlp", "stacked", kind, rows=4, split="validation")
    for name, one in whole.items():
        assert one.losses == pytest.approx(parts[name].losses, rel=1e-5)
        if kind is Gradient:
            torch.testing.assert_close(one.gradient, parts[name].gradient)


@pytest.mark.parametrize("size", range(2, 18))
def test_two_halves_have_no_sample_in_common(size):
    half = share_of(size, 0.5, None)
    first, second = (set(batch_at(size, half, step, seed=3)) for step in (0, 1))
    assert len(first) == len(second) == size // 2
    assert not first & second


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_training_on_a_part_never_touches_the_other_samples(execution):
    """A model of one half is the same whatever the targets of the other half are."""
    size, seed = SIZES[0] - 30, stream_seed(7, "s0")
    other = batch_at(size, share_of(size, 0.5, None), 1, seed)

    def trained(change, **fields):
        data = silos("mlp")
        targets = data.samples.targets.copy()
        targets[data.silos[0].train[other]] += change
        changed = replace(data, samples=replace(data.samples, targets=targets))
        federation_ = federation("mlp", changed, execution=execution)
        request = Train(
            parameters=initial("mlp", 1)[0], settings=SETTINGS.changed(steps=9), seed=7, **fields
        )
        return federation_.call({S0: request})[S0]

    before, after = (trained(change, share=0.5, part=0) for change in (0.0, 5.0))
    assert torch.equal(before.parameters, after.parameters)
    assert before.samples == size  # what a silo has, not what it used
    assert before.sample_passes == 9 * min(SETTINGS.batch_size, size // 2)
    before, after = (trained(change, share=0.5, part=1) for change in (0.0, 5.0))
    assert not torch.equal(before.parameters, after.parameters)
    before, after = (trained(change) for change in (0.0, 5.0))
    assert not torch.equal(before.parameters, after.parameters)


def test_a_part_of_nothing_is_refused():
    request = Train(parameters=initial("mlp", 1)[0], settings=SETTINGS, share=0.001)
    reply = federation("mlp").call({S0: request})[S0]
    assert isinstance(reply, Failure)
    assert "train samples is none" in reply.detail


def test_training_is_momentum_descent_worked_out_in_numpy():
    """One silo with as many samples as a batch holds, a linear model, two steps by hand."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    data = SiloedData(
        "line",
        "regression",
        Samples((x.astype(np.float32),), y.astype(np.float32)),
        (SiloIndices("a", np.arange(8), np.arange(8, 10), np.arange(10, 12)),),
        None,
        "",
        (),
    )
    from fedegoists.federation import SimulatedFederation
    from tests.silos import Line

    start = np.array([0.5, -1.0, 0.25])  # two weights and a bias
    settings = TrainSettings(
        steps=2, batch_size=64, learning_rate=0.1, momentum=0.5, weight_decay=0.01
    )
    w, v = start.copy(), np.zeros(3)
    design = np.hstack([x[:8], np.ones((8, 1))])
    for _ in range(2):
        gradient = 2 * design.T @ (design @ w - y[:8]) / 8 + 0.01 * w
        v = 0.5 * v + gradient
        w = w - 0.1 * v
    for execution in ("looped", "stacked"):
        silo = SimulatedFederation(data, Line(2), execution=execution)
        request = Train(parameters=torch.tensor(start).float(), settings=settings)
        (reply,) = silo.call({Participant("a"): request}).values()
        np.testing.assert_allclose(reply.parameters, w, rtol=1e-5)
        assert reply.samples == 8
        assert reply.sample_passes == 16


def test_batches_pass_over_all_samples_before_repeating():
    plan = batch_plan(10, 4, 5, seed=1)
    order = plan.flatten().tolist()
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    assert np.array_equal(plan, batch_plan(10, 4, 5, seed=1))
    assert not np.array_equal(plan, batch_plan(10, 4, 5, seed=2))
    assert batch_plan(3, 64, 2, seed=0).shape == (2, 3)
    repeated = batch_plan(10, 4, 5, seed=1, repeat=2)
    assert np.array_equal(repeated, np.repeat(plan, 2, axis=0)[:5])


def test_single_batches_pass_over_all_samples_too():
    batches = [batch_at(10, 3, step, seed=1).tolist() for step in range(6)]
    for part in (batches[:3], batches[3:]):
        assert len({sample for batch in part for sample in batch}) == 9
    assert batches[0] == batch_at(10, 3, 0, seed=1).tolist() != batches[3]
    assert batch_at(4, None, 7, seed=1).tolist() == batch_at(4, 9, 7, 1).tolist() == [0, 1, 2, 3]


def test_the_learning_rate_falls_along_a_cosine():
    settings = TrainSettings(steps=2, learning_rate=1.0, total_steps=4)
    assert learning_rates(settings, 0) == pytest.approx([1.0, 0.5 + 0.5 * 2**-0.5])
    assert learning_rates(settings, 2) == pytest.approx([0.5, 0.5 - 0.5 * 2**-0.5])
    assert learning_rates(TrainSettings(steps=2), 7) == [0.01, 0.01]


def test_seeds_depend_on_every_part_and_on_nothing_else():
    assert stream_seed(1, "a") == stream_seed(1, "a") != stream_seed(1, "b")
    assert stream_seed("1", "23") != stream_seed("12", "3")


@pytest.mark.parametrize("broken_silo", [0, 1])
def test_a_silo_with_broken_numbers_fails_alone(broken_silo):
    """The first silo's first sample is the first of the pool; the second has less than a batch."""
    data = silos("mlp")
    inputs = data.samples.inputs[0].copy()
    inputs[data.silos[broken_silo].train] = 1e30
    broken = SiloedData(
        data.name, data.task, Samples((inputs,), data.samples.targets), data.silos, None, "", ()
    )
    for execution in ("looped", "stacked"):
        replies = federation("mlp", broken, execution=execution).call(asked())
        whole = federation("mlp", data, execution=execution).call(asked())
        failed = Participant(f"s{broken_silo}")
        assert isinstance(replies[failed], Failure)
        assert replies[failed].reason == "not finite"
        for name in {S0, S1, S2} - {failed}:
            torch.testing.assert_close(replies[name].parameters, whole[name].parameters)


def asked(names=(S0, S1, S2), **fields):
    """Requests to train."""
    train = Train(parameters=initial("mlp")[0], settings=SETTINGS).changed(**fields)
    return dict.fromkeys(names, train)


def never(request, reply):
    threading.Event().wait()


def changing(**fields):
    """A silo that changes fields of its replies; functions are applied to what is there."""

    def answer(request, reply):
        new = {k: v(getattr(reply, k)) if callable(v) else v for k, v in fields.items()}
        return reply.model_copy(update=new)

    return answer


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_a_silo_that_never_answers_is_left_out_after_the_timeout(execution):
    silent = federation("mlp", execution=execution, behaviours={"s1": never})
    replies = silent.call(asked(), timeout=0.05)
    assert replies[S1] == Failure(S1, "timeout", "0.05 s")
    healthy = federation("mlp", execution=execution).call(asked())
    for name in (S0, S2):
        assert torch.equal(replies[name].parameters, healthy[name].parameters)
    patient = WithTimeout(silent, 0.05)
    assert patient.call(asked([S1])) == {S1: Failure(S1, "timeout", "0.05 s")}
    with pytest.raises(SettingsError, match="a timeout of 0"):
        WithTimeout(silent, 0)


def failing(request, reply):
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("behaviour", "reason", "detail"),
    [
        (changing(parameters=lambda p: p * np.nan), "not finite", "parameters"),
        (changing(parameters=torch.zeros(2)), "wrong shape", "(2,) where"),
        (changing(parameters="me"), "wrong shape", "a str where"),
        (changing(loss=float("inf")), "not finite", "loss"),
        (changing(samples=-5), "error", "samples is -5"),
        (changing(samples=10**400), "error", "samples is 1000"),
        (changing(samples=True), "error", "samples is True"),
        (changing(parameters=lambda p: p * 0 + 3e38), "not finite", "parameters"),
        (changing(parameters=lambda p: p.double()), "wrong shape", "float64"),
        (changing(parameters=lambda p: p.to_sparse()), "wrong shape", "sparse"),
        (changing(samples=1e9), "error", "samples is 1000000000.0"),
        (lambda _, reply: type(reply).model_construct(loss=1.0), "error", "no parameters in"),
        (lambda _, reply: vars(reply), "error", "a dict instead of a Trained"),
        (lambda _, reply: "hello", "error", "a str instead of a Trained"),
        (failing, "error", "OSError: disk full"),
    ],
)
def test_answers_that_cannot_be_used_are_failures(behaviour, reason, detail):
    replies = federation("mlp", behaviours={"s1": behaviour}).call(asked())
    assert isinstance(replies[S1], Failure)
    assert (replies[S1].reason, detail in replies[S1].detail) == (reason, True)
    assert isinstance(replies[S0], Trained)


def test_what_was_not_asked_for_is_dropped():
    more = {"diary": torch.ones(3), "parameters of others": 7}
    talkative = federation("mlp", behaviours={"s1": changing(**more)})
    reply = talkative.call(asked([S1], personal=PERSONAL))[S1]
    assert isinstance(reply, Trained)
    assert not vars(reply).keys() & more.keys()


def test_silent_silos_are_waited_for_together(monkeypatch):
    """One deadline for all: the waits add up to it, by a clock that only waiting moves."""
    waits = []

    class Silence:
        def put(self, answer):
            """Nobody answers."""

        def get(self, timeout):
            waits.append(timeout)
            raise queue.Empty

    monkeypatch.setattr(behaviours, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
    silences = SimpleNamespace(SimpleQueue=Silence, Empty=queue.Empty)
    monkeypatch.setattr(behaviours, "queue", silences)
    honest = dict.fromkeys(("s0", "s1", "s2"), lambda _, reply: reply)
    replies = federation("mlp", behaviours=honest).call(asked(), timeout=0.3)
    assert {reply.reason for reply in replies.values()} == {"timeout"}
    assert waits == [0.3, 0.0, 0.0]


def test_gradients_must_come_for_every_model_asked_about():
    cut = federation("mlp", behaviours={"s0": changing(losses=lambda losses: losses[:1])})
    replies = cut.call({S0: Gradient(parameters=initial("mlp", 2))})
    assert replies[S0] == Failure(S0, "wrong shape", "1 losses")


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_a_request_that_cannot_be_used_fails_alone(execution):
    requests = {**asked(), **asked([S1], parameters=torch.zeros(7))}
    replies = federation("mlp", execution=execution).call(requests)
    assert isinstance(replies[S1], Failure)
    assert "(7,) parameters where" in replies[S1].detail
    assert isinstance(replies[S0], Trained)


# Personal parameters ---------------------------------------------------------------------------

PERSONAL = Personal(prefixes=("output.",), slot="mine")
BEST = PERSONAL.changed(slot="mine/best")


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_personal_parameters_never_leave_a_silo(execution):
    silos_ = federation("mlp", execution=execution)
    mask = silos_.schema.mask(["output."])
    shown = silos_.call(asked(personal=PERSONAL))[S0].parameters
    whole = federation("mlp", execution=execution).call(asked())[S0].parameters
    assert torch.equal(shown[~mask], whole[~mask])
    assert not shown[mask].any()
    assert torch.equal(silos_.personal_model(S0, shown, PERSONAL), whole)
    # The silo uses its own values in the next call, whatever is sent in their place.
    disturbed = torch.where(mask, 99.0, shown)
    other = federation("mlp", execution=execution)
    following = other.call(asked([S0], parameters=whole))[S0]
    reply = silos_.call(asked([S0], parameters=disturbed, personal=PERSONAL))[S0]
    torch.testing.assert_close(reply.parameters[~mask], following.parameters[~mask])
    request = Gradient(parameters=disturbed, batch_size=8, personal=PERSONAL)
    gradient = silos_.call({S0: request})[S0].gradient
    assert not gradient[mask].any()
    assert gradient[~mask].any()


def test_a_personal_step_is_taken_inside_the_silo():
    silos_ = federation("mlp")
    mask = silos_.schema.mask(["output."])
    start = initial("mlp")[0]
    gradient = silos_.call({S0: Gradient(parameters=start)})[S0].gradient
    silos_.call({S0: Gradient(parameters=start[None], personal=PERSONAL.changed(rate=0.1))})
    moved = silos_.personal_model(S0, start, PERSONAL)
    torch.testing.assert_close(moved[mask], (start - 0.1 * gradient)[mask])
    assert torch.equal(moved[~mask], start[~mask])


def test_a_slot_that_was_emptied_begins_without_speed():
    silos_ = federation("mlp")
    start = initial("mlp")[0]
    request = Gradient(parameters=start[None], personal=PERSONAL.changed(rate=0.1, momentum=0.9))

    def stepped():
        silos_.call({S0: Keep(slot="mine")})
        silos_.call({S0: request})
        return silos_.personal_model(S0, start, PERSONAL)

    assert torch.equal(stepped(), stepped())


def test_slots_are_copied_and_emptied_and_survive_a_checkpoint():
    silos_ = federation("mlp")
    start = initial("mlp")[0]
    silos_.call(asked([S0], personal=PERSONAL))
    silos_.call({S0: Keep(slot="mine/best", source="mine")})
    silos_.call({S0: Keep(slot="mine")})
    assert torch.equal(silos_.personal_model(S0, start, PERSONAL), start)
    best = silos_.personal_model(S0, start, BEST)
    assert not torch.equal(best, start)
    other = federation("mlp")
    assert silos_.memory("other") == {}
    other.restore("mine", silos_.memory("mine"))
    assert torch.equal(other.personal_model(S0, start, BEST), best)


def test_what_was_kept_after_a_checkpoint_is_gone_when_it_is_restored():
    silos_ = federation("mlp")
    before = silos_.memory("mine")
    train = asked([S0], personal=PERSONAL) | asked([S1], personal=PERSONAL.changed(slot="other"))
    silos_.call(train)
    silos_.call({S0: Keep(slot="mine/best", source="mine")})
    silos_.restore("mine", before)
    assert silos_.memory("mine") == {}
    assert list(silos_.memory("other")) == [(S1, "other")]


# Repetitions -----------------------------------------------------------------------------------


def test_several_repetitions_are_one_federation_and_share_samples():
    data = silos("mlp")
    both = federation("mlp", {0: data, 7: data})
    assert both.participants == tuple(Participant(f"s{k}", r) for r in (0, 7) for k in range(3))
    first, second = (both._silos[Participant("s0", r)] for r in (0, 7))
    assert second.inputs[0].data_ptr() == first.inputs[0].data_ptr()
    assert len(first.targets) == sum(SIZES)
    other = federation("mlp", {0: data, 7: silos("mlp", seed=5)})
    assert len(other._silos[Participant("s0", 0)].targets) == 2 * sum(SIZES)
    request = Evaluate(parameters=initial("mlp")[0], split="test")
    (apart,) = federation("mlp", silos("mlp", seed=5)).call({S1: request}).values()
    (beside,) = other.call({Participant("s1", 7): request}).values()
    assert_alike(beside, apart)


def test_a_repetition_gives_the_same_numbers_alone_and_beside_others():
    three, seven = Participant("s0", 3), Participant("s0", 7)
    alone = federation("mlp", {7: silos("mlp")}).call(asked([seven]))
    beside = federation("mlp", {3: silos("mlp"), 7: silos("mlp")}).call(asked([three, seven]))
    torch.testing.assert_close(alone[seven].parameters, beside[seven].parameters)


def test_what_is_the_same_under_several_labels_is_computed_once(monkeypatch):
    """Same samples, draws and parameters; where a row differs, that one is evaluated by itself."""
    data = dict.fromkeys(("0@a", "0@b", "0@c"), silos("mlp"))
    shared = federation("mlp", data, execution="stacked", drawn_as=dict.fromkeys(data, 0))
    evaluated = []
    whole = StackedSilos.evaluate

    def counted(self, requests, seeds):
        evaluated.append(len(requests))
        return whole(self, requests, seeds)

    monkeypatch.setattr(StackedSilos, "evaluate", counted)
    rows = dict(zip(shared.participants, initial("mlp", 9), strict=True))
    rows[Participant("s1", "0@b")] = rows[Participant("s1", "0@b")] + 0.1
    requests = {n: Evaluate(parameters=row, split="test") for n, row in rows.items()}
    scores = shared.call(requests)
    assert evaluated == [4]
    assert scores[Participant("s0", "0@a")] == scores[Participant("s0", "0@b")]
    alone = federation("mlp", data, execution="looped").call(requests)
    for name in shared.participants:
        assert scores[name].losses == pytest.approx(alone[name].losses, rel=1e-5)


def test_the_same_label_of_draws_with_other_samples_is_not_the_same():
    data = {"0@a": silos("mlp"), "0@b": silos("mlp", seed=5, sizes=(100, 70, 90))}
    shared = federation("mlp", data, execution="stacked", drawn_as=dict.fromkeys(data, 0))
    request = Evaluate(parameters=initial("mlp")[0], split="test")
    replies = shared.call(dict.fromkeys(shared.participants, request))
    one, other = (replies[Participant("s2", label)] for label in data)
    assert one.losses != other.losses


def test_describe():
    reply = federation("cifar10-cnn").call({S0: Describe()})[S0]
    assert reply.samples == {"train": 80, "validation": 15, "test": 15}
    assert sum(reply.labels) == 80
    assert len(reply.labels) == 10
    assert reply.direction is None
    assert federation("mlp").call({S0: Describe()})[S0].labels is None


@pytest.mark.parametrize("model", MODELS)
def test_the_direction_is_the_top_singular_vector_of_samples_and_labels(model):
    data = silos(model)
    rows = data.silos[0].train
    x = [np.nan_to_num(part[rows]).astype(float) for part in data.samples.inputs]
    if x[0].ndim == 4:
        x = [np.moveaxis(x[0] / 127.5 - 1, -1, 1)]
    y = data.samples.targets[rows]
    labels = y[:, None] if data.classes is None else np.eye(data.classes)[y]
    columns = np.hstack([*(part.reshape(len(rows), -1) for part in x), labels]).T
    expected = np.linalg.svd(columns, full_matrices=False)[0][:, 0]
    reply = federation(model, data).call({S0: Describe(direction=True)})[S0]
    assert abs(float(reply.direction.double().numpy() @ expected)) == pytest.approx(1, abs=2e-2)


def test_errors():
    silo = federation("mlp")
    with pytest.raises(SettingsError, match="'x' is not in this federation"):
        silo.call({Participant("x"): Describe()})
    with pytest.raises(SettingsError, match="'x' is not in this federation"):
        federation("mlp", behaviours={"x": never})
    with pytest.raises(SettingsError, match="unknown device 'abacus'"):
        federation("mlp", device="abacus")
    if not torch.cuda.is_available():
        with pytest.raises(SettingsError, match="no usable GPU here; use the device cpu"):
            federation("mlp", device="cuda")
    with pytest.raises(SettingsError, match="steps is 0"):
        TrainSettings(steps=0)


@pytest.mark.parametrize(
    ("lie", "complaint"),
    [
        ({"samples": 2**50}, "claims 1125899906842624 training samples; it described 80"),
        ({"samples": 79}, "claims 79 training samples; it described 80"),
        ({"sample_passes": 2**50}, "claims 1125899906842624 sample passes; there are 192"),
    ],
)
def test_counts_other_than_those_described_are_a_failure(lie, complaint):
    lying = federation("mlp", behaviours={"s0": lambda _, reply: reply.model_copy(update=lie)})
    start = initial("mlp", 1)[0]
    replies = lying.call(dict.fromkeys((S0, S1), Train(parameters=start, settings=SETTINGS)))
    assert isinstance(replies[S1], Trained)
    assert replies[S0].reason == "error"
    assert complaint in replies[S0].detail
    assert lying.samples(S0) == 80

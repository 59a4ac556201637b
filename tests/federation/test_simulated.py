"""The simulated federation: the same numbers looped and stacked, and failures as values."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, LocalTerms, TrainSettings, WithTimeout
from fedegoists.federation.batches import batch_at, batch_plan, share_of, stream_seed
from fedegoists.federation.silo_operations import learning_rates
from fedegoists.federation.stacked import StackedSilos
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from tests.silos import MODELS, SIZES, federation, initial, silos

SETTINGS = TrainSettings(steps=4, batch_size=48, learning_rate=0.05, weight_decay=1e-3)


def terms(kind, model, silo):
    """Local terms of a kind; their strengths and vectors differ between silos."""
    vector = initial(model, 1, seed=10 + silo)[0]
    return {
        "proximal": LocalTerms(anchor=vector, pull=0.1 * (silo + 1), correction=0.01 * vector),
        "moving": LocalTerms(anchor=vector, pull=2.0, inner_steps=2, anchor_rate=0.1),
        "cosine": LocalTerms(towards=vector, attraction=0.5 + silo),
    }[kind]


def call(model, execution, operation, rows=0, **payload):
    silos_ = federation(model, execution=execution)
    payloads = {}
    for k, name in enumerate(silos_.participants):
        start = initial(model, 1, seed=k)[0]
        if rows:  # the second silo is asked about fewer models than the others
            start = torch.cat([initial(model, 1, seed=r) for r in range(rows - (k == 1))])
        payloads[name] = {"parameters": start, **payload}
        if "terms" in payload:
            payloads[name]["terms"] = terms(payload["terms"], model, k)
    return silos_.call(operation, payloads)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        ("train", {"settings": SETTINGS, "seed": 3}),
        ("train", {"settings": SETTINGS, "seed": 3, "terms": "proximal"}),
        ("train", {"settings": SETTINGS, "seed": 3, "terms": "moving"}),
        ("train", {"settings": SETTINGS, "seed": 3, "terms": "cosine"}),
        ("loss_and_gradient", {"batch_size": 32, "seed": 3}),
        ("loss_and_gradient", {"batch_size": 32, "seed": 3, "step": 2, "rows": 3}),
        ("loss_and_gradient", {"split": "validation"}),
        ("evaluate", {"split": "test"}),
        ("evaluate", {"split": "validation", "rows": 3, "share": 0.5, "step": 1, "seed": 3}),
    ],
)
def test_looped_equals_stacked_on_every_model(model, operation, payload):
    if model.startswith("cifar") and operation == "train":
        payload = {**payload, "settings": replace(SETTINGS, augment=True)}
    if model.startswith("cifar") and "rows" in payload:
        payload = {**payload, "augment": True}
    looped = call(model, "looped", operation, **payload)
    stacked = call(model, "stacked", operation, **payload)
    assert looped.keys() == stacked.keys() == {"s0", "s1", "s2"}
    for name, one in looped.items():
        other = stacked[name]
        assert one.keys() == other.keys()
        for key, value in one.items():
            if isinstance(value, torch.Tensor):
                # Rounding can decide which of two nearly equal pixels a pooling layer takes.
                torch.testing.assert_close(value, other[key], rtol=1e-3, atol=3e-4)
            else:
                assert value == pytest.approx(other[key], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("operation", "key"), [("loss_and_gradient", "loss"), ("evaluate", "loss")]
)
def test_more_models_than_fit_at_once_go_through_one_after_the_other(monkeypatch, operation, key):
    payload = {"rows": 4, "split": "validation"}
    whole = call("mlp", "stacked", operation, **payload)
    monkeypatch.setattr("fedegoists.federation.stacked.PER_PASS", 16)
    monkeypatch.setattr("fedegoists.federation.stacked.EVALUATED", 7)
    parts = call("mlp", "stacked", operation, **payload)
    for name, one in whole.items():
        assert one[key] == pytest.approx(parts[name][key], rel=1e-5)
        if "gradient" in one:
            torch.testing.assert_close(one["gradient"], parts[name]["gradient"])


@pytest.mark.parametrize("size", range(2, 18))
def test_two_halves_have_no_sample_in_common(size):
    half = share_of(size, 0.5, None)
    first, second = (set(batch_at(size, half, step, seed=3)) for step in (0, 1))
    assert len(first) == len(second) == size // 2
    assert not first & second


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
        payload = {"parameters": torch.tensor(start).float(), "settings": settings}
        reply = silo.call("train", {"a": payload})["a"]
        np.testing.assert_allclose(reply["parameters"], w, rtol=1e-5)
        assert reply["samples"] == 8
        assert reply["sample_passes"] == 16


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
        replies = federation("mlp", broken, execution=execution).call(
            "train",
            {
                name: {"parameters": initial("mlp")[0], "settings": SETTINGS}
                for name in ("s0", "s1", "s2")
            },
        )
        whole = federation("mlp", data, execution=execution).call(
            "train",
            {
                name: {"parameters": initial("mlp")[0], "settings": SETTINGS}
                for name in ("s0", "s1", "s2")
            },
        )
        failed = f"s{broken_silo}"
        assert isinstance(replies[failed], Failure)
        assert replies[failed].reason == "not finite"
        for name in {"s0", "s1", "s2"} - {failed}:
            torch.testing.assert_close(replies[name]["parameters"], whole[name]["parameters"])


def asked(names=("s0", "s1", "s2")):
    return {n: {"parameters": initial("mlp")[0], "settings": SETTINGS} for n in names}


def never(operation, reply):
    threading.Event().wait()


def no_numbers(operation, reply):
    return {k: v * np.nan if isinstance(v, torch.Tensor) else v for k, v in reply.items()}


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_a_silo_that_never_answers_is_left_out_after_the_timeout(execution):
    silent = federation("mlp", execution=execution, behaviours={"s1": never})
    replies = silent.call("train", asked(), timeout=0.05)
    assert replies["s1"] == Failure("s1", "timeout", "0.05 s")
    healthy = federation("mlp", execution=execution).call("train", asked())
    for name in ("s0", "s2"):
        assert torch.equal(replies[name]["parameters"], healthy[name]["parameters"])
    patient = WithTimeout(silent, 0.05)
    assert patient.call("train", asked(["s1"])) == {"s1": Failure("s1", "timeout", "0.05 s")}
    with pytest.raises(SettingsError, match="a timeout of 0"):
        WithTimeout(silent, 0)


def failing(operation, reply):
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("behaviour", "reason", "detail"),
    [
        (no_numbers, "not finite", "parameters"),
        (lambda _, reply: {**reply, "parameters": torch.zeros(2)}, "wrong shape", "(2,) where"),
        (lambda _, reply: {**reply, "parameters": "me"}, "wrong shape", "str where"),
        (lambda _, reply: {**reply, "loss": float("inf")}, "not finite", "loss"),
        (lambda _, reply: {**reply, "samples": -5}, "error", "samples is -5"),
        (lambda _, reply: {**reply, "samples": 10**400}, "error", "samples is 1000"),
        (lambda _, reply: {**reply, "samples": True}, "error", "samples is True"),
        (
            lambda _, reply: {**reply, "parameters": reply["parameters"] * 0 + 3e38},
            "not finite",
            "parameters",
        ),
        (
            lambda _, reply: {**reply, "parameters": reply["parameters"].double()},
            "wrong shape",
            "float64",
        ),
        (
            lambda _, reply: {**reply, "parameters": reply["parameters"].to_sparse()},
            "wrong shape",
            "sparse",
        ),
        (lambda _, reply: {**reply, "samples": 1e9}, "error", "samples is 1000000000.0"),
        (lambda _, reply: {"loss": 1.0}, "error", "no parameters in the reply to train"),
        (lambda _, reply: "hello", "error", "a str instead of a reply"),
        (failing, "error", "OSError: disk full"),
    ],
)
def test_answers_that_cannot_be_used_are_failures(behaviour, reason, detail):
    replies = federation("mlp", behaviours={"s1": behaviour}).call("train", asked())
    assert isinstance(replies["s1"], Failure)
    assert (replies["s1"].reason, detail in replies["s1"].detail) == (reason, True)
    assert "parameters" in replies["s0"]


def test_what_was_not_asked_for_is_dropped():
    more = {"diary": torch.ones(3), "parameters of others": 7}
    talkative = federation("mlp", behaviours={"s1": lambda _, reply: {**reply, **more}})
    payload = {**asked()["s1"], "personal": ("output.",), "slot": "mine"}
    assert not talkative.call("train", {"s1": payload})["s1"].keys() & more.keys()


def test_silent_silos_are_waited_for_together():
    silent = federation("mlp", behaviours=dict.fromkeys(("s0", "s1", "s2"), never))
    began = time.monotonic()
    replies = silent.call("train", asked(), timeout=0.3)
    assert {reply.reason for reply in replies.values()} == {"timeout"}
    assert time.monotonic() - began < 3 * 0.3


def test_gradients_must_come_for_every_model_asked_about():
    payload = {"s0": {"parameters": initial("mlp", 2)}}
    cut = federation("mlp", behaviours={"s0": lambda _, r: {**r, "loss": r["loss"][:1]}})
    assert cut.call("loss_and_gradient", payload)["s0"] == Failure("s0", "wrong shape", "1 losses")


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_a_payload_that_cannot_be_used_fails_alone(execution):
    payloads = asked()
    payloads["s1"] = {**payloads["s1"], "parameters": torch.zeros(7)}
    replies = federation("mlp", execution=execution).call("train", payloads)
    assert isinstance(replies["s1"], Failure)
    assert "(7,) parameters where" in replies["s1"].detail
    assert "parameters" in replies["s0"]


# Personal parameters ---------------------------------------------------------------------------

PERSONAL = {"personal": ("output.",), "slot": "mine"}


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_personal_parameters_never_leave_a_silo(execution):
    silos_ = federation("mlp", execution=execution)
    mask = silos_.schema.mask(["output."])
    payloads = {name: {**payload, **PERSONAL} for name, payload in asked().items()}
    shown = silos_.call("train", payloads)["s0"]["parameters"]
    whole = federation("mlp", execution=execution).call("train", asked())["s0"]["parameters"]
    assert torch.equal(shown[~mask], whole[~mask])
    assert not shown[mask].any()
    assert torch.equal(silos_.personal_model("s0", shown, ("output.",), "mine"), whole)
    # The silo uses its own values in the next call, whatever is sent in their place.
    again = {**payloads["s0"], "parameters": torch.where(mask, 99.0, shown)}
    other = federation("mlp", execution=execution)
    following = other.call("train", {"s0": {"parameters": whole, "settings": SETTINGS}})["s0"]
    reply = silos_.call("train", {"s0": again})["s0"]
    torch.testing.assert_close(reply["parameters"][~mask], following["parameters"][~mask])
    gradient = silos_.call("loss_and_gradient", {"s0": {**again, "batch_size": 8}})["s0"][
        "gradient"
    ]
    assert not gradient[mask].any()
    assert gradient[~mask].any()


def test_a_personal_step_is_taken_inside_the_silo():
    silos_ = federation("mlp")
    mask = silos_.schema.mask(["output."])
    start = initial("mlp")[0]
    gradient = silos_.call("loss_and_gradient", {"s0": {"parameters": start}})["s0"]["gradient"]
    payload = {"parameters": start[None], "personal_rate": 0.1, **PERSONAL}
    silos_.call("loss_and_gradient", {"s0": payload})
    moved = silos_.personal_model("s0", start, ("output.",), "mine")
    torch.testing.assert_close(moved[mask], (start - 0.1 * gradient)[mask])
    assert torch.equal(moved[~mask], start[~mask])


def test_a_slot_that_was_emptied_begins_without_speed():
    silos_ = federation("mlp")
    start = initial("mlp")[0]
    payload = {"parameters": start[None], "personal_rate": 0.1, "personal_momentum": 0.9}

    def stepped():
        silos_.call("keep", {"s0": {"slot": "mine"}})
        silos_.call("loss_and_gradient", {"s0": {**payload, **PERSONAL}})
        return silos_.personal_model("s0", start, ("output.",), "mine")

    assert torch.equal(stepped(), stepped())


def test_slots_are_copied_and_emptied_and_survive_a_checkpoint():
    silos_ = federation("mlp")
    start = initial("mlp")[0]
    silos_.call("train", {"s0": {"parameters": start, "settings": SETTINGS, **PERSONAL}})
    silos_.call("keep", {"s0": {"slot": "mine/best", "source": "mine"}})
    silos_.call("keep", {"s0": {"slot": "mine"}})
    assert torch.equal(silos_.personal_model("s0", start, ("output.",), "mine"), start)
    best = silos_.personal_model("s0", start, ("output.",), "mine/best")
    assert not torch.equal(best, start)
    other = federation("mlp")
    assert silos_.memory("other") == {}
    other.restore("mine", silos_.memory("mine"))
    assert torch.equal(other.personal_model("s0", start, ("output.",), "mine/best"), best)


def test_what_was_kept_after_a_checkpoint_is_gone_when_it_is_restored():
    silos_ = federation("mlp")
    start = initial("mlp")[0]
    train = {"parameters": start, "settings": SETTINGS, **PERSONAL}
    before = silos_.memory("mine")
    silos_.call("train", {"s0": train, "s1": {**train, "slot": "other"}})
    silos_.call("keep", {"s0": {"slot": "mine/best", "source": "mine"}})
    silos_.restore("mine", before)
    assert silos_.memory("mine") == {}
    assert list(silos_.memory("other")) == ["s1\nother"]


def test_several_trials_are_one_federation_and_share_samples():
    data = silos("mlp")
    both = federation("mlp", {"0": data, "7": data})
    assert both.participants == ("0/s0", "0/s1", "0/s2", "7/s0", "7/s1", "7/s2")
    assert both._silos["7/s0"].inputs[0].data_ptr() == both._silos["0/s0"].inputs[0].data_ptr()
    assert len(both._silos["0/s0"].targets) == sum(SIZES)
    other = federation("mlp", {"0": data, "7": silos("mlp", seed=5)})
    assert len(other._silos["0/s0"].targets) == 2 * sum(SIZES)
    payload = {"parameters": initial("mlp")[0], "split": "test"}
    apart = federation("mlp", silos("mlp", seed=5)).call("evaluate", {"s1": payload})["s1"]
    assert other.call("evaluate", {"7/s1": payload})["7/s1"] == pytest.approx(apart)


def test_a_trial_gives_the_same_numbers_alone_and_beside_others():
    payload = {"parameters": initial("mlp")[0], "settings": SETTINGS}
    alone = federation("mlp", {"7": silos("mlp")}).call("train", {"7/s0": payload})
    beside = federation("mlp", {"3": silos("mlp"), "7": silos("mlp")}).call(
        "train", dict.fromkeys(("3/s0", "7/s0"), payload)
    )
    torch.testing.assert_close(alone["7/s0"]["parameters"], beside["7/s0"]["parameters"])


def test_what_is_the_same_under_several_labels_is_computed_once(monkeypatch):
    """Same samples, draws and parameters; where a row differs, that one is evaluated by itself."""
    data = dict.fromkeys(("0@a", "0@b", "0@c"), silos("mlp"))
    shared = federation("mlp", data, execution="stacked", drawn_as=dict.fromkeys(data, "0"))
    asked = []
    whole = StackedSilos.evaluate

    def counted(self, rows, *args, **options):
        asked.append(len(rows))
        return whole(self, rows, *args, **options)

    monkeypatch.setattr(StackedSilos, "evaluate", counted)
    rows = dict(zip(shared.participants, initial("mlp", 9), strict=True))
    changed = {**rows, "0@b/s1": rows["0@b/s1"] + 0.1}
    payloads = {n: {"parameters": row, "split": "test"} for n, row in changed.items()}
    scores = shared.call("evaluate", payloads)
    assert asked == [4]
    assert scores["0@a/s0"] == scores["0@b/s0"]
    alone = federation("mlp", data, execution="looped").call("evaluate", payloads)
    for name in shared.participants:
        assert scores[name]["loss"] == pytest.approx(alone[name]["loss"], rel=1e-5)


def test_the_same_label_of_draws_with_other_samples_is_not_the_same():
    data = {"0@a": silos("mlp"), "0@b": silos("mlp", seed=5, sizes=(100, 70, 90))}
    shared = federation("mlp", data, execution="stacked", drawn_as=dict.fromkeys(data, "0"))
    one = {"parameters": initial("mlp")[0], "split": "test"}
    replies = shared.call("evaluate", dict.fromkeys(shared.participants, one))
    assert replies["0@a/s2"]["loss"] != replies["0@b/s2"]["loss"]


def test_describe():
    reply = federation("cifar10-cnn").call("describe", {"s0": {}})["s0"]
    assert reply["samples"] == {"train": 80, "validation": 15, "test": 15}
    assert sum(reply["labels"]) == 80
    assert len(reply["labels"]) == 10
    assert "direction" not in reply
    assert "labels" not in federation("mlp").call("describe", {"s0": {}})["s0"]


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
    reply = federation(model, data).call("describe", {"s0": {"direction": True}})["s0"]
    assert abs(float(reply["direction"].double().numpy() @ expected)) == pytest.approx(1, abs=2e-2)


def test_errors():
    silo = federation("mlp")
    with pytest.raises(SettingsError, match="unknown operation 'steal'"):
        silo.call("steal", {"s0": {}})
    with pytest.raises(SettingsError, match="'x' is not in this federation"):
        silo.call("train", {"x": {}})
    with pytest.raises(SettingsError, match="'x' is not in this federation"):
        federation("mlp", behaviours={"x": never})
    with pytest.raises(SettingsError, match="unknown device 'abacus'"):
        federation("mlp", device="abacus")
    if not torch.cuda.is_available():
        with pytest.raises(SettingsError, match="no usable GPU here; use the device cpu"):
            federation("mlp", device="cuda")
    with pytest.raises(SettingsError, match="steps is 0"):
        TrainSettings(steps=0)

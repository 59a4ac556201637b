"""What every registered method must hold; rounds by hand are in a file for each method."""

import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import FileError, PartitionError, SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.data import Samples, SiloedData
from fedegoists.methods import METHOD_ENTRIES, METHODS, FedAvg, FedProx, Local
from fedegoists.methods.method import mixing_matrix
from fedegoists.methods.method_run import StoppedError
from tests.methods.hand import whole_models
from tests.silos import FOR_NETWORKS, federation, groups, initial, participant, run, silos

QUICK = TrainSettings(steps=3, batch_size=32, learning_rate=0.05)


def rounds(method, silos_, coalitions, count=2, start=None):
    start = initial("mlp", len(silos_.participants)) if start is None else start
    coalitions = groups(coalitions)
    state = method.start(silos_, coalitions, start, seed=5)
    for _ in range(count):
        state, report = method.round(silos_, coalitions, state, seed=5)
    return state, report


# Averaging -------------------------------------------------------------------------------------


def test_mixing_matrix():
    a, b, c = map(participant, "abc")
    mixed = mixing_matrix([[a, c], [b]], [a, b, c], {a: 1, b: 5, c: 3})
    assert mixed.tolist() == [[0.25, 0, 0.75], [0, 1, 0], [0.25, 0, 0.75]]
    failed = mixing_matrix([[a, c], [b]], [a, b, c], {a: 2})
    assert failed.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    with pytest.raises(PartitionError, match="not a partition"):
        mixing_matrix([[a]], [a, b], {})


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
@settings(deadline=None)
def test_mixing_rows_sum_to_one_and_stay_inside_coalitions(labels, data):
    names = [participant(f"p{k}") for k in range(len(labels))]
    coalitions = [[n for n, x in zip(names, labels, strict=True) if x == k] for k in set(labels)]
    weights = {n: data.draw(st.integers(0, 5)) for n in names}
    matrix = mixing_matrix(coalitions, names, weights)
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-6)
    for i, one in enumerate(labels):
        for j, other in enumerate(labels):
            assert one == other or matrix[i, j] == 0


@pytest.mark.parametrize(
    ("method", "given", "complaint"),
    [
        ("fedprox", {"mu": -1.0}, "fedprox: mu is -1.0; expected 0 to 1e"),
        ("fedprox", {"mu": math.nan}, "fedprox: mu is nan; expected 0 to 1e"),
        ("fedprox", {"mu": "strong"}, "fedprox: mu is 'strong'; expected a number"),
        ("fedprox", {"mu": True}, "fedprox: mu is True; expected a number"),
        ("pfedme", {"inner_steps": 2.5}, "pfedme: inner_steps is 2.5; expected a whole number"),
        ("pfedhn", {"hidden": math.inf}, "pfedhn: hidden is inf; expected a whole number"),
        ("fedegoists", {"whole_coalition": 1}, "whole_coalition is 1; expected true or false"),
    ],
)
def test_settings_outside_their_range_or_of_another_kind_are_refused(method, given, complaint):
    with pytest.raises(SettingsError, match=complaint):
        METHODS[method](**given)
    assert METHODS["fedprox"](mu=1).mu == 1  # a whole number is a number


# Every method ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOR_NETWORKS)
@given(st.lists(st.integers(0, 2), min_size=4, max_size=4), st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_nothing_crosses_a_coalition_border(name, labels, changed):
    """Change one silo's data: everybody outside its coalition has the same bytes as before."""
    sizes = (60, 50, 70, 80)
    data = silos("mlp", sizes=sizes)
    inputs = data.samples.inputs[0].copy()
    inputs[data.silos[changed].train] *= -1.5
    other = SiloedData(
        data.name, data.task, Samples((inputs,), data.samples.targets), data.silos, None, "", ()
    )
    coalitions = [[f"s{k}" for k in range(4) if labels[k] == x] for x in set(labels)]
    method = METHODS[name](settings=QUICK)
    for execution in ("looped", "stacked"):
        one, _ = rounds(method, federation("mlp", data, execution=execution), coalitions)
        two, _ = rounds(method, federation("mlp", other, execution=execution), coalitions)
        for k in range(4):
            if labels[k] != labels[changed]:
                assert torch.equal(one.parameters[k], two.parameters[k])
        # FedFomo takes others' models alone where one's own is no better.
        if name != "fedfomo":
            assert not torch.equal(one.parameters[changed], two.parameters[changed])


@pytest.mark.parametrize("name", FOR_NETWORKS)
def test_alone_is_local(name):
    method = METHODS[name](settings=QUICK)
    everybody_alone = [["s0"], ["s1"], ["s2"]]
    # EgoMix keeps its momentum over rounds, as Local can.
    local = Local(QUICK, keep_momentum=getattr(method, "keep_momentum", False))
    own, _ = rounds(local, federation("mlp"), everybody_alone, 4)
    kept = federation("mlp")
    same, _ = rounds(method, kept, everybody_alone, 4)
    whole = whole_models(method, kept, same) if method.personal else same.parameters
    torch.testing.assert_close(own.parameters, torch.as_tensor(np.stack([*whole])))


def personal_layers(name, model):
    """Output layers; the first ones for a method that needs the output layer of all."""
    first = {"mlp": "hidden.", "cifar10-cnn": "conv1."}[model]
    return (first,) if METHOD_ENTRIES[name].represents else ("output.",)


@pytest.mark.parametrize("name", FOR_NETWORKS)
@pytest.mark.parametrize("model", ["mlp", "cifar10-cnn"])
def test_looped_equals_stacked(name, model):
    """Two rounds in company and alone, with personal layers for the images."""
    personal = personal_layers(name, model) if model == "cifar10-cnn" else ()
    method = METHODS[name](settings=QUICK, personal=personal)
    coalitions = [["s0", "s2"], ["s1"]]
    looped, one = rounds(
        method, federation(model, execution="looped"), coalitions, start=initial(model)
    )
    stacked, other = rounds(
        method, federation(model, execution="stacked"), coalitions, start=initial(model)
    )
    for key, value in looped.tensors.items():
        torch.testing.assert_close(value, stacked.tensors[key], rtol=1e-3, atol=5e-4)
    assert one.sample_passes == other.sample_passes
    assert (one.bytes_sent, one.bytes_received) == (other.bytes_sent, other.bytes_received)


def never(request, reply):
    threading.Event().wait()


def times(reply, factor, added=0.0):
    """A reply whose tensors are multiplied, and added to."""
    tensors = {k: v * factor + added for k, v in vars(reply).items() if isinstance(v, torch.Tensor)}
    return reply.model_copy(update=tensors)


def no_numbers(request, reply):
    return times(reply, math.nan)


@pytest.mark.parametrize("execution", ["looped", "stacked"])
@pytest.mark.parametrize("name", FOR_NETWORKS)
def test_who_fails_is_reported_and_the_rest_is_unaffected(name, execution):
    """One silo never answers and another has no numbers; a third coalition does not notice."""
    method = METHODS[name](settings=QUICK)
    data = silos("mlp", sizes=(60, 50, 70, 80, 60))
    coalitions = [["s0", "s1"], ["s2"], ["s3", "s4"]]
    unreliable = federation(
        "mlp", data, execution=execution, behaviours={"s1": never, "s2": no_numbers}
    )
    start = initial("mlp", 5)
    outcome = run(method, unreliable, coalitions, start, rounds=2, seed=5, timeout=0.02)
    assert outcome.state.round == 2
    reasons = {(f.participant.name, f.reason) for _, f in outcome.failures}
    assert reasons == {("s1", "timeout"), ("s2", "not finite")}
    assert torch.isfinite(outcome.state.parameters).all()
    healthy = run(
        method, federation("mlp", data, execution=execution), coalitions, start, rounds=2, seed=5
    )
    assert torch.equal(outcome.state.parameters[3:], healthy.state.parameters[3:])
    assert not torch.equal(outcome.state.parameters[0], start[0])  # its partner goes on


# Running, choosing, resuming -------------------------------------------------------------------


@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("name", FOR_NETWORKS)
def test_a_stopped_run_continues_to_the_same_bytes(name, personal, tmp_path):
    layers = personal_layers(name, "mlp") if personal else ()
    method = METHODS[name](settings=QUICK, personal=layers)
    coalitions = [["s0", "s1"], ["s2"]]
    start = initial("mlp")
    whole = run(method, federation("mlp"), coalitions, start, rounds=5, seed=5)
    path = tmp_path / "state.safetensors"
    run(method, federation("mlp"), coalitions, start, rounds=2, seed=5, checkpoint=path)
    resumed = run(method, federation("mlp"), coalitions, start, rounds=5, seed=5, checkpoint=path)
    assert torch.equal(whole.state.parameters, resumed.state.parameters)
    assert torch.equal(whole.best, resumed.best)
    assert whole.rows == resumed.rows
    assert whole.spent == resumed.spent
    assert (whole.best_round, whole.best_score) == (resumed.best_round, resumed.best_score)


def test_seldom_checkpoints_are_written_when_it_is_asked_to_stop(tmp_path):
    path = tmp_path / "state.safetensors"
    args = (federation("mlp"), [["s0", "s1"], ["s2"]], initial("mlp"))
    common = {"seed": 5, "checkpoint": path, "save_every": 1000.0}
    run(FedAvg(QUICK), *args, rounds=2, **common)
    assert not path.exists()
    with pytest.raises(StoppedError, match="after 1 of 3"):
        run(FedAvg(QUICK), *args, rounds=3, stop=lambda: True, **common)
    resumed = run(FedAvg(QUICK), *args, rounds=3, **common)
    assert torch.equal(resumed.best, run(FedAvg(QUICK), *args, rounds=3, seed=5).best)


@pytest.mark.parametrize("name", FOR_NETWORKS)
def test_a_huge_answer_reaches_nobody(name):
    """So large that sums of it overflow: also its partners, and other coalitions, go on."""

    def huge(request, reply):
        return times(reply, 0.0, 3e38)

    data = silos("mlp", sizes=(60, 50, 70, 80, 60))
    coalitions = [["s0", "s1"], ["s2"], ["s3", "s4"]]
    start = initial("mlp", 5)
    wild = federation("mlp", data, behaviours={"s1": huge})
    outcome = run(METHODS[name](QUICK), wild, coalitions, start, rounds=3, seed=5)
    assert {failure.participant.name for _, failure in outcome.failures} == {"s1"}
    healthy = run(
        METHODS[name](QUICK), federation("mlp", data), coalitions, start, rounds=3, seed=5
    )
    assert torch.equal(outcome.state.parameters[2:], healthy.state.parameters[2:])


@pytest.mark.parametrize("change", ["settings", "coalitions", "seed", "start"])
def test_a_checkpoint_is_continued_only_by_the_same_run(change, tmp_path):
    path, coalitions, start = tmp_path / "state.safetensors", [["s0", "s1"], ["s2"]], initial("mlp")
    run(FedProx(QUICK), federation("mlp"), coalitions, start, rounds=1, seed=5, checkpoint=path)
    method = FedProx(QUICK, mu=0.5) if change == "settings" else FedProx(QUICK)
    coalitions = [["s0"], ["s1", "s2"]] if change == "coalitions" else coalitions
    start = start + 1 if change == "start" else start
    seed = 6 if change == "seed" else 5
    with pytest.raises(FileError, match="a checkpoint of another run"):
        run(method, federation("mlp"), coalitions, start, rounds=2, seed=seed, checkpoint=path)


def test_a_damaged_or_older_checkpoint_leads_to_the_same_bytes(tmp_path):
    path, args = tmp_path / "state.safetensors", ([["s0", "s1"], ["s2"]], initial("mlp"))
    whole = run(FedAvg(QUICK), federation("mlp"), *args, rounds=5, seed=5)

    def resumed(count):
        return run(FedAvg(QUICK), federation("mlp"), *args, rounds=count, seed=5, checkpoint=path)

    resumed(2)
    old = path.read_bytes()
    resumed(3)
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 0x40  # a weight: without a seal it would be trained further, and delivered
    for content in (bytes(damaged), path.read_bytes()[:-4], old):
        path.write_bytes(content)
        again = resumed(5)
        assert torch.equal(whole.best, again.best)
        assert whole.rows == again.rows


def test_the_step_is_chosen_on_validation_data():
    """A learning rate that is far too large: the start remains the best step where it may be."""
    wild = TrainSettings(steps=3, batch_size=32, learning_rate=3.0, momentum=0.0)
    args = (Local(wild), federation("mlp"), [["s0", "s1", "s2"]], initial("mlp"))
    outcome = run(*args, rounds=2, seed=1, may_keep_start=True)
    validation = {
        (row.participant.name, row.round): row.value
        for row in outcome.rows
        if row.split == "validation" and row.metric == "mse"
    }
    for k, name in enumerate(("s0", "s1", "s2")):
        scores = [validation.get((name, r), math.inf) for r in range(3)]
        assert outcome.best_round[k] == int(np.argmin(scores))
    assert torch.equal(outcome.best[0], initial("mlp")[0])


def test_a_foreign_or_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    args = ([["s0", "s1", "s2"]], initial("mlp"))
    run(Local(QUICK), federation("mlp"), *args, rounds=1, seed=1, checkpoint=path)
    with pytest.raises(FileError, match="a checkpoint of another run"):
        run(FedAvg(QUICK), federation("mlp"), *args, rounds=1, seed=1, checkpoint=path)
    path.write_bytes(b"garbage")
    with pytest.raises(FileError, match="not a checkpoint"):
        run(Local(QUICK), federation("mlp"), *args, rounds=1, seed=1, checkpoint=path)


def test_state_is_a_value():
    start = initial("mlp")
    before = start.clone()
    for method in (METHODS[name] for name in FOR_NETWORKS):
        rounds(method(QUICK), federation("mlp"), [["s0", "s1", "s2"]], 2, start)
        assert torch.equal(start, before), method.key


@pytest.mark.slow
def test_kill_9_at_a_random_moment_and_resume(tmp_path):
    """The command line, killed without warning, ends with the same files as if it never was."""
    command = [
        str(Path(sys.executable).with_name("fedegoists")),
        *("train", "--data", "synthetic-weak", "--seeds", "1", "--steps", "600"),
        *("--methods", "local,fedavg+ft", "--out"),
    ]
    environment = {**os.environ, "COLUMNS": "100"}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    rng = random.Random(1)
    for _ in range(3):
        running = subprocess.Popen(
            [*command, str(tmp_path / "killed"), "--resume"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        time.sleep(rng.uniform(2.5, 6))
        running.send_signal(signal.SIGKILL)
        running.wait()
    subprocess.run(
        [*command, str(tmp_path / "killed"), "--resume"], check=True, capture_output=True
    )
    for name in ("metrics.csv", "summary.csv"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "killed" / name).read_bytes() == whole

"""Any module: frozen and tied parameters, batch statistics, dropout, seeds, both engines."""

import csv

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.bench_own_modules import NETWORKS
from benchmarks.bench_training import silos as random_images
from benchmarks.measure import RESULTS
from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Evaluate,
    Evaluated,
    Failure,
    Gradient,
    Participant,
    SimulatedFederation,
    Train,
    Trained,
    TrainSettings,
)
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.seeded_dropout import hashed_uniforms
from fedegoists.methods import FedAvg, RunSettings, run
from fedegoists.methods.failed_rounds import FailedRunError
from tests.own_modules import FEATURES, LOOPED_ONLY, MODULES, module, own_silos

S0 = Participant("s0")
SETTINGS = TrainSettings(steps=3, batch_size=16, learning_rate=0.05, weight_decay=0.01)
STACKABLE = [name for name in MODULES if name not in LOOPED_ONLY]


def federation(name, execution="looped", build=module, **options):
    return SimulatedFederation(own_silos(name), build(name), execution=execution, **options)


def start(silos, name, seed=3):
    return silos.schema.flatten(dict(module(name, seed).named_parameters()))


def replies(name, execution, kind, **fields):
    silos = federation(name, execution)
    row = start(silos, name)
    rows = torch.stack([row, 1.1 * row]) if fields.pop("two", False) else row
    return silos.call({one: kind(parameters=rows, **fields) for one in silos.participants})


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(STACKABLE),
    optimiser=st.sampled_from(["sgd", "adam", "adamw"]),
    batch=st.integers(2, 60),
    seed=st.integers(0, 5),
    weights=st.sampled_from([None, "balanced", (1.0, 0.5, 2.0)]),
)
def test_looped_and_stacked_silos_train_alike(name, optimiser, batch, seed, weights):
    if optimiser != "sgd" and name == "batch norm":
        # A bias before batch normalisation has a gradient of zero up to rounding; Adam goes by
        # its sign.
        optimiser = "sgd"
    own = SETTINGS.changed(optimiser=optimiser, batch_size=batch, class_weights=weights)
    looped, stacked = (
        replies(name, execution, Train, settings=own, seed=seed)
        for execution in ("looped", "stacked")
    )
    for one, other in zip(looped.values(), stacked.values(), strict=True):
        assert isinstance(one, Trained)
        # Adam divides a gradient by its own size, so where that is nearly zero its rounding counts.
        gap = (one.parameters - other.parameters).abs()
        usual = gap <= 2e-4 + 1e-3 * other.parameters.abs()
        assert usual.all() if optimiser == "sgd" else usual.float().mean() > 0.9
        assert gap.max() < 5e-3
        assert one.loss == pytest.approx(other.loss, rel=1e-3)


@pytest.mark.parametrize("name", STACKABLE)
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Evaluate, {"split": "test", "two": True}),
        (Gradient, {"split": "train", "batch_size": 8, "two": True}),
        (Gradient, {"split": "validation"}),
        (Gradient, {"split": "train", "share": 0.5, "class_weights": "balanced"}),
    ],
)
def test_looped_and_stacked_silos_answer_alike(name, kind, fields):
    looped, stacked = (replies(name, engine, kind, **fields) for engine in ("looped", "stacked"))
    for one, other in zip(looped.values(), stacked.values(), strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-4)
        if isinstance(one, Evaluated):
            assert one.scores == other.scores
        else:
            torch.testing.assert_close(one.gradient, other.gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", LOOPED_ONLY)
def test_what_cannot_be_stacked_is_looped_and_says_why(name):
    assert federation(name, "auto").engine.name == "looped"
    assert LOOPED_ONLY[name] in federation(name, "auto").engine.reason
    with pytest.raises(SettingsError, match=f"cannot be stacked.*{LOOPED_ONLY[name]}.*looped"):
        federation(name, "stacked")


def test_large_networks_are_looped_on_a_cpu_and_small_ones_stacked():
    small = federation("linear", "auto").engine
    wide = nn.Sequential(nn.Linear(FEATURES, 4000), nn.ReLU(), nn.Linear(4000, 3))
    large = SimulatedFederation(own_silos("linear"), wide).engine
    assert (small.name, large.name) == ("stacked", "looped")
    assert "72,000 operations for a sample" in str(large)


def test_a_small_cnn_is_looped_on_a_cpu_and_stacked_only_if_asked():
    """Its silos stacked are slower, see benchmarks/results/own_modules_cpu.csv."""
    images, build = random_images(2, 20), NETWORKS["one convolution"]
    assert SimulatedFederation(images, build(), execution="stacked").engine.name == "stacked"
    engine = SimulatedFederation(images, build(), execution="auto").engine
    assert (engine.name, engine.reason) == (
        "looped",
        "404,800 operations for a sample, faster one silo at a time on a CPU",
    )
    with (RESULTS / "own_modules_cpu.csv").open() as file:
        faster = {row["network"]: row["/ one at a time"] for row in csv.DictReader(file)}
    assert float(faster["one convolution"]) < 1  # of stacked silos, which come last


@pytest.mark.parametrize("name", MODULES)
def test_the_same_seed_gives_the_same_result_and_leaves_global_randomness_alone(name):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    one = replies(name, "auto", Train, settings=SETTINGS, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    same = replies(name, "auto", Train, settings=SETTINGS, seed=1)
    other = replies(name, "auto", Train, settings=SETTINGS, seed=2)
    assert torch.equal(one[S0].parameters, same[S0].parameters)
    assert not torch.equal(one[S0].parameters, other[S0].parameters)


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_frozen_parameters_and_their_statistics_neither_change_nor_travel(engine):
    own = module("adapter")
    before = {name: value.clone() for name, value in own.backbone.state_dict().items()}
    silos = SimulatedFederation(own_silos("adapter"), own, execution=engine)
    assert silos.schema.names == ("down.weight", "up.weight", "output.weight", "output.bias")
    row = start(silos, "adapter")
    reply = silos.call({S0: Train(parameters=row, settings=SETTINGS)})[S0]
    assert not torch.equal(reply.parameters, row)
    silos.call({S0: Evaluate(parameters=row, split="test")})
    for name, value in own.backbone.state_dict().items():
        assert torch.equal(value, before[name]), name
    whole = silos.whole_state(S0, reply.parameters)
    assert torch.equal(whole["backbone.0.weight"], before["0.weight"])
    module("adapter").load_state_dict(whole)  # complete


def test_another_frozen_part_is_another_network():
    one, same, other = (
        SimulatedFederation(own_silos("adapter"), module("adapter", seed)).schema
        for seed in (0, 0, 1)
    )
    assert one == same != other


def test_a_module_without_trainable_parameters_is_refused():
    with pytest.raises(SettingsError, match=r"nothing to train.*requires_grad=True"):
        federation("linear", build=lambda name: module(name).requires_grad_(False))


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_tied_parameters_stay_tied(engine):
    silos = federation("tied", engine)
    assert silos.schema.names == ("first.weight", "first.bias", "output.weight", "output.bias")
    row = start(silos, "tied")
    reply = silos.call({S0: Train(parameters=row, settings=SETTINGS)})[S0]
    whole = silos.whole_state(S0, reply.parameters)
    assert torch.equal(whole["second.weight"], whole["first.weight"])
    assert torch.equal(whole["third.weight"], whole["first.weight"])
    assert not torch.equal(whole["first.weight"], silos.schema.unflatten(row)["first.weight"])


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_dropout_is_on_in_training_and_off_in_evaluation(engine):
    """A dropped layer leaves the bias alone: with a probability of one, training sees no input."""
    own = nn.Sequential(nn.Dropout(1.0), nn.Linear(FEATURES, 3))
    silos = SimulatedFederation(own_silos("linear"), own, execution=engine)
    row = torch.cat([torch.zeros(3 * FEATURES), torch.zeros(3)])
    trained = silos.call({S0: Train(parameters=row, settings=SETTINGS)})[S0].parameters
    assert not trained[: 3 * FEATURES].any()
    assert trained[3 * FEATURES :].any()
    own.train()
    random = torch.randn(row.shape, generator=torch.Generator().manual_seed(0))
    first, second = (
        silos.call({S0: Evaluate(parameters=one, split="test")})[S0].losses
        for one in (random, torch.cat([torch.zeros(3 * FEATURES), random[3 * FEATURES :]]))
    )
    assert first != second


def test_masks_differ_between_layers_steps_and_samples_and_have_their_probability():
    seeds = [torch.tensor(seed) for seed in range(200)]
    draws = torch.stack([hashed_uniforms(seed, 500) for seed in seeds])
    assert len({tuple(row) for row in (draws < 0.5).tolist()}) == 200
    assert (draws < 0.3).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert abs(torch.corrcoef(draws)[~torch.eye(200, dtype=bool)]).mean() < 0.06


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_a_layer_that_is_used_twice_drops_other_inputs_each_time(engine):
    """A quarter of the inputs is left; it were a half if both dropped the same."""
    one = nn.Dropout(0.5)
    own = nn.Sequential(one, one, nn.Linear(FEATURES, 3))
    silos = SimulatedFederation(own_silos("linear"), own, execution=engine)
    assert silos.schema.names == ("2.weight", "2.bias")
    seen = []
    own[2].register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    if engine == "looped":
        request = Train(parameters=torch.zeros(21), settings=SETTINGS.changed(steps=50))
        silos.call({S0: request})
        kept = torch.cat(seen) != 0
        assert kept.float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert isinstance(own[0].dropout_seed.item(), int)  # not left inside of `vmap`


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_batch_statistics_are_those_of_the_silos_own_training_samples(engine):
    """Worked out with NumPy: one batch holds all training samples of a small silo."""
    data = own_silos("linear")
    norm = nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 3))
    silos = SimulatedFederation(data, norm, execution=engine)
    row = silos.schema.flatten(dict(norm.named_parameters()))
    for silo in data.silos:
        x = data.samples.inputs[0][silo.train].astype(float)
        state = silos.whole_state(Participant(silo.name), row)
        np.testing.assert_allclose(state["0.running_mean"], x.mean(0), rtol=1e-4)
        np.testing.assert_allclose(state["0.running_var"], x.var(0, ddof=1), rtol=1e-4)
        # The statistics of validation and test samples play no part.
        norm.load_state_dict(state)
        norm.eval()
        own = torch.from_numpy(data.samples.inputs[0][silo.test])
        targets = torch.from_numpy(data.samples.targets[silo.test])
        expected = nn.functional.cross_entropy(norm(own), targets).item()
        request = Evaluate(parameters=row, split="test")
        (reply,) = silos.call({Participant(silo.name): request}).values()
        assert reply.losses[0] == pytest.approx(expected, rel=1e-4)


def test_buffers_of_an_own_kind_follow_from_the_model_too():
    silos = federation("counting")
    row = start(silos, "counting")
    silos.call({S0: Train(parameters=row, settings=SETTINGS)})
    first = silos.whole_state(S0, row)["centre"]
    silos.call({S0: Train(parameters=row, settings=SETTINGS)})
    assert first.any()
    silos._trainer._recent.clear()
    assert torch.equal(silos.whole_state(S0, row)["centre"], first)


def test_privacy_and_batch_statistics_exclude_each_other():
    silos = federation("batch norm")
    row = start(silos, "batch norm")
    for request in (
        Train(parameters=row, settings=SETTINGS.changed(clip=1.0, noise=1.0)),
        Gradient(parameters=row, clip=1.0),
        Evaluate(parameters=row, split="test", bound=1.0, noise=1.0),
    ):
        reply = silos.call({S0: request})[S0]
        assert isinstance(reply, Failure)
        assert "group normalisation" in reply.detail


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Linear(FEATURES, 2), r"returns \(2, 2\) for 2 samples.*needs \(2, 3\)"),
        (lambda: nn.Linear(FEATURES + 1, 3), r"fails on samples of the shape \(2, 6\): Runtime"),
        (lambda: nn.LSTM(FEATURES, 3), "returns a tuple; have it return one tensor"),
    ],
)
def test_a_module_that_does_not_fit_is_refused_before_anything_trains(build, message):
    with pytest.raises(SettingsError, match=message):
        SimulatedFederation(own_silos("linear"), build())


# Failures --------------------------------------------------------------------------------------


class Broken(nn.Module):
    """A module that fails as soon as it is trained on real batches."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(FEATURES, 3)

    def forward(self, x):
        if self.training and len(x) > 2:
            raise RuntimeError("no such batch")
        return self.output(x)


def test_a_run_in_which_every_silo_fails_is_no_result():
    silos = SimulatedFederation(own_silos("linear"), Broken())
    rows = torch.zeros(3, silos.schema.size)
    with pytest.raises(FailedRunError, match=r"fedavg, round 1: every silo failed.*no such batch"):
        run(FedAvg(SETTINGS), silos, [silos.participants], rows, RunSettings(rounds=2, seed=0))


def natural_units(scale):
    """A regression whose targets are large: with the usual rate, training diverges."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32) * scale
    y = (x[:, 0] + 100).astype(np.float32)
    split = (np.arange(40), np.arange(40, 50), np.arange(50, 60))
    silos = (SiloIndices("s0", *split),)
    return SiloedData("units", "regression", Samples((x,), y), silos, None, "", ())


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_large_class_weights_alone_are_no_divergence(engine):
    """The loss with weights of 200 is 200 times as large, whatever the model does."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    split = (np.arange(40), np.arange(40, 50), np.arange(50, 60))
    targets = (x[:, 0] > 0).astype(np.int64)
    silos = (SiloIndices("s0", *split),)
    data = SiloedData("two", "binary", Samples((x,), targets), silos, 2, "", ())
    calm = SimulatedFederation(data, nn.Linear(2, 1), execution=engine)
    own = TrainSettings(steps=5, learning_rate=1e-5, class_weights=(200.0, 200.0))
    request = Train(parameters=torch.zeros(3), settings=own)
    reply = calm.call({S0: request})[S0]
    assert reply.loss == pytest.approx(200 * np.log(2), rel=0.05)
    assert not calm._diverged(S0, request, reply)
    plain = request.changed(settings=own.changed(class_weights=None))
    assert calm._diverged(S0, plain, reply)  # the same loss without weights is one


def test_a_deployed_silo_logs_that_its_rate_was_halved(caplog):
    request = Train(parameters=torch.zeros(3), settings=TrainSettings(steps=60, learning_rate=0.2))
    silo = SimulatedFederation(natural_units(5.0), nn.Linear(2, 1), secrets={"s0": bytes(32)})
    silo.call({S0: request})
    said = f"s0: training diverged; the learning rate was halved {silo.halved[S0]} times"
    assert said in caplog.text
    caplog.clear()
    SimulatedFederation(natural_units(5.0), nn.Linear(2, 1)).call({S0: request})
    assert not caplog.text  # the run's own log says it


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_where_training_diverges_the_rate_is_halved_and_that_is_said(engine):
    request = Train(parameters=torch.zeros(3), settings=TrainSettings(steps=60, learning_rate=0.2))
    wild = SimulatedFederation(natural_units(5.0), nn.Linear(2, 1), execution=engine)
    reply = wild.call({S0: request})[S0]
    assert isinstance(reply, Trained)
    halvings = wild.halved[S0]
    assert 1 <= halvings <= 6
    slower = request.settings.changed(learning_rate=0.2 / 2**halvings)
    expected = wild.call({S0: request.changed(settings=slower)})[S0]
    assert torch.equal(reply.parameters, expected.parameters)
    calm = SimulatedFederation(natural_units(1.0), nn.Linear(2, 1), execution=engine)
    calm.call({S0: request})
    assert not calm.halved
    hopeless = SimulatedFederation(natural_units(1e6), nn.Linear(2, 1), execution=engine)
    assert hopeless.call({S0: request})[S0].reason == "not finite"


# Passes, 16 bits, averaged statistics ----------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from([name for name in STACKABLE if name not in ("batch norm", "residual")]),
    engine=st.sampled_from(["looped", "stacked"]),
    batch=st.integers(2, 60),
    passes=st.integers(2, 9),
    weights=st.sampled_from([None, "balanced"]),
)
def test_a_step_in_passes_is_the_step_of_the_whole_batch(name, engine, batch, passes, weights):
    """Unless dropout or batch normalisation see the parts by themselves."""
    if name == "dropout":
        return
    own = SETTINGS.changed(batch_size=batch, class_weights=weights)
    whole, parts = (
        replies(name, engine, Train, settings=one, seed=1)
        for one in (own, own.changed(passes=passes))
    )
    for one, other in zip(whole.values(), parts.values(), strict=True):
        torch.testing.assert_close(one.parameters, other.parameters, rtol=1e-3, atol=1e-5)
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        assert (one.samples, one.sample_passes) == (other.samples, other.sample_passes)


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_passes_limit_the_samples_in_the_network_at_once(engine):
    own = nn.Linear(FEATURES, 3)
    silos = SimulatedFederation(own_silos("linear"), own, execution=engine)
    seen = set()
    own.register_forward_pre_hook(lambda _, given: seen.add(len(given[0])))
    request = Train(parameters=torch.zeros(21), settings=SETTINGS.changed(passes=3))
    silos.call({S0: request})
    assert seen == {5, 6}


def test_private_training_in_passes_is_the_same_too():
    own = SETTINGS.changed(clip=0.5, noise=0.3)
    whole, parts = (
        replies("linear", "looped", Train, settings=one, seed=1)
        for one in (own, own.changed(passes=4))
    )
    for one, other in zip(whole.values(), parts.values(), strict=True):
        torch.testing.assert_close(one.parameters, other.parameters, rtol=1e-4, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from([name for name in STACKABLE if name not in ("batch norm", "residual")]),
    engine=st.sampled_from(["looped", "stacked"]),
    batch=st.one_of(st.none(), st.integers(2, 60)),
    passes=st.integers(2, 9),
    weights=st.sampled_from([None, "balanced"]),
    clip=st.sampled_from([None, 0.3]),
)
def test_a_gradient_in_passes_is_that_of_the_whole_batch(
    name, engine, batch, passes, weights, clip
):
    if name == "dropout" or (clip and weights):
        return
    whole, parts = (
        replies(
            name, engine, Gradient, batch_size=batch, class_weights=weights, clip=clip, passes=one
        )
        for one in (1, passes)
    )
    for one, other in zip(whole.values(), parts.values(), strict=True):
        torch.testing.assert_close(one.gradient, other.gradient, rtol=1e-3, atol=1e-5)
        assert one.losses == pytest.approx(other.losses, rel=1e-4)
        assert one.samples == other.samples


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_passes_of_a_gradient_limit_the_samples_in_the_network_at_once(engine):
    own = nn.Linear(FEATURES, 3)
    silos = SimulatedFederation(own_silos("linear"), own, execution=engine)
    seen = set()
    own.register_forward_pre_hook(lambda _, given: seen.add(len(given[0])))
    silos.call({S0: Gradient(parameters=torch.zeros(21), batch_size=16, passes=3)})
    assert seen == {5, 6}


def test_looped_and_stacked_gradients_in_passes_drop_the_same():
    looped, stacked, whole = (
        replies("dropout", engine, Gradient, batch_size=12, passes=passes, seed=1)
        for engine, passes in (("looped", 3), ("stacked", 3), ("looped", 1))
    )
    for name, one in looped.items():
        torch.testing.assert_close(one.gradient, stacked[name].gradient, rtol=1e-3, atol=1e-5)
        assert not torch.allclose(one.gradient, whole[name].gradient)


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_dropout_in_passes_drops_other_inputs_in_each(engine):
    """With one mask for all parts, two equal parts would have the same gradient."""
    plain, parts = (
        replies("dropout", engine, Train, settings=SETTINGS.changed(passes=passes), seed=1)
        for passes in (1, 2)
    )
    again = replies("dropout", engine, Train, settings=SETTINGS.changed(passes=2), seed=1)
    assert not torch.equal(plain[S0].parameters, parts[S0].parameters)
    assert torch.equal(again[S0].parameters, parts[S0].parameters)


def test_looped_and_stacked_passes_drop_the_same():
    own = SETTINGS.changed(passes=3)
    looped, stacked = (
        replies("dropout", engine, Train, settings=own, seed=1) for engine in ("looped", "stacked")
    )
    for one, other in zip(looped.values(), stacked.values(), strict=True):
        torch.testing.assert_close(one.parameters, other.parameters, rtol=1e-3, atol=1e-5)


def test_a_loss_over_whole_batches_is_not_computed_in_parts():
    from fedegoists.learning.own_task import own_task
    from fedegoists.learning.task import TASKS

    times = np.random.default_rng(0).exponential(size=210).astype(np.float32)
    data = own_silos("linear")
    survival = SiloedData(
        "s", "survival", Samples(data.samples.inputs, times), data.silos, None, "", ()
    )
    parts = SETTINGS.changed(passes=2)
    silos = SimulatedFederation(survival, nn.Linear(FEATURES, 1))
    for request in (
        Train(parameters=torch.zeros(7), settings=parts),
        Gradient(parameters=torch.zeros(7), passes=2),
    ):
        reply = silos.call({S0: request})[S0]
        assert isinstance(reply, Failure)
        assert "use accumulate = 1" in reply.detail
    dice = own_task(TASKS["classification"], lambda out, _: out.mean())
    silos = SimulatedFederation(data, nn.Linear(FEATURES, 3), task=dice)
    reply = silos.call({S0: Train(parameters=torch.zeros(21), settings=parts)})[S0]
    assert isinstance(reply, Failure)
    assert "accumulate and privacy need one for each sample" in reply.detail


@pytest.mark.parametrize("engine", ["looped", "stacked"])
@pytest.mark.parametrize("name", ["dropout", "residual", "adapter"])
def test_sixteen_bits_train_nearly_alike_and_evaluate_exactly(name, engine):
    exact, rough = (
        replies(name, engine, Train, settings=SETTINGS.changed(precision=precision), seed=1)
        for precision in ("float32", "bf16")
    )
    for one, other in zip(exact.values(), rough.values(), strict=True):
        assert other.parameters.dtype == torch.float32
        assert not torch.equal(one.parameters, other.parameters)
        torch.testing.assert_close(one.parameters, other.parameters, rtol=0.1, atol=0.05)


def averaged(engine, build=lambda: nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 3))):
    from fedegoists.learning.own_models import ModelParts
    from fedegoists.learning.task import TASKS

    data = own_silos("linear")
    parts = ModelParts(build(), TASKS["classification"], averaged=True)
    return data, SimulatedFederation(data, parts, execution=engine)


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_averaged_statistics_are_the_coalitions_mean(engine):
    """Worked out with NumPy: statistics of inputs do not depend on the parameters."""
    data, silos = averaged(engine)
    assert silos.schema.statistics == ("0.running_mean", "0.running_var")
    start = silos.schema.drawn(0)
    own = silos.schema.unflatten(start)
    assert not own["0.running_mean"].any()
    assert (own["0.running_var"] == 1).all()
    outcome = run(
        FedAvg(SETTINGS),
        silos,
        [silos.participants],
        start.expand(3, -1).clone(),
        RunSettings(rounds=1, seed=0),
    )
    inputs = [data.samples.inputs[0][silo.train].astype(float) for silo in data.silos]
    share = np.array([len(x) for x in inputs]) / sum(map(len, inputs))
    mean = share @ np.array([x.mean(0) for x in inputs])
    variance = share @ np.array([x.var(0, ddof=1) for x in inputs])
    for k, participant in enumerate(silos.participants):
        found = silos.whole_state(participant, outcome.state.parameters[k])
        np.testing.assert_allclose(found["0.running_mean"], mean, rtol=1e-4)
        np.testing.assert_allclose(found["0.running_var"], variance, rtol=1e-4)


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_an_evaluation_uses_the_averaged_statistics(engine):
    data, silos = averaged(engine)
    row = silos.schema.drawn(3)
    values = {**silos.schema.unflatten(row)}
    values["0.running_mean"], values["0.running_var"] = torch.ones(6), torch.full((6,), 4.0)
    rows = torch.from_numpy(data.samples.inputs[0][data.silos[0].test])
    scaled = (rows - 1) / (4 + 1e-5) ** 0.5 * values["0.weight"] + values["0.bias"]
    outputs = scaled @ values["1.weight"].T + values["1.bias"]
    targets = torch.from_numpy(data.samples.targets[data.silos[0].test])
    expected = nn.functional.cross_entropy(outputs, targets).item()
    request = Evaluate(parameters=silos.schema.flatten(values), split="test")
    assert silos.call({S0: request})[S0].losses[0] == pytest.approx(expected, rel=1e-4)
    # A mean with negative weights can leave a negative variance; it counts as none.
    values["0.running_var"] = torch.full((6,), -1.0)
    request = Evaluate(parameters=silos.schema.flatten(values), split="test")
    assert np.isfinite(silos.call({S0: request})[S0].losses[0])


@pytest.mark.parametrize("engine", ["looped", "stacked"])
def test_gradients_of_averaged_statistics_are_refused(engine):
    _, silos = averaged(engine)
    reply = silos.call({S0: Gradient(parameters=silos.schema.drawn(0))})[S0]
    assert isinstance(reply, Failure)
    assert "statistics have no gradient: use a method that averages models" in reply.detail

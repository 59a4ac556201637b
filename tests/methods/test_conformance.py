"""Every kind of model with every kind of method, one silo at a time and at once."""

import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Evaluate,
    Failure,
    Gradient,
    SimulatedFederation,
    Train,
    TrainSettings,
)
from fedegoists.federation.module_trainer import ModuleTrainer
from fedegoists.methods import METHOD_ENTRIES, METHODS, RunSettings, run
from tests.own_modules import LOOPED_ONLY, MODULES, module, own_silos
from tests.silos import FOR_NETWORKS

SETTINGS = TrainSettings(steps=3, batch_size=16, learning_rate=0.05)
CHOSEN = ("local", "fedavg", "scaffold", "egomix", "fedegoists")


@pytest.mark.parametrize("engine", ["looped", "stacked"])
@pytest.mark.parametrize("method", CHOSEN)
@pytest.mark.parametrize("name", MODULES)
def test_every_model_trains_with_every_method(name, method, engine):
    data = own_silos(name)
    if engine == "stacked" and name in LOOPED_ONLY:
        with pytest.raises(SettingsError, match="cannot be stacked"):
            SimulatedFederation(data, module(name), execution=engine)
        return
    silos = SimulatedFederation(data, module(name), execution=engine)
    start = silos.schema.flatten(dict(module(name, 1).named_parameters()))
    names = silos.participants
    pairs = [(a, b) for a in names for b in names if a != b]
    own = {
        "fedegoists": {"benefit": tuple(pairs)},
        "egomix": {"benefit": tuple(pairs)},
    }.get(method, {})
    outcome = run(
        METHODS[method](SETTINGS, **own),
        silos,
        [names],
        torch.stack([start] * 3),
        RunSettings(rounds=2, seed=0),
    )
    assert not outcome.failures
    assert outcome.state.parameters.isfinite().all()
    assert not torch.equal(outcome.state.parameters[0], start)
    before, after = (
        [r.value for r in outcome.rows if (r.round, r.split, r.metric) == (k, "test", "loss")]
        for k in (0, 2)
    )
    assert len(before) == len(after) == 3
    whole = silos.whole_state(names[0], outcome.best[0])
    module(name).load_state_dict(whole)


@pytest.mark.parametrize("engine", ["looped", "stacked"])
@pytest.mark.parametrize("method", FOR_NETWORKS)
def test_every_method_trains_a_model_that_begins_at_zero(method, engine):
    """As linear models by name do: nothing of them has a direction at the start."""
    silos = SimulatedFederation(own_silos("linear"), module("linear"), execution=engine)
    rows, settings = torch.zeros(3, silos.schema.size), RunSettings(rounds=3, seed=0)
    entry = METHOD_ENTRIES[method]
    if entry.splits or entry.represents:  # there is nothing below an output layer
        with pytest.raises(SettingsError, match=r"output layer above others|above other layers"):
            run(METHODS[method](SETTINGS), silos, [silos.participants], rows, settings)
        return
    outcome = run(METHODS[method](SETTINGS), silos, [silos.participants], rows, settings)
    assert not outcome.failures
    assert outcome.state.parameters.isfinite().all()
    assert outcome.state.parameters.abs().sum() > 0


def test_a_run_stops_when_nobody_improves():
    """With a rate of zero nothing improves after the first evaluation."""
    silos = SimulatedFederation(own_silos("linear"), module("linear"))
    rows = torch.zeros(3, silos.schema.size)
    still = METHODS["fedavg"](SETTINGS.changed(learning_rate=0.0))
    for patience, rounds in ((None, 9), (3, 4)):
        settings = RunSettings(rounds=9, seed=0, patience=patience)
        assert run(still, silos, [silos.participants], rows, settings).state.round == rounds


def test_any_trainer_can_take_the_place_of_a_module():
    """The trainer of a module, wrapped, gives what the module itself gives; it is not stacked."""
    data, own = own_silos("linear"), module("linear")
    inner = SimulatedFederation(data, own, execution="looped")

    class Wrapped:
        def __init__(self, trainer):
            self.schema, self.task = trainer.schema, trainer.task
            self.train, self.gradients = trainer.train, trainer.gradients
            self.evaluate, self.state = trainer.evaluate, trainer.state

    silos = SimulatedFederation(data, Wrapped(ModuleTrainer(inner._network)))
    assert "only PyTorch modules" in silos.engine.reason
    rows, settings = torch.zeros(3, 21), RunSettings(rounds=2, seed=0)
    one, other = (
        run(METHODS["fedavg"](SETTINGS), federation, [federation.participants], rows, settings)
        for federation in (inner, silos)
    )
    assert torch.equal(one.state.parameters, other.state.parameters)


def test_a_trainer_that_does_not_promise_privacy_gets_no_private_request():
    """It could ignore the noise, and the silo's account would count on it."""
    data = own_silos("linear")
    inner = ModuleTrainer(SimulatedFederation(data, module("linear"), execution="looped")._network)

    class Silent:
        def __init__(self, **attributes):
            vars(self).update(attributes)
            self.schema, self.task = inner.schema, inner.task
            self.train, self.gradients = inner.train, inner.gradients
            self.evaluate = inner.evaluate

    row = torch.zeros(inner.schema.size)
    requests = (
        Train(parameters=row, settings=SETTINGS.changed(clip=1.0, noise=1.0)),
        Gradient(parameters=row, clip=1.0),
        Evaluate(parameters=row, split="test", bound=1.0),
    )
    for request in requests:
        for trainer, refused in ((Silent(), True), (Silent(private=True), False)):
            silos = SimulatedFederation(data, trainer)
            reply = silos.call({silos.participants[0]: request})[silos.participants[0]]
            assert isinstance(reply, Failure) is refused, reply
            assert not refused or "set private = True" in reply.detail

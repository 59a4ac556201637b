"""Models side by side give what `vmap` gives, and also where `vmap` cannot work."""

import pytest
import torch

from fedegoists.federation import Evaluate, Gradient, SimulatedFederation, Train, TrainSettings
from fedegoists.federation.execution import ChosenEngine, chosen_engine
from fedegoists.federation.side_by_side import side_by_side
from tests.own_modules import LOOPED_ONLY, MODULES, module, own_silos

ASKED = [
    (Train, {"settings": TrainSettings(steps=3, batch_size=16, learning_rate=0.05)}),
    (Gradient, {"split": "train", "batch_size": 8}),
    (Evaluate, {"split": "test"}),
]


def answers(name, engine, kind, fields, device="cpu"):
    silos = SimulatedFederation(own_silos(name), module(name), execution="looped", device=device)
    silos.engine, silos._stacked = engine, engine.name == "stacked"
    start = silos.schema.flatten(dict(module(name, 3).named_parameters()))
    return silos.call(dict.fromkeys(silos.participants, kind(parameters=start, **fields)))


def assert_alike(name, kind, fields, device="cpu"):
    looped, beside = (
        answers(name, engine, kind, fields, device)
        for engine in (ChosenEngine("looped", ""), ChosenEngine("stacked", "", beside=True))
    )
    for one, other in zip(looped.values(), beside.values(), strict=True):
        if kind is Evaluate:
            assert one.losses == pytest.approx(other.losses, rel=1e-3)
        else:
            field = "parameters" if kind is Train else "gradient"
            given = (getattr(one, field), getattr(other, field))
            torch.testing.assert_close(*given, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("kind", "fields"), ASKED)
@pytest.mark.parametrize("name", [name for name in MODULES if name not in LOOPED_ONLY])
def test_models_side_by_side_are_those_of_one_silo_at_a_time(name, kind, fields):
    assert_alike(name, kind, fields)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(("kind", "fields"), ASKED)
@pytest.mark.parametrize("name", MODULES)
def test_the_same_on_a_gpu(name, kind, fields):
    silos = SimulatedFederation(own_silos(name), module(name), device="cuda")
    if silos.engine.name == "looped":
        pytest.skip(f"{silos.engine}")
    assert_alike(name, kind, fields, "cuda")


def test_rows_of_tuples_and_dictionaries_come_back_together():
    rows, named = torch.arange(6.0).reshape(3, 2), {"b": torch.ones(3, 2)}

    def function(row, own, nothing):
        assert nothing is None
        return {"sum": row + own["b"]}, row.sum()

    sums, totals = side_by_side(function, rows, named, None)
    assert torch.equal(sums["sum"], rows + 1)
    assert torch.equal(totals, rows.sum(1))


def test_only_a_gpu_takes_models_side_by_side():
    silos = SimulatedFederation(own_silos("linear"), module("linear"), execution="stacked")
    assert not silos.engine.beside
    assert not chosen_engine(silos._network, silos._silos.values(), "auto").beside

"""Consortia over several divisions, and what is told about them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import typer

from fedegoists.consortium.pipeline import Consortium
from fedegoists.training.summary import chosen_test_values
from reproduction.hospital_study import (
    ALONE,
    HOSPITALS,
    HospitalData,
    ModelRow,
    hospital_page,
)
from reproduction.real_data_commands import hospitals_command, origins
from reproduction.repeated_runs import (
    Measured,
    by_seed,
    consortium_text,
    corrected,
    mean_differences,
    measured,
    read_rows,
    rows_csv,
)

SCHEMA = 'features = ["a", "b"]\ntarget = "y"\ntask = "binary"\nclasses = ["no", "yes"]\n'


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA)
    for k, name in enumerate(("north", "south")):
        rng = np.random.default_rng(k)
        x = rng.normal(size=(80, 2))
        y = x[:, 0] + rng.normal(size=80) > 0
        rows = [f"{a:.4f},{b:.4f},{'yes' if c else 'no'}" for (a, b), c in zip(x, y, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,y", *rows]))
    return tmp_path


@pytest.mark.parametrize("decay", [0.1, None])
def test_side_by_side_is_as_one_after_the_other(work, decay):
    training = {"methods": ["local", "fedavg"], "steps": 40}
    if decay is not None:
        training["weight_decay"] = decay
    texts = {seed: consortium_text("own", {}, seed, training) for seed in (0, 3)}
    rows = measured("own", "logistic", texts, work)
    assert [row.seed for row in rows] == [0] * 4 + [3] * 4
    for seed in texts:
        one = Consortium.read(work / f"own-logistic-{seed}.toml")
        formation = one.form(one.learn_benefit())
        assert len(formation.coalitions) == 1
        repetitions, outcomes, _ = one.train(formation)
        for method in ("local", "fedavg"):
            alone = chosen_test_values(outcomes[method], repetitions.federation)
            found = by_seed(rows, "logistic", method)[seed]
            assert found == pytest.approx({who.name: value for who, value in alone.items()})
        decays = {(row.method, row.decay) for row in rows if row.seed == seed}
        defaults = repetitions.defaults
        assert decays == {
            ("local", defaults.train.weight_decay),
            ("fedavg", defaults.together.weight_decay),
        }
        assert (defaults.together_decay is None) == (decay is not None)


def test_rows_are_read_as_they_are_written(tmp_path):
    rows = [
        Measured("heart", "Cox", "local", 3, "Köln, Süd", 70, 15, 0.1, 0.875),
        Measured("heart", "Cox", "local", 3, "Bonn", 70, 15, math.nan, math.nan),
    ]
    (tmp_path / "rows.csv").write_bytes(rows_csv(rows))
    first, second = read_rows(tmp_path / "rows.csv")
    assert first == rows[0]
    assert math.isnan(second.value)


def test_the_interval_is_wider_than_of_independent_repetitions():
    values = [0.1, 0.3, 0.2, 0.4]
    plain, wide = corrected(values, 0.0), corrected(values, 0.25)
    assert plain.mean == wide.mean == pytest.approx(0.25)
    # 1/4 and 1/4 + 1/4 of the same variance
    assert wide.half == pytest.approx(plain.half * math.sqrt(2))
    assert math.isnan(corrected([0.1], 0.25).half)


def test_a_metric_that_is_not_defined_does_not_count():
    ones = {0: {"a": 0.9, "b": math.nan}, 1: {"a": math.nan, "b": math.nan}}
    others = {0: {"a": 0.7, "b": 0.5}, 1: {"a": 0.7, "b": 0.5}}
    assert mean_differences(ones, others) == [pytest.approx(0.2)]


def test_a_page_by_hand():
    study = HospitalData("own", "Two clinics", "AUC", (ModelRow("Cox", "cox", (ALONE, "fedavg")),))
    rows = [
        Measured("own", "Cox", method, seed, name, 70, 14, 0.1, value + (method == "fedavg") * gain)
        for method in (ALONE, "fedavg")
        for seed, gain in ((0, 0.1), (1, 0.2))
        for name, value in (("north", 0.6), ("south", 0.7))
    ]
    page = hospital_page(study, rows, "origin").splitlines()
    assert "| Cox | local | 0.650 |  |" in page
    # t(1 degree) = 12.706; 0.0707 · √(1/2 + 1/5) · 12.706 = 0.752
    assert "| Cox | fedavg | 0.800 | +0.150 (-0.602 to +0.902) |" in page
    assert "| north | 70, 14 | 0.600 | +0.150 (-0.602 to +0.902) |" in page
    assert page[-1] == "origin"


def test_a_model_can_be_added_without_training_the_others_again(work, tmp_path, monkeypatch):
    pytest.importorskip("lightgbm")
    rows = (ModelRow("network", "mlp", (ALONE,)), ModelRow("trees", "trees(depth=1)", (ALONE,)))
    study = HospitalData("own", "Two made up", "AUC", rows)
    monkeypatch.setitem(HOSPITALS, "own", study)

    def written(*more):
        hospitals_command(["own"], tmp_path, work, 2, list(more) or None, replace=True)
        return (tmp_path / "own.md").read_text(encoding="utf-8")

    monkeypatch.setitem(HOSPITALS, "own", replace(study, models=rows[:1]))
    first = written()
    before = read_rows(tmp_path / "own.csv")
    assert "2 divisions of the samples" in first
    monkeypatch.setitem(HOSPITALS, "own", study)
    for _ in range(2):  # again: its own rows and its own line are replaced
        page = written("trees")
        both = read_rows(tmp_path / "own.csv")
        assert [row for row in both if row.model == "network"] == before
        assert len(both) == 2 * len(before)
        found = origins(page)
        assert [found[0]] == origins(first)
        assert len(found) == 2
        assert "hospitals own --model trees --divisions 2`" in found[1]
    found = origins(written("network"))
    assert ["--model trees" in found[0], "--model network" in found[1]] == [True, True]
    assert len(found) == 2  # nothing is left of the run of all models
    with pytest.raises(typer.BadParameter, match="'forest' is none of network, trees"):
        written("forest")


def test_models_of_different_numbers_of_divisions_say_so():
    models = tuple(ModelRow(name, name, (ALONE,)) for name in ("a", "b"))
    study = HospitalData("own", "Two", "AUC", models)
    rows = [Measured("own", m, ALONE, k, "n", 7, 3, 0, 0.5) for m, k in ("a0", "a1", "b0")]
    assert "participants and divisions (a 2, b 1) of the samples" in hospital_page(study, rows, "")

"""Evaluations over single test samples agree with the run's own measurements."""

import csv
import io

import pytest

from fedegoists.consortium.evaluations import Evaluations
from fedegoists.consortium.report.results_section import Results
from fedegoists.training.summary import by_participant, chosen_test_values
from tests.consortium.reports import circle, make


def test_values_are_those_that_the_run_measured(banks):
    federation = banks.repetitions.federation
    for method, outcome in banks.wanted.items():
        measured = by_participant(chosen_test_values(outcome, federation))
        for name, values in measured.items():
            one = banks.evaluations.methods[method, name]
            assert one.value.value == pytest.approx(sum(values.values()) / len(values))
            assert one.value.low <= one.value.value <= one.value.high
    for gain in banks.gains:
        one = banks.evaluations.methods[gain.method, gain.participant]
        assert one.gain.value == pytest.approx(gain.gain)


def test_who_trains_alone_has_a_value_and_no_gain(banks):
    assert banks.evaluations.methods["fedavg+ft", "Elm"].gain is None
    assert banks.evaluations.methods["local", "Alder"].gain is None
    rows = list(csv.DictReader(io.StringIO((banks.folder / "intervals.csv").read_text())))
    assert {(row["method"], row["participant"]): row["gain"] for row in rows}[
        "fedavg+ft", "Elm"
    ] == "nan"
    assert len(rows) == 2 * 5


def test_personal_parameters_are_those_of_the_silo(tmp_path):
    names = ["North", "South"]
    own = {"personal": ("output.",), "model": "mlp"}
    run = make(tmp_path, names, circle(names), seeds=1, task="regression", **own)
    federation = run.repetitions.federation
    measured = by_participant(chosen_test_values(run.outcomes["fedavg"], federation))
    for name in names:
        found = run.evaluations.methods["fedavg", name].value.value
        assert found == pytest.approx(measured[name][0], rel=1e-4)


def test_a_participant_sees_only_its_own(banks):
    own = banks.evaluations.about("Elm")
    assert {name for _, name in own.methods} == {"Elm"}
    assert set(own.models) == {"Elm"}
    assert Evaluations().about("Elm").methods == {}


OWN_METRIC = """
from torch import nn

def brier(outputs, targets):
    return ((outputs.squeeze(-1).sigmoid() - targets) ** 2).mean()

def build(data):
    return {"model": nn.Linear(data.shapes[0][0], 1), "metrics": {"brier": (brier, "lower")}}
"""


def test_an_own_metric_has_no_interval_of_another_one(tmp_path):
    """The interval of an AUC is not one of a Brier score, nor its gain with the sign turned."""
    (tmp_path / "model.py").write_text(OWN_METRIC, encoding="utf-8")
    names = ["North", "South"]
    run = make(tmp_path, names, circle(names), model=f"{tmp_path / 'model.py'}:build")
    assert run.summary.metric == "brier"
    assert not run.evaluations.methods
    assert not (run.folder / "intervals.csv").exists()
    assert {one.metric for one in run.evaluations.models.values()} == {"auc"}
    gains = {(one.method, one.participant): one for one in run.gains}
    for row in Results.of(run).gains:  # over repetitions
        own = gains[row.gain.method, row.gain.participant]
        assert (row.gain.low, row.gain.high) == (own.low, own.high)
    assert "AUC (ROC)" in (run.folder / "cards" / "North.md").read_text()

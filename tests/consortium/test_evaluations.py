"""Evaluations over single test samples agree with the run's own measurements."""

import csv
import io

import pytest

from fedegoists.consortium.evaluations import Evaluations
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

"""Summaries: means by hand, and the same values after writing and reading."""

import math
from types import SimpleNamespace

import torch

from fedegoists.federation import Participant
from fedegoists.methods import Outcome
from fedegoists.methods.outcome import Row
from fedegoists.training.summary import COSTS, EVERYBODY, Summary, SummaryRow

NAMES = tuple(Participant(name, k) for k in (0, 1) for name in ("North", "South"))
FEDERATION = SimpleNamespace(participants=NAMES, task=SimpleNamespace(metric="auc"))


def outcome(values, passes):
    rows = [Row(name, 1, "test", "auc", value) for name, value in zip(NAMES, values, strict=True)]
    spent = {"sample_passes": dict.fromkeys(NAMES, passes)}
    scores = [(0.5, 0.0)] * len(NAMES)
    return Outcome(None, torch.zeros(4, 1), [1] * 4, scores, rows, spent=spent)


def summarised(values):
    outcomes = {"fedavg": outcome((0, 0, 0, 0), 10), "fedavg+ft": outcome(values, 5)}
    return Summary.of({"fedavg+ft": outcomes["fedavg+ft"]}, outcomes, FEDERATION)


def test_means_and_deviations_by_hand():
    summary = summarised((0.5, 0.7, 0.6, 0.9))
    assert summary.metric == "auc"
    north = summary.row("fedavg+ft", "North")
    assert (round(north.mean, 12), north.n) == (0.55, 2)
    assert math.isclose(north.std, math.sqrt(0.005))
    # Of each repetition the mean over both: 0.6 and 0.75.
    assert math.isclose(summary.row("fedavg+ft").mean, 0.675)
    assert summary.row("fedavg+ft", "South", "sample_passes").mean == 15  # tuning on top
    assert [row.participant for row in summary.rows[:3]] == ["North", "South", EVERYBODY]
    assert {row.metric for row in summary.rows} == {"auc", *COSTS}
    assert {row.participant for row in summary.about("South").rows} == {"South"}


def test_a_mean_over_all_needs_a_value_of_each():
    summary = summarised((0.5, math.nan, 0.6, math.nan))
    assert summary.row("fedavg+ft", "South").n == 0
    assert math.isnan(summary.row("fedavg+ft").mean)


def test_what_is_written_is_read_again_with_six_digits(tmp_path):
    path = tmp_path / "summary.csv"
    rows = (SummaryRow("local", "a, b", "mse", 2 / 3, 1e-9 / 3, 3),)
    path.write_bytes(Summary(rows).csv())
    assert path.read_text() == (
        'method,participant,metric,mean,std,n\nlocal,"a, b",mse,0.666667,3.33333e-10,3\n'
    )
    (row,) = Summary.read(path).rows
    assert row == SummaryRow("local", "a, b", "mse", 0.666667, 3.33333e-10, 3)

"""Comparing benefit estimators with the measured truth from the command line."""

import csv

import pytest

from tests.cli.test_benefit_command import write_own

QUICK = (
    "benefit-study", "--data", "own", "--out", "r", "--repeats", "2", "--measure-repeats", "2",
    "--quiet",
)  # fmt: skip


@pytest.fixture
def own(tmp_path):
    write_own(tmp_path)


def test_estimators_are_compared_with_the_measured_truth(run, tmp_path, own):
    steps = ("--learn", "steps=20", "--learn", "preference_steps=5")
    code, _, err = run(
        *QUICK,
        *("--estimator", "transfer,hypernetwork,alignment", "--measure", "--no-leave-one-out"),
        *steps,
    )
    assert (code, err) == (0, "")
    report = (tmp_path / "r/report.md").read_text()
    assert "Agreement with the measured truth" in report
    for name in ("transfer", "hypernetwork", "alignment"):
        assert f"| {name}, of means |" in report
    with (tmp_path / "r/measured.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 6
    assert {row["cost_without"] for row in rows} == {""}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "r").iterdir())


def test_competitors_are_not_measured(run, tmp_path, own):
    """Without the file north and south would be a pair."""
    (tmp_path / "rivals.csv").write_text("a,b\nnorth,south\nnorth,west\nsouth,west\n")
    code, _, err = run(*QUICK, "--estimator", "alignment", "--competition", "rivals.csv")
    assert (code, err) == (0, "")
    assert "north, south" not in (tmp_path / "r/report.md").read_text().split("## Edges")[1]
    with (tmp_path / "r/measured.csv").open() as file:
        assert {row["gain"] for row in csv.DictReader(file)} == {"nan"}

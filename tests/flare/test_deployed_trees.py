"""Boosted trees over a real deployment give what a simulation gives."""

import csv

import pytest

from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.pipeline import Consortium
from tests.flare.loopback import run_deployed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("silo_secrets")]
TREES = ["training.model=trees", "training.seeds=1", "training.round_steps=20"]


def rows(path):
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if not row["metric"].startswith("bytes")]


def test_trees_over_flare_are_those_of_a_simulation(deployment):
    pytest.importorskip("lightgbm")
    file = deployment.file.with_name("trees.toml")  # trees have no weight decay
    file.write_text(deployment.file.read_text().replace("weight_decay = 0.1\n", ""))
    settings = read_settings(file, [*TREES, 'output.folder="trees-flare"'])
    run = run_deployed(settings, deployment.kit)
    assert set(run.wanted) == {"local", "bagging"}
    assert not run.incomplete
    assert run.yardstick.why_not == ""  # local is that row
    here = Consortium(read_settings(file, [*TREES, 'output.folder="trees-here"'])).run()
    assert run.formation.coalitions == here.formation.coalitions
    deployed, simulated = (rows(one.folder / "summary.csv") for one in (run, here))
    assert [row["participant"] for row in deployed] == [row["participant"] for row in simulated]
    for one, other in zip(deployed, simulated, strict=True):
        assert float(one["mean"]) == pytest.approx(float(other["mean"]), nan_ok=True)

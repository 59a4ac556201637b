"""A deployment whose silos load their data by an approved data.py is the simulation."""

import csv

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.consortium import Consortium
from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.deploy.local_deployment import LocalDeployment, free_port
from fedegoists.federation.flare.approved_code import approve
from fedegoists.learning.own_models import file_digest
from tests.flare.loopback import run_deployed

CODE = """\
import numpy as np

NAMES = ["North", "South", "West"]

def load(organisation=None):
    found = {}
    for name in NAMES if organisation is None else [organisation]:
        rng = np.random.default_rng(NAMES.index(name))
        x = rng.normal(size=(60, 3))
        found[name] = {
            "inputs": x,
            "targets": (x[:, 0] + rng.normal(size=60) > 0).astype(int),
            "weights": 1 + np.arange(60) % 2,
        }
    return {"task": "binary", "classes": 2, "organisations": found}
"""
SETTINGS = """\
[data]
source = "data.py:load"

[benefit]
estimator = "everybody"

[training]
methods = ["local", "fedavg"]
seeds = 1
steps = 4
batch_size = 100

[deploy]
port = {port}
privacy = "none"
"""


def scores(run):
    with (run.folder / "summary.csv").open(newline="") as file:
        return {(r["method"], r["participant"]): float(r["mean"])
                for r in csv.DictReader(file) if r["metric"] == "auc"}  # fmt: skip


@pytest.mark.slow
def test_a_run_with_an_approved_loader_is_the_simulation(tmp_path):
    (tmp_path / "data.py").write_text(CODE)
    (tmp_path / "consortium.toml").write_text(SETTINGS.format(port=free_port()))
    settings = read_settings(tmp_path / "consortium.toml")
    deployment = LocalDeployment(settings, tmp_path / "deploy")
    for name in deployment.deployment.sites:
        approve(deployment.silo(name), "data.py", file_digest(tmp_path / "data.py"))
    with deployment:
        run = run_deployed(settings, deployment.kit)
    changes = [f'output.folder="{tmp_path / "simulated"}"']
    simulated = Consortium(read_settings(tmp_path / "consortium.toml", changes)).run()
    # Batches are all samples, so silos' own secrets change nothing.
    assert scores(run) == pytest.approx(scores(simulated))
    assert (run.folder / "report.html").is_file()

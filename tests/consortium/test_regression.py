"""Numbers in their natural units, from the files to the exported model."""

import csv
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedegoists.consortium import Consortium
from fedegoists.consortium.export import PreparedModel, export, read_model
from fedegoists.federation import Evaluate, Participant, SimulatedFederation
from fedegoists.learning.datasets import load_own
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema

CLINICS = {"Aachen": 1.0, "Bonn": 1.0, "Köln": 1.5}
TOML = """
name = "progression"
[data]
source = "clinics"
[benefit]
repeats = 2
steps = 60
[training]
methods = ["local", "fedavg"]
seeds = 1
steps = 400
"""
SCHEMA = """
features = ["age", "bmi", "pressure", "glucose"]
target = "progression"
task = "regression"
"""


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    """Write patients whose disease progresses by 25 to 350 in a year."""
    folder = tmp_path_factory.mktemp("progression")
    (folder / "clinics").mkdir()
    (folder / "clinics" / "schema.toml").write_text(SCHEMA)
    for k, (name, factor) in enumerate(CLINICS.items()):
        rng = np.random.default_rng(k)
        scores = rng.normal(size=(160, 4))
        progression = 150 + factor * (scores @ [5, 40, 20, 35]) + rng.normal(0, 20, 160)
        values = scores * [12, 4, 13, 11] + [48, 26, 95, 91]
        rows = np.column_stack([values, progression.clip(25, 350)]).round(1)
        lines = [",".join(map(str, row)) for row in rows.tolist()]
        header = "age,bmi,pressure,glucose,progression"
        (folder / "clinics" / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "consortium.toml").write_text(TOML)
    return folder


@pytest.fixture(scope="module")
def run(clinics):
    return Consortium.read(clinics / "consortium.toml").run()


def test_natural_units_train(run, clinics):
    data = load_own(clinics / "clinics")
    with (run.folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "mse"]
    assert not run.outcomes["local"].failures
    for name, scale in zip(data.participants, data.target_scales, strict=True):
        assert 130 < scale.center < 180
        assert 40 < scale.spread < 120
        errors = [
            float(r["value"]) for r in rows if (r["participant"], r["split"]) == (name, "test")
        ]
        # The noise's variance is 400; the target's is 3,000 and more.
        assert 200 < min(errors) < 0.4 * scale.spread**2


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_both_engines_tell_the_error_in_its_own_units(clinics, execution):
    data = load_own(clinics / "clinics")
    model = build_model("mlp", 0, features=4, outputs=1)
    silent = torch.zeros(ParameterSchema.of(model).size)  # always predicts the mean
    federation = SimulatedFederation(data, model, execution=execution)
    asked = {
        Participant(name): Evaluate(parameters=silent, split="train") for name in data.participants
    }
    for k, reply in enumerate(federation.call(asked).values()):
        assert reply.losses[0] == pytest.approx(1.0, rel=1e-4)
        assert reply.scores[0] == pytest.approx(data.target_scales[k].spread ** 2, rel=1e-4)


def test_an_exported_model_predicts_in_these_units(run, clinics, tmp_path):
    export(run.folder, "Bonn", tmp_path)
    model, card = read_model(tmp_path / "Bonn.safetensors")
    with (clinics / "clinics" / "Bonn.csv").open() as file:
        table = torch.tensor(
            [[float(cell) for cell in row.values()] for row in csv.DictReader(file)]
        )
    with torch.no_grad():
        found = PreparedModel(model, card)(table[:, :4])[:, 0]
    assert ((found - table[:, 4]) ** 2).mean() < 0.4 * table[:, 4].var()
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    usual = torch.tensor([[float(f"{value:.6g}") for value in card.inputs[0].missing]])
    with torch.no_grad():
        expected = PreparedModel(model, card)(usual).item()
    (printed,) = re.findall(r"[\d.]+", done.stdout)
    assert float(printed) == pytest.approx(expected, abs=0.01)

"""Models and data that were made apart: own loaders, image folders, weights, trees, Cox."""

import csv

import pytest
import torch
from safetensors.torch import save_file

from fedegoists.consortium import Consortium
from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.export import export, read_model
from fedegoists.errors import SettingsError
from fedegoists.learning.own_models import file_digest
from tests.learning.datasets.pictures import scans

DATA = """\
import numpy as np

def part(seed, weights=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 3))
    more = {"weights": np.where(x[:, 2] > 0, 3.0, 1.0)} if weights else {}
    return rng, {"inputs": x, **more}

def yes_or_no(weights=False):
    found = {}
    for seed, name in enumerate(("North", "South")):
        rng, one = part(seed, weights)
        x = one["inputs"]
        found[name] = {**one, "targets": ((x[:, 0] > 0) & (x[:, 1] > 0)).astype(int)}
    return {"task": "binary", "classes": 2, "organisations": found}

def weighted():
    return yes_or_no(weights=True)

def survival():
    found = {}
    for seed, name in enumerate(("North", "South")):
        rng, one = part(seed)
        times = 1 + rng.exponential(100 * np.exp(-2 * one["inputs"][:, 0]))
        found[name] = {**one, "targets": (times, rng.random(120) < 0.8)}
    return {"task": "survival", "organisations": found}
"""
TOML = """\
[data]
source = "SOURCE"
[benefit]
estimator = "everybody"
[training]
seeds = 1
steps = STEPS
"""


def finished(folder, source, training, steps=20):
    (folder / "data.py").write_text(DATA)
    text = TOML.replace("SOURCE", source).replace("STEPS", str(steps))
    (folder / "consortium.toml").write_text(text + training)
    run = Consortium(read_settings(folder / "consortium.toml")).run(replace=True)
    assert not run.incomplete
    return run


def scores(run, metric):
    with (run.folder / "summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == metric]
    return {(row["method"], row["participant"]): float(row["mean"]) for row in rows}


def test_trees_train_on_data_of_an_own_loader(tmp_path):
    pytest.importorskip("lightgbm")
    run = finished(tmp_path, "data.py:yes_or_no", 'model = "trees"\nlearning_rate = 0.3\n')
    found = scores(run, "auc")
    assert {method for method, _ in found} == {"local", "bagging"}
    assert min(found.values()) > 0.9  # one corner of the plane, which no line divides
    model, _ = read_model(export(run.folder, "North", tmp_path / "out")[0])
    assert model(torch.tensor([[1.0, 1, 0], [-1.0, 1, 0]])).diff(dim=0).item() < 0


def test_weights_of_an_own_loader_reach_the_trees(tmp_path):
    pytest.importorskip("lightgbm")
    intercepts = []
    for source in ("data.py:weighted", "data.py:yes_or_no"):
        training = 'model = "trees"\nmethods = ["local"]\n'
        run = finished(tmp_path, source, training)
        model, _ = read_model(export(run.folder, "North", tmp_path / source[8:])[0])
        intercepts.append(model.intercept.item())
    assert intercepts[0] != intercepts[1]


def test_cox_and_trees_train_on_times_of_an_own_loader(tmp_path):
    training = 'methods = ["local", "fedavg"]\nmodel = "cox"\nweight_decay = 0.01\n'
    run = finished(tmp_path, "data.py:survival", training, steps=100)
    assert min(scores(run, "c-index").values()) > 0.7
    pytest.importorskip("lightgbm")
    trees = finished(tmp_path, "data.py:survival", 'methods = ["local"]\nmodel = "trees"\n')
    assert min(scores(trees, "c-index").values()) > 0.6


def test_a_model_with_weights_trains_on_a_folder_of_images(tmp_path):
    pytest.importorskip("PIL")
    scans(tmp_path / "scans")
    (tmp_path / "model.py").write_text(
        "from torch import nn\n\n"
        "def build(data):\n"
        "    body = nn.Conv2d(1, 2, 3).requires_grad_(False)\n"
        "    head = nn.Linear(72, 1)\n"
        '    return {"model": nn.Sequential(body, nn.ReLU(), nn.Flatten(), head),\n'
        '            "weights": "w.safetensors"}\n'
    )
    body = {"0.weight": torch.full((2, 1, 3, 3), 0.25), "0.bias": torch.tensor([0.5, -0.5])}
    save_file(body, tmp_path / "w.safetensors")
    training = 'methods = ["local", "fedavg"]\nmodel = "model.py:build"\n'
    run = finished(tmp_path, "scans", training, steps=4)
    model, card = read_model(export(run.folder, "North", tmp_path / "out")[0])
    state = model.state_dict()
    assert all(torch.equal(state[name], own) for name, own in body.items())
    assert file_digest(tmp_path / "w.safetensors") in str(card)


def test_a_model_that_does_not_fit_leaves_no_run_behind(tmp_path):
    """Corrected, it runs under the same name, without --resume."""
    scans(tmp_path / "data")
    model = (
        "from torch import nn\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, {}))\n"
    )
    (tmp_path / "model.py").write_text(model.format(2))
    (tmp_path / "consortium.toml").write_text(
        'name = "two"\n[data]\nsource = "data"\n[competition]\npairs = []\n[benefit]\n'
        'estimator = "everybody"\n[training]\nmodel = "model.py:build"\nmethods = ["local"]\n'
        "seeds = 1\nsteps = 2\n"
    )
    with pytest.raises(SettingsError, match=r"needs \(2, 1\).* or .*task = .classification"):
        Consortium.read(tmp_path / "consortium.toml").run()
    assert not (tmp_path / "runs" / "two").exists()
    (tmp_path / "model.py").write_text(model.format(1))
    run = Consortium.read(tmp_path / "consortium.toml").run()
    assert (run.folder / "report.html").is_file()

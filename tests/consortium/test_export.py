"""An exported model says elsewhere what it said in the run, from values as they were measured."""

import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedegoists.consortium import Consortium
from fedegoists.consortium.example_files import init
from fedegoists.consortium.export import PreparedModel, export, read_model
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.errors import FileError, MissingDependencyError, SettingsError
from fedegoists.learning.models import build_model

QUICK = ["training.steps=40", "training.seeds=1", "benefit.repeats=2", 'training.methods=["local"]']


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks")
    init(folder, "banks")
    schema = folder / "banks" / "schema.toml"
    schema.write_text(schema.read_text().replace('missing = "error"', 'missing = "mean"'))
    path = folder / "banks" / "Cedar.csv"
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[0], "", 1)  # an income that nobody knows
    path.write_text("\n".join(lines) + "\n")
    return Consortium.read(folder / "consortium.toml", QUICK).run()


def raw_rows(run, participant):
    path = run.folder.parent.parent / "banks" / f"{participant}.csv"
    with path.open() as file:
        rows = [list(row.values())[:-1] for row in csv.DictReader(file)]
    return torch.tensor([[float(cell or "nan") for cell in row] for row in rows])


def given(run, participant):
    """Return what the run gave to models, in the order of the file's rows."""
    data = SimulatedEngine(run.settings).samples
    positions = np.sort(data.silo(participant).all)
    return torch.from_numpy(data.samples.inputs[0][positions])


def test_raw_values_give_what_the_run_saw(run):
    for participant in ("Alder", "Cedar"):
        model, about = read_model(run.folder / "models" / f"{participant}.safetensors")
        raw = raw_rows(run, participant)
        assert raw.isnan().sum() == (participant == "Cedar")
        with torch.no_grad():
            expected = model(given(run, participant)).sigmoid()
            found = PreparedModel(model, about)(raw)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert about.classes == ("no", "yes")
        assert about.inputs[0].columns[0] == "income"


def test_the_example_runs_where_fedegoists_is_not_installed(run, tmp_path):
    files = export(run.folder, "Alder", tmp_path)
    assert [path.name for path in files] == [
        "Alder.safetensors", "Alder.json", "example.py", "model-card.md",
    ]  # fmt: skip
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    # As if it were not installed: an import of it ends the program.
    hide = "import sys, runpy; sys.modules['fedegoists'] = None; runpy.run_path('example.py')"
    done = subprocess.run(
        [sys.executable, "-c", hide], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    model, about = read_model(tmp_path / "Alder.safetensors")
    usual = torch.tensor([[float(f"{v:.6g}") for v in about.inputs[0].missing]])
    with torch.no_grad():
        expected = PreparedModel(model, about)(usual).item()
    assert float(done.stdout.strip("tensor([])\n")) == pytest.approx(expected, abs=1e-4)
    code = (tmp_path / "example.py").read_text()
    statements = [line for line in code.splitlines() if line and line[0] not in "# "]
    assert len(statements) <= 10


def test_a_network_of_another_version_is_named(run, tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    source = run.folder / "models" / "Alder.safetensors"
    with safe_open(source, framework="pt") as file:
        card = json.loads(file.metadata()["fedegoists"])
    path = tmp_path / "Alder.safetensors"
    save_file(load_file(source), path, {"fedegoists": json.dumps(card | {"model": "cubic"})})
    with pytest.raises(FileError) as refusal:
        read_model(path)
    assert str(refusal.value) == (
        f"{path}: its network 'cubic' is not in this version; install the version that trained it"
    )


def test_a_damaged_or_swapped_model_is_not_exported(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    file = folder / "models" / "Alder.safetensors"
    good = file.read_bytes()
    damaged = bytearray(good)
    damaged[-5] ^= 1
    for content in (bytes(damaged), good[:-4], (folder / "models/Cedar.safetensors").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(FileError, match="not the model that was written here"):
            export(folder, "Alder", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    file.write_bytes(good)
    assert export(folder, "Alder", tmp_path / "out")


def test_onnx_says_the_same(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    export(run.folder, "Cedar", tmp_path, onnx=True)
    session = onnxruntime.InferenceSession(tmp_path / "Cedar.onnx")
    raw = raw_rows(run, "Cedar")
    (found,) = session.run(["probability"], {"features": raw.numpy()})
    model, _ = read_model(tmp_path / "Cedar.safetensors")
    with torch.no_grad():
        expected = model(given(run, "Cedar")).sigmoid()
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    about = json.loads(session.get_modelmeta().custom_metadata_map["fedegoists"])
    assert about["participant"] == "Cedar"


@pytest.mark.parametrize(
    ("name", "options", "inputs"),
    [
        ("cifar10-cnn", {}, [("pixels", (32, 32, 3))]),
        ("cnn", {"channels": 1, "outputs": 3}, [("pixels", (12, 20, 1))]),
        ("icu-transformer", {"hourly": 5, "static": 2, "hours": 4},
         [("hourly", (4, 5)), ("static", (2,))]),
    ],
)  # fmt: skip
def test_networks_for_images_and_stays_can_be_exported_too(name, options, inputs, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from safetensors.torch import save_file

    model = build_model(name, 0, **options).eval()
    about = {
        "participant": "v0", "method": "local", "model": name, "options": options,
        "task": "classification" if "cnn" in name else "binary", "description": "Made up.",
        "classes": [],
        "inputs": [
            {"name": kind, "columns": [f"c{k}" for k in range(n)], "clip": None,
             "center": [0.5] * n, "factor": [2.0] * n, "missing": [None] * n}
            for kind, (*_, n) in inputs
        ],
    }  # fmt: skip
    if name == "cnn":  # files of earlier versions, in which images had one size, do not have it
        about["shapes"] = [shape for _, shape in inputs]
    (tmp_path / "models").mkdir()
    save_file(dict(model.named_parameters()), tmp_path / "models" / "v0.safetensors",
              {"fedegoists": json.dumps(about)})  # fmt: skip
    (tmp_path / "certificate.json").write_text('{"coalitions": [["v0"]]}')
    folder = tmp_path / "out"
    export(tmp_path, "v0", folder, onnx=True)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(3, *shape)).astype(np.float32) for _, shape in inputs]
    if name == "icu-transformer":
        values[0][0, 1, 2] = np.nan
    session = onnxruntime.InferenceSession(folder / "v0.onnx")
    (found,) = session.run(None, {k: v for (k, _), v in zip(inputs, values, strict=True)})
    prepared = [2 * (torch.from_numpy(v) - 0.5) for v in values]
    with torch.no_grad():
        if "cnn" in name:
            expected = model(prepared[0].movedim(-1, -3)).softmax(-1)
        else:
            expected = model(*prepared).sigmoid()
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("tensor([[")


def test_what_cannot_be_exported_is_said(run, tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="no participant 'Oak'; there are Alder, "):
        export(run.folder, "Oak", tmp_path)
    with pytest.raises(FileError, match="not the folder of a run"):
        export(tmp_path, "Alder")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(MissingDependencyError, match=r"pip install .*\[onnx\]'"):
            export(run.folder, "Alder", tmp_path, onnx=True)
    assert list(tmp_path.iterdir()) == []

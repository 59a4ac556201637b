"""From a file to a folder: stages are kept, interrupted runs go on, errors help."""

import json
from functools import partial

import pytest

from fedegoists.cli import app
from fedegoists.coalitions import Certificate
from fedegoists.consortium import Consortium
from fedegoists.consortium import pipeline as pipeline_module
from fedegoists.consortium.examples import EXAMPLES, init
from fedegoists.errors import FedEgoistsError, FileError
from fedegoists.learning.models import build_model

QUICK = ["training.steps=40", "training.seeds=2", "benefit.repeats=2", "benefit.threshold=0.05"]
FILES = ("benefit.csv", "metrics.csv", "summary.csv", "gains.csv", "certificate.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("consortium")
    init(folder, "banks")
    return folder, Consortium.read(folder / "consortium.toml", QUICK).run()


def test_a_run_leaves_everything_behind(finished):
    folder, run = finished
    assert run.folder == folder / "runs" / "banks"
    names = {path.name for path in run.folder.iterdir()}
    assert {*FILES, "config.toml", "models", "members", "report.html", "log.txt"} <= names
    assert Certificate.load(run.folder / "certificate.json").check().ok
    assert len(list((run.folder / "models").iterdir())) == 6
    assert len({gain.participant for gain in run.gains}) == 6
    assert json.loads((run.folder / "run.json").read_text())["state"] == "finished"
    # What was resolved is a consortium.toml again, for the same run.
    again = Consortium.read(run.folder / "config.toml")
    assert again.settings == run.settings


def test_a_model_file_says_how_to_use_it(finished):
    from safetensors import safe_open

    _, run = finished
    with safe_open(run.folder / "models" / "Alder.safetensors", "pt") as file:
        about = json.loads(file.metadata()["fedegoists"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    model = build_model(about["model"], 0, **about["options"])
    model.load_state_dict(tensors)
    assert about["participant"] == "Alder"
    assert about["method"] in run.settings.training.methods


def test_only_what_depends_on_a_change_is_done_again(finished, monkeypatch):
    folder, run = finished
    learned, trained = [], []

    def learn(*_, **__):
        learned.append(True)
        raise AssertionError("benefits were learned again")

    monkeypatch.setattr(pipeline_module, "learn", learn)
    changed = [*QUICK, "formation.method=stable", 'training.methods=["local"]']
    again = Consortium.read(folder / "consortium.toml", changed)
    result = again.run("other", progress=lambda *what: trained.append(what))
    assert result.formation.method == "stable"
    # Local does not depend on the decision, so no stage did anything but begin.
    assert [what for _, what, *_ in trained if what] == []
    assert (result.folder / "benefit.csv").read_bytes() == (run.folder / "benefit.csv").read_bytes()


@pytest.mark.parametrize("stage", ["benefit", "training", "report"])
def test_an_interrupted_run_goes_on_to_the_same_files(finished, stage, tmp_path, monkeypatch):
    _, whole = finished
    init(tmp_path, "banks")
    consortium = Consortium.read(tmp_path / "consortium.toml", QUICK)

    def interrupt(at, what, done, *_):
        if at == stage and done:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if stage == "report":
            patched.setattr(pipeline_module, "chosen_models", lambda *_: interrupt("report", "", 1))
        with pytest.raises(KeyboardInterrupt):
            consortium.run(progress=interrupt)
    with pytest.raises(FileError, match="was interrupted; add --resume"):
        consortium.run()
    resumed = consortium.run(resume=True)
    for name in FILES:
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_say_what_they_are(example, tmp_path):
    written = init(tmp_path, example)
    assert written[0].name == "consortium.toml"
    with pytest.raises(FileError, match="is there already"):
        init(tmp_path, example)


def test_a_broken_participant_file_stops_before_any_training(tmp_path):
    init(tmp_path, "banks")
    path = tmp_path / "banks" / "Elm.csv"
    lines = path.read_text().splitlines()
    lines[7] = lines[7].replace(lines[7].split(",")[0], "much")
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FedEgoistsError, match=r"Elm.csv.*line 8.*income"):
        Consortium.read(tmp_path / "consortium.toml")
    assert not (tmp_path / "runs").exists()


def test_an_unwritable_folder_and_a_missing_gpu_are_said_plainly(tmp_path):
    import torch

    init(tmp_path, "banks")
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(FileError, match="runs"):
        Consortium.read(tmp_path / "consortium.toml", QUICK).run()
    if not torch.cuda.is_available():
        (tmp_path / "runs").unlink()
        no_gpu = Consortium.read(tmp_path / "consortium.toml", [*QUICK, "training.device=cuda"])
        with pytest.raises(FedEgoistsError, match="no usable GPU here"):
            no_gpu.run()


def test_the_commands(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(app, ["init", "--example", "banks"]).exit_code == 0
    options = [part for change in QUICK for part in ("--set", change)]
    more = ["--set", 'training.methods=["local"]', "--name", "first"]
    result = runner.invoke(app, ["run", "consortium.toml", *options, *more])
    assert result.exit_code == 0, result.output
    assert "report.html" in result.output.replace("\n", "")
    listed = runner.invoke(app, ["runs"])
    assert "first" in listed.output
    assert "finished" in listed.output


def test_runs_are_listed_and_compared(finished):
    from typer.testing import CliRunner

    folder, run = finished
    changes = [*QUICK, "benefit.threshold=0.5", 'training.methods=["local"]']
    Consortium.read(folder / "consortium.toml", changes).run("strict")
    damaged = folder / "runs" / "damaged"
    damaged.mkdir()
    (damaged / "run.json").write_text('{"state": 3}')
    call = partial(CliRunner().invoke, app, env={"COLUMNS": "200"})
    listed = call(["runs", str(folder / "runs")])
    assert "not readable" in listed.output
    assert "finished" in listed.output
    compared = call(["runs", str(folder / "runs"), "banks", "strict"]).output
    rows = {
        cells[0].strip(): [cell.strip() for cell in cells[1:]]
        for cells in (line.strip("│").split("│") for line in compared.splitlines() if "│" in line)
    }
    assert rows["benefit.threshold"] == ["0.05", "0.5"]
    assert "training.seeds" not in rows  # the same in both
    assert rows["coalitions"][1] == "nobody together"
    assert rows["total benefit"] == [f"{run.formation.welfare:.4g}", "0"]
    assert rows["local, mean auc"][0] == rows["local, mean auc"][1] != ""
    assert rows["fedegoists, mean auc"][1] == ""
    plain = json.loads(call(["runs", str(folder / "runs"), "--json", "banks"]).output)
    assert plain[0]["welfare"] == run.formation.welfare
    assert plain[0]["coalitions"] == [list(group) for group in run.formation.coalitions]
    assert "no run 'nowhere'" in str(call(["runs", str(folder / "runs"), "nowhere"]).exception)


def test_the_consortium_is_at_the_top_without_loading_torch_for_others():
    import subprocess
    import sys

    import fedegoists

    assert fedegoists.Consortium is Consortium
    with pytest.raises(AttributeError, match="no attribute 'Conspiracy'"):
        _ = fedegoists.Conspiracy
    code = "import sys, fedegoists; print('torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert seen.stdout.strip() == "False"

"""From a file to a folder: stages are kept, interrupted runs go on, errors help."""

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedegoists import BenefitGraph
from fedegoists import files as files_module
from fedegoists.cli import app
from fedegoists.coalitions import Certificate
from fedegoists.consortium import Consortium
from fedegoists.consortium import pipeline as pipeline_module
from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
from fedegoists.consortium.example_banks import BANKS
from fedegoists.consortium.example_files import EXAMPLES, init
from fedegoists.consortium.pipeline import STAGES, LearnedBenefit
from fedegoists.consortium.run_list import read_run
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.errors import FedEgoistsError, FileError, SettingsError
from fedegoists.learning.models import build_model

QUICK = ["training.steps=40", "training.seeds=2", "benefit.repeats=2", "benefit.threshold=0.05"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
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
    # Who trains alone has no gain.
    together = {name for group in run.formation.coalitions if len(group) > 1 for name in group}
    assert {gain.participant for gain in run.gains} == together
    assert len(together) + len(run.alone) == 6
    assert json.loads((run.folder / "run.json").read_text())["state"] == "finished"
    # These say, or let one guess, who competes with whom, or describe somebody's data.
    private = ("config.toml", "weights.csv", "report.html", "models/Alder", *FILES)
    for name in private:
        path = next(run.folder.glob(f"{name}*"))
        assert path.stat().st_mode & 0o077 == 0, name
    for path in (folder / "runs" / ".stages").rglob("*.*"):
        assert path.stat().st_mode & 0o077 == 0, path
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


def test_another_task_with_the_same_numbers_is_learned_and_trained_anew(finished, tmp_path):
    folder, _ = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    schema = tmp_path / "banks" / "schema.toml"
    schema.write_text(schema.read_text().replace('"binary"', '"classification"'))
    begun = []
    changes = [*QUICK, 'training.methods=["local"]']
    again = Consortium.read(tmp_path / "consortium.toml", changes)
    result = again.run("classes", progress=lambda stage, what, *_: begun.append((stage, what)))
    assert {stage for stage, what in begun if what} == {"benefit", "training"}
    assert result.repetitions.federation.task.metric == "accuracy"


@pytest.mark.parametrize("name", ["../x", ".stages", "a/b", "-x", "", "x" * 81, "x\n"])
def test_a_run_stays_in_its_folder(finished, name):
    folder, _ = finished
    before = sorted(folder.parent.iterdir()), sorted((folder / "runs").iterdir())
    with pytest.raises(SettingsError, match="a run's name has up to 80 letters"):
        Consortium.read(folder / "consortium.toml", QUICK).run(name)
    assert (sorted(folder.parent.iterdir()), sorted((folder / "runs").iterdir())) == before


def test_what_was_resolved_leads_to_the_same_run(finished):
    folder, _ = finished
    changes = [*QUICK, 'training.methods=["local"]']
    run = Consortium.read(folder / "consortium.toml", changes).run("named")
    again = Consortium.read(run.folder / "config.toml").run(replace=True)
    assert again.folder == run.folder == folder / "runs" / "named"


def test_nothing_of_an_earlier_run_of_the_same_name_is_left(finished, tmp_path):
    folder, _ = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    earlier = tmp_path / "runs" / "banks"
    (tmp_path / "banks" / "Fir.csv").unlink()
    changes = [*QUICK, 'training.methods=["local"]']
    consortium = Consortium.read(tmp_path / "consortium.toml", changes)

    def stop(stage, *_):
        if stage == "benefit":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consortium.run(progress=stop, replace=True)
    # The earlier run is whole, and has its own settings, until the new one is whole.
    assert all((earlier / name).exists() for name in (*FILES, "weights.csv", "report.html"))
    assert read_run(earlier).means.keys() > {"local"}
    consortium.run(resume=True)
    for part in ("models", "members"):
        assert {path.stem for path in (earlier / part).iterdir()} == set(BANKS) - {"Fir"}


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_a_damaged_marker_counts_as_interrupted(text, tmp_path):
    init(tmp_path, "banks")
    marker = tmp_path / "runs" / "banks" / "run.json"
    marker.parent.mkdir(parents=True)
    marker.write_text(text)
    with pytest.raises(FileError, match="was interrupted; add --resume"):
        Consortium.read(tmp_path / "consortium.toml").run()


KILLED = """
import os, signal, sys
from fedegoists.consortium import Consortium, report

stage, file, *changes = sys.argv[1:]

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def watch(at, what, done, total, remark):
    if at == stage and (done > 1 or stage in ("data", "formation")):
        kill()

if stage == "report":
    report.write_report = kill
Consortium.read(file, changes).run(progress=watch)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_killed_in_any_stage_goes_on_to_the_same_files(finished, stage, tmp_path):
    _, whole = finished
    init(tmp_path, "banks")
    file = tmp_path / "consortium.toml"
    arguments = [sys.executable, "-c", KILLED, stage, str(file), *QUICK]
    killed = subprocess.run(arguments, capture_output=True, text=True, env=ONE_THREAD)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = tmp_path / "runs" / "banks"
    marker = json.loads((folder / "run.json").read_text())
    assert (marker["state"], marker["stage"]) == ("running", stage)
    assert (folder / "certificate.json").exists() == (stage in ("training", "report"))
    consortium = Consortium.read(file, QUICK)
    with pytest.raises(FileError, match="was interrupted; add --resume"):
        consortium.run()
    resumed = consortium.run(resume=True)
    for name in FILES:
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    init(tmp_path, "banks")
    monkeypatch.setattr(pipeline_module, "learn", interrupt)
    file = str(tmp_path / "consortium.toml")
    options = ["--set", 'training.methods=["local"]', "--name", "first one"]
    result = CliRunner().invoke(app, ["run", file, *options])
    assert result.exit_code == 130
    assert read_run(tmp_path / "runs" / "first one").state == "interrupted"
    again = result.stdout.strip().removeprefix("Stopped. Go on with: ")
    assert shlex.split(again) == ["fedegoists", "run", file, *options, "--resume"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_say_what_they_are(example, tmp_path):
    written = init(tmp_path, example)
    assert written[0].name == "consortium.toml"
    assert written[0].stat().st_mode & 0o077 == 0, "it says who competes"
    read_settings(written[0])
    with pytest.raises(FileError, match="is there already"):
        init(tmp_path, example)


def test_competition_that_was_never_published_is_not_taken_for_none(tmp_path):
    init(tmp_path, "banks")
    file = tmp_path / "consortium.toml"
    changes = ["competition.pairs=[]", "competition.published=true"]
    with pytest.raises(FedEgoistsError, match="no published competition; say who competes"):
        Consortium.read(file, changes)


def test_a_network_that_does_not_suit_the_data_stops_before_anything_is_written(finished, tmp_path):
    folder, run = finished
    changes = [*QUICK, f'output.folder="{tmp_path / "runs"}"']
    with pytest.raises(SettingsError, match=r"^training\.model: the model 'cifar10-cnn' does not"):
        Consortium.read(folder / "consortium.toml", [*changes, "training.model=cifar10-cnn"])
    assert not (tmp_path / "runs").exists()
    assert "network <code>logistic</code>" in (run.folder / "report.html").read_text()


def test_naming_the_network_that_auto_chooses_changes_no_key(finished):
    folder, _ = finished
    begun = []
    named = Consortium.read(folder / "consortium.toml", [*QUICK, "training.model=logistic"])
    named.run("named-model", progress=lambda stage, what, *_: begun.append((stage, what)))
    assert not any(what for _, what in begun)


def test_a_misspelled_key_is_named_rather_than_the_one_that_is_missing(tmp_path):
    file = tmp_path / "consortium.toml"
    file.write_text('[data]\nsorce = "banks"\n')
    with pytest.raises(SettingsError, match=r"line 2: unknown key 'data.sorce'; keys of data are"):
        read_settings(file)


def test_a_broken_participant_file_stops_before_any_training(tmp_path):
    init(tmp_path, "banks")
    path = tmp_path / "banks" / "Elm.csv"
    lines = path.read_text().splitlines()
    lines[7] = lines[7].replace(lines[7].split(",")[0], "much")
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FedEgoistsError, match=r"Elm.csv.*line 8.*income"):
        Consortium.read(tmp_path / "consortium.toml")
    assert not (tmp_path / "runs").exists()


def test_what_a_machine_lacks_is_said_in_a_line(tmp_path, monkeypatch, capsys):
    import torch

    from fedegoists.cli import main

    def told(*changes):
        options = [part for change in (*QUICK, *changes) for part in ("--set", change)]
        monkeypatch.setattr(sys, "argv", ["fedegoists", "run", "consortium.toml", *options])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        said = capsys.readouterr().err.strip()
        assert said.startswith("error: ")
        assert "\n" not in said
        return said

    monkeypatch.chdir(tmp_path)
    init(tmp_path, "banks")
    Path("occupied").write_text("a file")
    assert "occupied/banks/run.json: cannot be written" in told("output.folder=occupied")
    # Not even the superuser can write there.
    assert "/proc/runs/banks/run.json: cannot be written" in told("output.folder=/proc/runs")
    if not torch.cuda.is_available():
        assert "training.device: there is no usable GPU here" in told("training.device=cuda")
        assert not Path("runs").exists()


@pytest.mark.parametrize("writes", [0, 5])
def test_a_full_disk_is_said_plainly_and_the_run_goes_on_later(
    finished, writes, tmp_path, monkeypatch
):
    _, whole = finished
    init(tmp_path, "banks")
    consortium = Consortium.read(tmp_path / "consortium.toml", QUICK)
    left = [writes]

    def full(_file):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(files_module.os, "fsync", full)
        with pytest.raises(FileError, match=r"cannot be written \(No space left on device\)"):
            consortium.run()
    resumed = consortium.run(resume=True)
    assert (resumed.folder / "summary.csv").read_bytes() == (
        whole.folder / "summary.csv"
    ).read_bytes()


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
    assert "name" not in rows  # the columns say it
    assert rows["coalitions"][1] == "none"
    assert rows["total benefit"] == [f"{run.formation.welfare:.4g}", "0"]
    assert rows["local, mean AUC"][0] == rows["local, mean AUC"][1] != ""
    assert rows["fedegoists, mean AUC"][1] == ""
    plain = json.loads(call(["runs", str(folder / "runs"), "--json", "banks"]).output)
    assert plain[0]["welfare"] == run.formation.welfare
    assert plain[0]["coalitions"] == [list(group) for group in run.formation.coalitions]
    assert "no run 'nowhere'" in str(call(["runs", str(folder / "runs"), "nowhere"]).exception)


def test_the_consortium_is_at_the_top_without_loading_torch_for_others():
    import fedegoists

    assert fedegoists.Consortium is Consortium
    with pytest.raises(AttributeError, match="no attribute 'Conspiracy'"):
        _ = fedegoists.Conspiracy
    code = "import sys, fedegoists; print('torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert seen.stdout.strip() == "False"


class Elsewhere:
    """Silos that are not in this process, as far as a consortium can tell."""

    local = False
    absent = ()

    def __init__(self, settings, images):
        inner = SimulatedEngine(settings)
        self.data, self.federation = inner.data, inner.federation
        if images:
            self.data = replace(
                self.data,
                task="classification",
                classes=10,
                shapes=((32, 32, 3),),
                kinds=("u1",),
                preparation=(),
            )
            self.federation = lambda model: SimpleNamespace(participants=())  # all consent


@pytest.mark.parametrize("images", [False, True])
def test_silos_elsewhere_are_kept_from_competitors_and_know_no_secret(
    finished, tmp_path, monkeypatch, images
):
    folder, _ = finished
    settings = read_settings(
        folder / "consortium.toml", [*QUICK, f'output.folder="{tmp_path / "runs"}"']
    )

    class LearnedError(Exception):
        pass

    def learn(federation, learning, *, apart, secret, progress):
        raise LearnedError(learning.estimator, apart, secret)

    monkeypatch.setattr(pipeline_module, "learn", learn)
    seen = []
    for _ in range(2):
        consortium = Consortium(settings, Elsewhere(settings, images))
        with pytest.raises(LearnedError) as found:
            consortium.learn_benefit()
        seen.append(found.value.args)
    estimator, apart, secret = seen[0]
    assert estimator == "transfer"
    assert apart == consortium.competition.pairs != ()
    assert len(secret) == 64
    assert seen[0] == seen[1]  # with another one a silo could compare what it was shown
    kept = tmp_path / "runs" / ".stages" / "secret"
    assert kept.read_text() == secret
    assert kept.stat().st_mode & 0o077 == 0


def test_coalitions_have_the_demanded_number_of_members():
    """v1 and v2 benefit each other, and v3, v4 and v5 in a circle; v1 competes with v3."""
    settings = {"data": {"source": "synthetic-weak"}, "competition": {"pairs": [["v1", "v3"]]}}
    edges = [("v1", "v2", 5), ("v2", "v1", 5), ("v3", "v4", 1), ("v4", "v5", 1), ("v5", "v3", 1)]
    for demanded, expected in ((1, 13), (3, 3), (4, 0)):
        consortium = Consortium(
            ConsortiumSettings(**settings, formation={"fewest_members": demanded})
        )
        graph = BenefitGraph.from_edges(edges, consortium.data.participants)
        formation = consortium.form(LearnedBenefit(graph))
        assert (formation.fewest_members, formation.welfare) == (demanded, expected)
        assert formation.certificate.check(fewest_members=demanded).ok


@pytest.mark.parametrize("estimator", ["transfer", "hypernetwork"])
def test_the_steps_of_learning_benefits_are_those_of_the_file(estimator, tmp_path):
    """What silos compute grows by the same for every further step, whoever takes the steps."""

    def passes(steps):
        consortium = Consortium(
            ConsortiumSettings(
                data={"source": "synthetic-weak"},
                competition={"pairs": []},
                benefit={"estimator": estimator, "steps": steps, "repeats": 2},
                training={"model": "mlp"},
                output={"folder": str(tmp_path / "runs")},
            )
        )
        return consortium.learn_benefit().estimate.cost.sample_passes

    few, more, most = (passes(steps) for steps in (2, 4, 6))
    assert most - more == more - few > 0


def test_trees_have_room_for_those_from_which_benefits_are_learned():
    pytest.importorskip("lightgbm")
    consortium = Consortium(
        ConsortiumSettings(
            data={"source": "synthetic-weak"},
            competition={"pairs": []},
            benefit={"steps": 30},
            training={"model": "trees", "steps": 20},
        )
    )
    assert consortium.model.given["trees"] == 30

"""Logs get every evaluation, by method, split, metric and participant."""

import re
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.federation import Participant
from fedegoists.install_hints import install_command
from fedegoists.methods.outcome import Row
from fedegoists.training.run_logs import run_logs

NORTH = Participant("North (Łódź)", 0)
OUTCOME = SimpleNamespace(
    rows=[
        Row(NORTH, 0, "validation", "auc", 0.5),
        Row(NORTH, 2, "validation", "auc", 0.75),
        Row(NORTH, 2, "test", "loss", 0.25),
    ]
)


class Recorder:
    """The part of MLflow and of Weights & Biases that is used, which keeps what it is told."""

    def __init__(self):
        self.told, self.open = [], 0

    @contextmanager
    def start_run(self, run_name):
        self.name, self.open = run_name, 1
        yield
        self.open = 0

    def log_metrics(self, values, step):
        self.told.append((step, values))

    def init(self, project, name, **_folder):
        self.name, self.open = name, 1
        return self

    def log(self, values):
        self.told.append(values)

    def finish(self):
        self.open = 0


def test_mlflow_is_told_of_evaluations_under_names_that_it_takes(monkeypatch, tmp_path):
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", recorder)
    with run_logs(["mlflow"], tmp_path, "banks") as (observe,):
        observe("fedavg", 1, 2, OUTCOME)  # no evaluation
        assert recorder.open
        observe("fedavg", 2, 2, OUTCOME)
    assert (recorder.name, recorder.open) == ("banks", 0)
    ((step, values),) = recorder.told
    assert step == 2
    assert sorted(values.values()) == [0.25, 0.75]
    assert all("(" not in name and "Łódź" in name for name in values)


def test_weights_and_biases_is_told_the_round_of_each_method(monkeypatch, tmp_path):
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", recorder)
    with run_logs(["wandb"], tmp_path / "new", "banks") as (observe,):
        observe("fedavg", 2, 2, OUTCOME)
        observe("local", 2, 2, OUTCOME)
    assert [values["fedavg/round"] for values in recorder.told[:1]] == [2]
    assert recorder.told[1]["local/round"] == 2
    assert not recorder.open


def test_tensorboard_is_written(tmp_path):
    pytest.importorskip("tensorboard")
    with run_logs(["tensorboard"], tmp_path, "banks") as (observe,):
        observe("fedavg", 2, 2, OUTCOME)
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"fedavg/validation auc/" in file.read_bytes()


def test_the_real_mlflow_takes_it(monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with run_logs(["mlflow"], tmp_path, "banks") as (observe,):
        observe("fedavg", 2, 2, OUTCOME)


@pytest.mark.parametrize("kind", ["mlflow", "wandb"])
def test_a_missing_package_is_named_with_its_command(kind, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, kind, None)
    with (
        pytest.raises(MissingDependencyError, match=re.escape(install_command(kind))),
        run_logs([kind], tmp_path, "banks"),
    ):
        pass


def test_an_unknown_log_is_refused(tmp_path):
    with (
        pytest.raises(SettingsError, match="logs are tensorboard, mlflow, wandb"),
        run_logs(["notes"], tmp_path, "banks"),
    ):
        pass

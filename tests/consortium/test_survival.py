"""Times to an event, from the files to the report and the exported model."""

import csv

import numpy as np
import pytest
import torch

from fedegoists.consortium import Consortium
from fedegoists.consortium.export import PreparedModel, export, read_model
from fedegoists.consortium.prediction import predict
from fedegoists.federation import Failure, Participant, SimulatedFederation, Train, TrainSettings
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load_own
from fedegoists.learning.models import build_model
from fedegoists.learning.task import TASKS
from fedegoists.training.decay_search import DECAYS

SCHEMA = """
features = ["age", "grade", "size"]
target = "days"
event = "died"
task = "survival"
"""
TOML = """
name = "survival"
[data]
source = "clinics"
[benefit]
repeats = 2
steps = 20
[training]
methods = ["local", "fedavg"]
seeds = 1
steps = 120
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write patients whose risk grows with grade and size; half of them are censored."""
    path = tmp_path_factory.mktemp("survival")
    (path / "clinics").mkdir()
    (path / "clinics" / "schema.toml").write_text(SCHEMA)
    for k, name in enumerate(("Aachen", "Bonn")):
        rng = np.random.default_rng(k)
        x = rng.normal(size=(150, 3))
        days = 1 + rng.exponential(900 * np.exp(-(x @ [0.2, 1.0, 1.0])))
        until = 1 + rng.exponential(900, 150)
        rows = np.column_stack([x.round(3), np.minimum(days, until).round(1)]).tolist()
        died = ["yes" if d < u else "no" for d, u in zip(days, until, strict=True)]
        lines = [",".join([*map(str, row), one]) for row, one in zip(rows, died, strict=True)]
        (path / "clinics" / f"{name}.csv").write_text(
            "\n".join(["age,grade,size,days,died", *lines]) + "\n"
        )
    (path / "consortium.toml").write_text(TOML)
    return path


def test_a_consortium_learns_who_is_at_risk(folder, tmp_path):
    run = Consortium.read(folder / "consortium.toml").run()
    with (run.folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "c-index"]
    best = max(float(row["value"]) for row in rows if row["split"] == "test")
    assert 0.7 < best <= 1.0
    # Participants tried several weight decays, and all methods use what they found.
    decay = run.repetitions.defaults.train.weight_decay
    assert decay in DECAYS
    assert run.repetitions.defaults.tune.weight_decay == decay
    assert f"Its weight decay is {decay}: of several" in (run.folder / "report.html").read_text()
    assert f"weight decay {decay:g}" in (run.folder / "log.txt").read_text()
    export(run.folder, "Bonn", tmp_path)
    model, card = read_model(tmp_path / "Bonn.safetensors")
    with (folder / "clinics" / "Bonn.csv").open() as file:
        table = list(csv.DictReader(file))
    raw = torch.tensor([[float(row[name]) for name in ("age", "grade", "size")] for row in table])
    times = torch.tensor([float(r["days"]) * (1 if r["died"] == "yes" else -1) for r in table])
    with torch.no_grad():
        risks = PreparedModel(model, card)(raw)
    assert TASKS["survival"].score(risks, times) > 0.7


def test_trees_learn_who_is_at_risk_and_are_a_yardstick(folder, tmp_path):
    pytest.importorskip("lightgbm")
    training = ["training.model=trees", 'training.methods=["local", "bagging"]']
    few = ["training.steps=40", f"output.folder={tmp_path / 'runs'}"]
    run = Consortium.read(folder / "consortium.toml", [*training, *few]).run()
    assert not any(outcome.failures for outcome in run.outcomes.values())
    export(run.folder, "Bonn", tmp_path / "out")
    found = predict(tmp_path / "out" / "Bonn.safetensors", folder / "clinics" / "Bonn.csv")
    with (folder / "clinics" / "Bonn.csv").open() as file:
        times = [(float(r["days"]), r["died"] == "yes") for r in csv.DictReader(file)]
    targets = torch.tensor([time if died else -time for time, died in times])
    assert TASKS["survival"].score(torch.from_numpy(found.values[:, :1]), targets) > 0.7
    cox = Consortium.read(
        folder / "consortium.toml", ["name=cox", "training.steps=20", *few[1:]]
    ).run()
    assert set(cox.yardstick.values) == {"Aachen", "Bonn", "all"}
    assert cox.yardstick.values["all"][0] > 0.6


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_both_engines_train_alike_and_refuse_privacy(folder, execution):
    data = load_own(folder / "clinics")
    model = build_model("mlp", 0, features=3, outputs=1)
    federation = SimulatedFederation(data, model, execution=execution)
    start = federation.schema.drawn(0)
    request = Train(parameters=start, settings=TrainSettings(steps=20, learning_rate=0.05))
    replies = federation.call({Participant(name): request for name in data.participants})
    for reply in replies.values():
        assert reply.parameters.isfinite().all()
        assert not torch.equal(reply.parameters, start)
    private = Train(parameters=start, settings=TrainSettings(steps=2, clip=1.0))
    refused = federation.call({Participant(name): private for name in data.participants})
    for reply in refused.values():
        assert isinstance(reply, Failure)
        assert "a survival task compares samples with one another" in reply.detail


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("0,yes", r"line 3, column 'days': a time must be above 0; remove the row"),
        ("5,", r"line 3, column 'died': it is not known whether the event happened"),
        ("5,perhaps", r"line 3, column 'died': 'perhaps' is neither true nor false"),
        (",yes", r"line 3, column 'days': the value to predict is missing"),
    ],
)
def test_times_that_are_none(folder, tmp_path, cells, message):
    lines = (folder / "clinics" / "Bonn.csv").read_text().splitlines()
    lines[2] = f"1,1,1,{cells}"
    (tmp_path / "Bonn.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=message):
        load_own(tmp_path, folder / "clinics" / "schema.toml")


def test_too_few_events(folder, tmp_path):
    text = (folder / "clinics" / "Bonn.csv").read_text()
    (tmp_path / "Bonn.csv").write_text(text.replace(",yes", ",no").replace(",no", ",yes", 2))
    with pytest.raises(DataError, match=r"column 'died': fewer than 3 events are too few"):
        load_own(tmp_path, folder / "clinics" / "schema.toml")

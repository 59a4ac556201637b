"""A silo's limits, and what it does to everything that leaves."""

import datetime
import json
import os
import stat
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save

from fedegoists.consortium.export import read_model
from fedegoists.deploy.delivered_models import export_silo_model
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation import (
    Deliver,
    Describe,
    Evaluate,
    Gradient,
    Keep,
    LocalTerms,
    Participant,
    Personal,
    SimulatedFederation,
    Train,
    TrainSettings,
)
from fedegoists.federation.flare import silo_checkpoints as kept
from fedegoists.federation.flare import silo_limits as guard
from fedegoists.federation.flare.messages import Answers, Asked, Call, Lineage, Rollback
from fedegoists.federation.flare.silo_service import SiloService
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.federation.flare.wire import PROTOCOL, pack, schema_digest, unpack
from fedegoists.federation.replies import Failed
from fedegoists.learning import model_files
from fedegoists.learning.datasets import load_own
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from tests.federation.test_simulated import assert_alike
from tests.flare.loopback import write_tables

NAMES = ("North Bank", "South", "East")
MODEL = build_model("mlp", 0, features=3, outputs=1)
SCHEMA = ParameterSchema.of(MODEL)
START = SCHEMA.flatten(dict(MODEL.named_parameters()))
SETTINGS = TrainSettings(steps=5, batch_size=16, learning_rate=0.1)


def kit(folder, more=""):
    write_tables(folder, NAMES)
    (folder / "silo.toml").write_text(
        'participant = "South"\n[data]\nfile = "South.csv"\nschema = "schema.toml"\nposition = 2\n'
        + more
    )
    return folder


class Answer(NamedTuple):
    """What a silo answers in the one repetition it was asked about."""

    reply: Any
    refused: str | None


def asked(service, request, caller="server", **changes):
    """Ask a silo in the repetition 1; without a request, one of the coordinator's own calls."""
    parts = () if isinstance(request, str) else (Asked(repetition=1, request=request),)
    call = Call(
        operation=request if isinstance(request, str) else request.operation,
        run="r",
        model="mlp",
        schema_is=schema_digest(SCHEMA),
        repetitions=2,
        asked=parts,
    ).model_copy(update=changes)
    answers = unpack(Answers, service.answer(caller, pack(call)))
    (reply,) = (one.reply for one in answers.answered) if answers.answered else (None,)
    return Answer(reply, answers.refused)


def lineage(checkpoint, *rollbacks, owner="fedavg"):
    """Where a run stands: a checkpoint, and the rollbacks (to, at) before it."""
    made = tuple(Rollback(to=to, at=at) for to, at in rollbacks)
    return {owner: Lineage(checkpoint=checkpoint, rollbacks=made)}


def today():
    return datetime.datetime.now(datetime.UTC).date().isoformat()


TRAIN = Train(parameters=START, settings=SETTINGS, seed="0/0")
GRADIENT = Gradient(parameters=START[None], batch_size=8, seed=1, step=0)
SCORE = Evaluate(parameters=START, split="test")
HALF = Evaluate(parameters=START, split="validation", share=0.5, step=1, seed="0/validation")
MODEL_SENT = Deliver(parameters=START, method="fedavg", round=1)
OWN = Personal(prefixes=("output.",), slot="fedavg")


def test_a_silo_alone_has_the_rows_it_has_among_all(tmp_path):
    alone = load_silo(read_silo_settings(kit(tmp_path) / "silo.toml"))
    everybody = load_own(
        {name: tmp_path / f"{name}.csv" for name in sorted(NAMES)}, tmp_path / "schema.toml"
    )
    for split in ("train", "validation", "test"):
        one, other = alone.part("South", split), everybody.part("South", split)
        assert (one.inputs[0] == other.inputs[0]).all()
        assert (one.targets == other.targets).all()


def test_a_silo_answers_as_the_simulation_does(tmp_path):
    service = SiloService(kit(tmp_path))
    data = load_silo(read_silo_settings(tmp_path / "silo.toml"))
    simulated = SimulatedFederation({1: data}, build_model("mlp", 0, features=3, outputs=1))
    for request in (
        TRAIN,
        TRAIN.changed(terms=LocalTerms(anchor=START, pull=0.1)),
        GRADIENT,
        SCORE,
        HALF.changed(parameters=torch.stack([START, START / 2])),
        Describe(direction=True),
    ):
        (expected,) = simulated.call({Participant("South", 1): request}).values()
        assert_alike(asked(service, request).reply, expected)


def test_only_the_coordinator_may_ask(tmp_path):
    service = SiloService(kit(tmp_path))
    assert asked(service, TRAIN, caller="East") == (None, "only the coordinator may ask")
    assert "refused train from East" in (tmp_path / "silo.log").read_text()


def test_operations_outside_the_limits_are_refused_and_logged(tmp_path):
    service = SiloService(kit(tmp_path, '[limits]\noperations = ["evaluate"]\nmodels = ["mlp"]\n'))
    assert asked(service, SCORE).refused is None
    for request in (TRAIN, GRADIENT, Describe()):
        refused = f"{request.operation} is not among the operations allowed here"
        assert asked(service, request) == (None, refused)
    told = asked(service, SCORE, model="cifar10-cnn")
    assert "not among those allowed" in told.refused
    assert (tmp_path / "silo.log").read_text().count("WARNING refused") == 4
    for request in ("remember", "recall", MODEL_SENT):
        assert asked(service, request).refused is None
        refused = asked(service, request, model="cifar10-cnn").refused
        assert refused == "this network is not among those allowed here"


def test_rounds_a_day_are_counted_over_restarts(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nrounds_per_day = 3\n"))
    for _ in range(2):
        assert asked(service, TRAIN).refused is None
    service = SiloService(tmp_path)
    assert asked(service, GRADIENT).refused is None
    assert asked(service, SCORE).refused is None
    assert "more than the 3 allowed" in asked(service, TRAIN).refused
    yesterday = datetime.date.fromisoformat(today()) - datetime.timedelta(days=1)
    counted = {"day": yesterday.isoformat(), "rounds": 3, "evaluations": 0}
    (tmp_path / "state" / "rounds.json").write_text(json.dumps(counted))
    assert asked(service, TRAIN).refused is None


def test_every_model_gradient_and_loss_of_a_part_counts_as_a_round(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nrounds_per_day = 10\n"))

    def count():
        return json.loads((tmp_path / "state" / "rounds.json").read_text())["rounds"]

    assert asked(service, GRADIENT.changed(parameters=START.repeat(4, 1))).refused is None
    assert count() == 4
    assert asked(service, HALF.changed(parameters=START.repeat(3, 1))).refused is None
    assert count() == 7
    call = Call(
        operation="train",
        model="mlp",
        schema_is=schema_digest(SCHEMA),
        repetitions=2,
        asked=tuple(Asked(repetition=number, request=TRAIN) for number in range(2)),
    )
    assert unpack(Answers, service.answer("server", pack(call))).refused is None
    assert count() == 9
    refused = unpack(Answers, service.answer("server", pack(call))).refused
    assert refused == "9 rounds have been answered today; 2 more are more than the 10 allowed"
    assert count() == 9
    assert asked(service, SCORE).refused is None
    assert count() == 9


def test_models_measured_on_a_whole_split_are_counted_by_themselves(tmp_path):
    more = "[limits]\nrounds_per_day = 2\nevaluations_per_day = 4\n"
    service = SiloService(kit(tmp_path, more))

    def evaluated(split, models=START, **part):
        return asked(service, Evaluate(parameters=models, split=split, **part)).refused

    def counted():
        return json.loads((tmp_path / "state" / "rounds.json").read_text())

    assert evaluated("test", START.repeat(3, 1)) is None
    assert (counted()["rounds"], counted()["evaluations"]) == (0, 3)
    assert "2 more are more than the 4 allowed" in evaluated("validation", START.repeat(2, 1))
    assert counted()["evaluations"] == 3  # what was refused does not count
    service = SiloService(tmp_path)
    assert evaluated("validation") is None
    assert "4 evaluations have been answered today" in evaluated("test")
    assert "refused evaluate from server: 4 evaluations" in (tmp_path / "silo.log").read_text()
    # Nor by a share that is all of it, or nearly, nor with a gradient.
    for share in (1.0, 0.95):
        part = {"share": share, "step": 0, "seed": 1}
        assert "4 evaluations have been answered today" in evaluated("validation", **part)
    assert "4 evaluations" in asked(service, GRADIENT.changed(split="test")).refused
    assert evaluated("train") is None  # of training samples: a round
    assert (counted()["rounds"], counted()["evaluations"]) == (1, 4)
    assert asked(service, TRAIN).refused is None
    assert "2 rounds have been answered today" in evaluated("train")


@pytest.mark.parametrize(
    ("kind", "part", "rounds", "evaluations"),
    [
        (Evaluate, {"split": "test", "share": 1.0}, 0, 1),
        (Evaluate, {"split": "test", "share": 0.95}, 1, 1),
        (Evaluate, {"split": "test", "share": 0.5}, 1, 0),
        (Gradient, {"split": "validation", "share": 0.5}, 1, 1),
        (Gradient, {"split": "train", "share": 0.5}, 1, 0),
    ],
)
def test_what_an_answer_counts_as_follows_from_its_samples(
    tmp_path, kind, part, rounds, evaluations
):
    more = "[limits]\nrounds_per_day = 9\nevaluations_per_day = 9\n"
    request = kind(parameters=START[None], step=0, seed=1, **part)
    assert asked(SiloService(kit(tmp_path, more)), request).refused is None
    counted = json.loads((tmp_path / "state" / "rounds.json").read_text())
    assert (counted["rounds"], counted["evaluations"]) == (rounds, evaluations)


def test_nothing_is_answered_where_the_count_cannot_be_read(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nrounds_per_day = 3\n"))
    count = tmp_path / "state" / "rounds.json"
    for content in ("", "{", "[]", "3", "{}", json.dumps({"day": today(), "rounds": None})):
        count.write_text(content)
        assert "is not known" in asked(service, TRAIN).refused
        assert count.read_text() == content
    log = (tmp_path / "silo.log").read_text()
    assert "refused train from server: rounds.json cannot be read" in log
    assert asked(service, SCORE).refused is None
    count.write_text(json.dumps({"day": today(), "rounds": 2}))  # from before evaluations counted
    assert asked(service, TRAIN).refused is None
    assert "3 rounds have been answered" in asked(service, TRAIN).refused


def test_what_a_silo_writes_is_for_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        (tmp_path / "silo.log").touch(mode=0o666)  # from before
        service = SiloService(kit(tmp_path, "[limits]\nrounds_per_day = 100\n"))
        asked(service, TRAIN.changed(personal=OWN))
        asked(service, "about")
        asked(service, MODEL_SENT)
    finally:
        os.umask(before)
    found = [tmp_path / "silo.log", *tmp_path.glob("state/*"), *tmp_path.glob("models/*")]
    assert {path.name for path in found} >= {"silo.log", "rounds.json", "secret", "r.safetensors"}
    # The lock is empty, and its folder is closed.
    assert {path.name for path in found if path.stat().st_mode & 0o077} <= {"rounds.lock"}
    for folder in ("state", "models"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_no_answer_is_about_a_few_samples(tmp_path):
    service = SiloService(kit(tmp_path))
    single = {"parameters": START, "split": "train", "seed": 1, "step": 3}
    for request in (
        Evaluate(**single, share=0.03),
        Evaluate(**{**single, "split": "validation"}, share=0.1),
        Gradient(**single, batch_size=1),
        Gradient(**single, share=0.03),
        TRAIN.changed(settings=TrainSettings(steps=1, batch_size=1)),
    ):
        reply, refused = asked(service, request)
        assert reply is None
        assert "here at least" in refused
    more = kit(tmp_path / "more", "[limits]\nfewest_samples = 1\n")
    assert asked(SiloService(more), Gradient(**single, batch_size=1)).refused is None


def test_where_gradients_are_clipped_losses_of_a_part_are_hidden(tmp_path):
    service = SiloService(kit(tmp_path, "[privacy]\ngradient_clip = 1.0\n"))
    for request in (HALF, SCORE.changed(split="train")):
        assert "hidden" in asked(service, request).refused
    assert asked(service, SCORE).refused is None


def test_a_request_cannot_take_all_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "MOST_DRAWS", 100)
    service = SiloService(kit(tmp_path))
    assert asked(service, TRAIN).refused is None  # 5 steps of 16
    longer = TrainSettings(steps=7, batch_size=16)
    refused = asked(service, TRAIN.changed(settings=longer)).refused
    assert "more than there is memory for" in refused


def test_every_request_is_one_line_of_the_log(tmp_path):
    service = SiloService(kit(tmp_path))
    asked(service, "about", run="a\n2026-01-01 00:00:00 INFO all is well")
    asked(service, "remember", lineages=lineage(1))
    asked(service, SCORE, caller="East\nINFO x")
    broken = asked(service, GRADIENT.changed(augment=True))  # no images
    lines = (tmp_path / "silo.log").read_text().splitlines()
    assert "WARNING refused a message from server: run:" in lines[1]
    assert "remember for run r" in lines[2]
    assert "refused evaluate from East\\nINFO x" in lines[3]
    assert "loss_and_gradient from server failed" in lines[4]
    assert broken.refused == "the silo failed (RuntimeError)"


def test_no_slot_breaks_what_a_silo_has_kept(tmp_path):
    service = SiloService(kit(tmp_path))
    for slot in ("fedavg/\nx", "../x", "fedavg/a/b", "fedavg\n", "方" * 90, "a" * 61):
        with pytest.raises(SettingsError):
            Keep(slot=slot)
        refused = asked(service, Keep(slot="x").model_copy(update={"slot": slot})).refused
        assert "slot" in refused


def test_a_model_that_leaves_has_not_moved_further_than_allowed(tmp_path):
    free = asked(SiloService(kit(tmp_path / "a")), TRAIN).reply.parameters
    bounded = SiloService(kit(tmp_path / "b", "[privacy]\nupdate_clip = 0.01\n"))
    bound = asked(bounded, TRAIN).reply.parameters
    assert (free - START).norm() > 0.02
    assert (bound - START).norm() == pytest.approx(0.01, rel=1e-3)
    torch.testing.assert_close(
        (bound - START) / 0.01, (free - START) / (free - START).norm(), rtol=0.01, atol=1e-3
    )


def test_a_momentum_goes_on_but_never_leaves_a_silo_that_bounds_what_does(tmp_path):
    moving = TRAIN.changed(terms=LocalTerms(momentum=torch.full_like(START, 0.01)))
    free = asked(SiloService(kit(tmp_path / "a")), moving).reply
    plain = asked(SiloService(kit(tmp_path / "b")), TRAIN).reply
    assert free.momentum.shape == START.shape
    assert plain.momentum is None
    assert not torch.equal(free.parameters, plain.parameters)
    for clip in ("update_clip", "gradient_clip"):
        bounded = SiloService(kit(tmp_path / clip, f"[privacy]\n{clip} = 0.01\n"))
        assert asked(bounded, moving).reply.momentum is None


def test_noise_is_as_strong_as_said_and_never_the_same(tmp_path):
    more = "[privacy]\nupdate_clip = 0.5\nupdate_noise = 0.2\n"
    more += "gradient_clip = 1.0\ngradient_noise = 4.0\n"
    service = SiloService(kit(tmp_path, more))
    one, other = (asked(service, TRAIN).reply.parameters for _ in range(2))
    assert (one - other).std() == pytest.approx(0.2 * 0.5 * 2**0.5, rel=0.15)
    one, other = (asked(service, GRADIENT).reply for _ in range(2))
    assert one.losses == (0.0,)  # hidden with the clipping
    spread = (one.gradient - other.gradient).std()
    assert spread == pytest.approx(4.0 / 8 * 2**0.5, rel=0.15)


def test_the_coordinator_can_ask_for_stricter_clipping_but_not_for_less(tmp_path):
    service = SiloService(kit(tmp_path, "[privacy]\ngradient_clip = 0.1\n"))
    for clip, most in ((None, 0.1), (5.0, 0.1), (0.01, 0.01)):
        reply = asked(service, GRADIENT.changed(clip=clip)).reply
        assert reply.gradient.norm() <= most + 1e-6


def test_personal_layers_stay_and_survive_a_restart(tmp_path):
    mask = SCHEMA.mask(["output."])
    service = SiloService(kit(tmp_path, "[privacy]\nupdate_clip = 9.0\n"))
    first = asked(service, TRAIN.changed(personal=OWN)).reply.parameters
    assert (first[mask] == 0).all()
    assert (first[~mask] != 0).any()
    score = SCORE.changed(personal=OWN)
    losses = asked(service, score).reply.losses
    assert losses != asked(service, SCORE).reply.losses
    service = SiloService(tmp_path)
    assert asked(service, score).reply.losses == losses


def test_a_silo_goes_back_to_a_checkpoint(tmp_path):
    train = TRAIN.changed(personal=OWN)
    service = SiloService(kit(tmp_path))

    def loss():
        return asked(service, SCORE.changed(personal=OWN)).reply.losses

    def checkpoint(operation, number, *rollbacks):
        return asked(service, operation, lineages=lineage(number, *rollbacks)).refused

    asked(service, train)
    before = loss()
    assert checkpoint("remember", 1) is None
    asked(service, train)
    assert loss() != before
    service = SiloService(tmp_path)
    assert checkpoint("recall", 1, (1, 2)) is None
    assert loss() == before
    assert "nothing was kept" in checkpoint("recall", 4, (4, 5))
    assert "lineages" in asked(service, "remember", lineages=lineage(1, owner="../../x")).refused


def test_a_request_moves_no_layers_but_those_it_uses(tmp_path):
    service = SiloService(kit(tmp_path))
    asked(service, TRAIN.changed(personal=OWN))
    before = asked(service, SCORE.changed(personal=OWN)).reply
    model = MODEL_SENT.changed(method="fedprox")
    for other in (TRAIN.changed(personal=OWN.changed(slot="fedprox")), model):
        refused = asked(service, other, lineages=lineage(0, (0, 9))).refused
        assert refused == "lineages of methods whose slots are not used"
    assert asked(service, SCORE.changed(personal=OWN)).reply == before


def test_what_is_kept_for_methods_is_bounded(tmp_path, monkeypatch):
    service = SiloService(kit(tmp_path))

    def refused(slot):
        return asked(service, TRAIN.changed(personal=OWN.changed(slot=slot))).refused

    for number in range(kept.MOST_SLOTS):
        assert refused(f"fedavg/{number}") is None
    assert "more than 8 slots" in refused("fedavg/x")
    assert refused("fedavg/0") is None
    monkeypatch.setattr(kept, "MOST_OWNERS", 3)
    for owner in ("a", "b", "c"):
        assert refused(owner) is None
        asked(service, "remember", lineages=lineage(1, owner=owner))
    owners = {path.name.split("-")[1] for path in (tmp_path / "state").glob("memory-*")}
    assert owners == {"a", "b", "c"}
    assert "fedavg: what was kept for it is given up" in (tmp_path / "silo.log").read_text()
    assert refused("fedavg/x") is None


def test_a_model_that_is_delivered_is_completed_with_the_silos_own_layers(tmp_path, monkeypatch):
    mask = SCHEMA.mask(["output."])
    service = SiloService(kit(tmp_path))
    train = TRAIN.changed(personal=OWN)
    asked(service, train)
    asked(service, Keep(slot="fedavg/best", source="fedavg"))
    asked(service, train)  # goes on; the best ones stay
    (file,) = (tmp_path / "state").glob("memory-fedavg-now*")
    best = load_file(file)["1/South\nfedavg/best"]
    model = Deliver(parameters=torch.where(mask, 0.0, START), method="fedavg", round=3)
    own = OWN.changed(slot="fedavg/best")
    assert asked(service, model.changed(personal=own)).refused is None
    network, about = read_model(tmp_path / "models" / "r.safetensors")
    whole = SCHEMA.flatten(dict(network.named_parameters()))
    assert torch.equal(whole[mask], best)
    assert torch.equal(whole[~mask], START[~mask])
    said = {"participant": "South", "method": "fedavg", "seed": 1, "round": 3, "task": "binary"}
    assert said.items() <= about.model_dump().items()
    assert about.inputs[0].columns == ("age", "income", "debt")
    missing = own.changed(slot="fedprox/best")
    assert "are not here" in asked(service, model.changed(personal=missing)).refused
    assert "not one model" in asked(service, model.changed(parameters=START[None])).refused
    broken = START.clone()
    broken[0] = torch.nan
    assert "no numbers" in asked(service, model.changed(parameters=broken)).refused
    # Whatever a run is called, its model goes to this folder; those of old runs go.
    monkeypatch.setattr(model_files, "MOST_MODELS", 3)
    for run in ("../../x", "a/b", "/x"):
        assert asked(service, model, run=run).refused is None
    assert len(list((tmp_path / "models").iterdir())) == 3
    assert not (tmp_path / "models" / "r.safetensors").exists()
    assert not list(tmp_path.parent.glob("*.safetensors"))


def test_a_silo_exports_the_model_of_any_run_it_has(tmp_path):
    with pytest.raises(FileError, match="not the kit of a silo"):
        export_silo_model(tmp_path)
    service = SiloService(kit(tmp_path))
    with pytest.raises(FileError, match="no run has delivered a model yet"):
        export_silo_model(tmp_path)
    for run, number in (("first", 1.0), ("second", 2.0)):
        model = MODEL_SENT.changed(parameters=number * START)
        assert asked(service, model, run=run).refused is None
    with pytest.raises(FileError, match="no model of the run 'third'; there are first, second"):
        export_silo_model(tmp_path, "third")
    for run, number in ((None, 2.0), ("first", 1.0)):
        written = export_silo_model(tmp_path, run, tmp_path / f"out-{run}")
        network = read_model(written[0])[0]
        assert torch.equal(SCHEMA.flatten(dict(network.named_parameters())), number * START)
    assert export_silo_model(tmp_path)[0] == tmp_path / "export" / "second" / "second.safetensors"


def test_other_parameters_and_half_requests_are_refused(tmp_path):
    service = SiloService(kit(tmp_path))
    assert "other parameters" in asked(service, TRAIN, schema_is="0" * 32).refused
    half = {"asked": [{"request": {"operation": "train", "parameters": "0"}}]}
    text = json.dumps({"operation": "train", **half})
    message = save({"0": START}, {"protocol": PROTOCOL, "message": text})
    refused = unpack(Answers, service.answer("server", message)).refused
    assert "settings: Field required" in refused
    assert "none is 1" in asked(service, TRAIN, repetitions=1).refused
    assert "unknown model" in asked(service, TRAIN, model="../x").refused
    assert isinstance(asked(service, TRAIN.changed(parameters=START[:-1])).reply, Failed)
    assert service.answer("server", b"junk")
    assert "refused a message from server" in (tmp_path / "silo.log").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("participant = 'x'\n", "data: Field required"),
        ("participant = 'x'\n[data]\n", "either file"),
        ("participant = 'x'\n[data]\nfile = 'a.csv'\n", "needs the schema.toml"),
        ("participant = 'x'\n[data]\nsource = 'y'\nmore = 1\n", "data.more"),
        (
            "participant = 'x'\n[data]\nsource = 'y'\n[privacy]\nupdate_noise = 1\n",
            "measured by update_clip",
        ),
        (
            "participant = 'x'\n[data]\nsource = 'y'\n[limits]\noperations = ['shell']\n",
            "limits.operations.0",
        ),
        ("participant = ", "not a TOML file"),
    ],
)
def test_a_wrong_silo_toml_says_what_is_wrong(tmp_path, text, message):
    (tmp_path / "silo.toml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_silo_settings(tmp_path / "silo.toml")

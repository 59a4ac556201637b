"""A silo's service: its answers, its memory, and the models it is sent."""

import json
import os
import re
import shutil
import stat
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save

from fedegoists.consortium.export import read_model
from fedegoists.deploy.delivered_models import export_silo_model
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation import (
    Candidate,
    Deliver,
    Delivered,
    Describe,
    Keep,
    LocalTerms,
    Participant,
    Personal,
    SimulatedFederation,
)
from fedegoists.federation.flare import silo_checkpoints as kept
from fedegoists.federation.flare.messages import Answers, Call, RepeatedRequest
from fedegoists.federation.flare.silo_secret import SECRET_FILE
from fedegoists.federation.flare.silo_service import SiloService, stream_secret
from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
from fedegoists.federation.flare.wire import PROTOCOL, pack, schema_digest, unpack
from fedegoists.federation.replies import Failed
from fedegoists.federation.requests import DELIVERED, EVERYTHING
from fedegoists.learning import model_files
from fedegoists.learning.models import build_model
from tests.federation.test_simulated_federation import assert_alike
from tests.flare.silo_kit import (
    GRADIENT,
    HALF,
    MODEL_SENT,
    OWN,
    SCHEMA,
    SCORE,
    START,
    TRAIN,
    TRAINED,
    asked,
    kit,
    lineage,
)


def test_a_silo_answers_as_the_simulation_does(tmp_path):
    service = SiloService(kit(tmp_path))
    data = load_silo(read_silo_settings(tmp_path / "silo.toml"))
    simulated = SimulatedFederation(
        {1: data},
        build_model("mlp", 0, features=3, outputs=1),
        secrets={"South": stream_secret(data, tmp_path / "state")},
    )
    for request in (
        TRAIN,
        TRAIN.changed(terms=LocalTerms(anchor=START, pull=0.1)),
        GRADIENT,
        SCORE,
        HALF.changed(split="train", parameters=torch.stack([START, START / 2])),
        Describe(direction=True),
    ):
        (expected,) = simulated.call({Participant("South", 1): request}).values()
        assert_alike(asked(service, request).reply, expected)


def test_batches_follow_from_the_silos_own_secret(tmp_path):
    """The same requests at two silos with the same data; only their secrets differ."""
    one, other = (SiloService(kit(tmp_path / name)) for name in "ab")
    for request in (TRAIN, GRADIENT, HALF.changed(split="train")):
        replies = [asked(service, request).reply for service in (one, other)]
        again = asked(SiloService(tmp_path / "a"), request).reply
        assert_alike(replies[0], again)  # a run that is resumed goes on as before
        with pytest.raises(AssertionError):
            assert_alike(*replies)
    # Two halves of a division are still disjoint: their mean is that of all.
    half = HALF.changed(split="train")
    halves = [asked(one, half.changed(step=step)).reply.losses[0] for step in (0, 1)]
    whole = asked(one, SCORE.changed(split="train")).reply
    assert whole.samples == TRAINED
    assert sum(halves) / 2 == pytest.approx(whole.losses[0], rel=1e-5)


def test_new_data_has_new_batches(tmp_path):
    """With the same ones, the difference of two answers would be what changed."""
    data = load_silo(read_silo_settings(kit(tmp_path) / "silo.toml"))
    before = stream_secret(data, tmp_path)
    assert before == stream_secret(data, tmp_path)
    changed = replace(data, samples=replace(data.samples, targets=1 - data.samples.targets))
    assert before != stream_secret(changed, tmp_path)


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
    # The locks are empty, and their folder is closed.
    assert {path.name for path in found if path.stat().st_mode & 0o077} <= {
        "rounds.lock",
        "privacy.lock",
    }
    for folder in ("state", "models"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


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
    assert "ERROR failed" in lines[4]
    assert broken.reply.detail == "the silo failed (RuntimeError)"  # and nothing of the data


def test_no_slot_breaks_what_a_silo_has_kept(tmp_path):
    service = SiloService(kit(tmp_path))
    for slot in ("fedavg/\nx", "../x", "fedavg/a/b", "fedavg\n", "方" * 90, "a" * 61):
        with pytest.raises(SettingsError):
            Keep(slot=slot)
        refused = asked(service, Keep(slot="x").model_copy(update={"slot": slot})).refused
        assert "slot" in refused


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
    model = MODEL_SENT.changed(candidates=(Candidate(method="fedprox", round=1),))
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
    own = OWN.changed(slot="fedavg/best")

    def model(parameters, personal=None):
        candidate = Candidate(method="fedavg", round=3, personal=personal)
        return Deliver(parameters=parameters, candidates=(candidate,))

    shared = torch.where(mask, 0.0, START)[None]
    assert asked(service, model(shared, own)).refused is None
    network, about = read_model(tmp_path / "models" / "r.safetensors")
    whole = SCHEMA.flatten(dict(network.named_parameters()))
    assert torch.equal(whole[mask], best)
    assert torch.equal(whole[~mask], START[~mask])
    said = {"participant": "South", "method": "fedavg", "seed": 1, "round": 3, "task": "binary"}
    assert said.items() <= about.model_dump().items()
    assert about.inputs[0].columns == ("age", "income", "debt")
    missing = own.changed(slot="fedprox/best")
    assert "are not here" in asked(service, model(shared, missing)).refused
    assert "a row for each" in asked(service, model(START.expand(2, -1))).refused
    broken = START.clone()
    broken[0] = torch.nan
    assert "no numbers" in asked(service, model(broken[None])).refused
    # Whatever a run is called, its model goes to this folder; those of old runs go.
    monkeypatch.setattr(model_files, "MOST_MODELS", 3)
    for run in ("../../x", "a/b", "/x"):
        assert asked(service, model(shared), run=run).refused is None
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
        model = MODEL_SENT.changed(parameters=number * START[None])
        assert asked(service, model, run=run).refused is None
    with pytest.raises(FileError, match="no model of the run 'third'; there are first, second"):
        export_silo_model(tmp_path, "third")
    for run, number in ((None, 2.0), ("first", 1.0)):
        written = export_silo_model(tmp_path, run, tmp_path / f"out-{run}")
        network = read_model(written[0])[0]
        assert torch.equal(SCHEMA.flatten(dict(network.named_parameters())), number * START)
    assert export_silo_model(tmp_path)[0] == tmp_path / "export" / "second" / "second.safetensors"
    # Its quality is measured at home, where its test samples are.
    text = (tmp_path / "export" / "second" / "model-card.md").read_text(encoding="utf-8")
    assert re.search(r"\| AUC \(ROC\) \| \d\.\d{3} \(\d\.\d{3} to \d\.\d{3}\) \|", text)
    assert "Spent over all runs of this silo so far: ε = " in text


def test_a_silo_exports_no_model_that_it_did_not_write(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        service = SiloService(kit(folder))
        for run, number in (("first", 1.0), ("second", 2.0)):
            model = MODEL_SENT.changed(parameters=number * START[None])
            assert asked(service, model, run=run).refused is None
    file = here / "models" / "first.safetensors"
    good = file.read_bytes()
    damaged = bytearray(good)
    damaged[-5] ^= 1  # a weight
    for content in (
        bytes(damaged),
        good[:-4],
        (here / "models" / "second.safetensors").read_bytes(),
        good + b" ",
    ):
        file.write_bytes(content)
        with pytest.raises(FileError, match="do not use it"):
            export_silo_model(here, "first")
    file.write_bytes(good)
    assert export_silo_model(here, "first")
    shutil.copy(there / "models" / "first.safetensors", here / "models" / "second.safetensors")
    with pytest.raises(FileError, match="do not use it"):
        export_silo_model(here)


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


def choice_of(service, **changes):
    """What a silo tells of its choice between its own model and a ruined one."""
    sent = Deliver(
        parameters=torch.stack([START, 50 * START]),
        candidates=(Candidate(method="local", round=1), Candidate(method="fedavg", round=2)),
    )
    return asked(service, sent, **changes).reply


def test_a_silo_keeps_no_model_that_is_worse_than_its_own_and_tells_its_name_alone(tmp_path):
    service = SiloService(kit(tmp_path))
    assert choice_of(service) == Delivered(kept=True, method="local")
    network, card = read_model(tmp_path / "models" / "r.safetensors")
    assert torch.equal(SCHEMA.flatten(dict(network.named_parameters())), START)
    assert (card.method, card.delivered, card.round) == ("local", "own model", 1)
    assert "keeps the model of run r: own model" in (tmp_path / "silo.log").read_text()


@pytest.mark.parametrize(
    "more",
    [
        "[privacy]\nevaluation_noise = 2.0\nloss_bound = 3.0\n",
        '[limits]\noperations = ["train"]\n',
        "[limits]\nevaluations_per_day = 0\n",
    ],
)
def test_a_choice_is_not_told_where_an_evaluation_would_not_be(tmp_path, more):
    service = SiloService(kit(tmp_path, more))
    assert choice_of(service) == Delivered(kept=True)
    assert read_model(tmp_path / "models" / "r.safetensors")[1].method == "local"


def seen_of_a_choice(place, better):
    """All that a coordinator can learn of a choice from a silo that does not tell it."""
    kit(place, "[privacy]\nevaluation_noise = 2.0\nloss_bound = 3.0\n")
    (place / "state").mkdir(mode=0o700)
    (place / "state" / SECRET_FILE).write_bytes(bytes(32))
    service = SiloService(place)
    sent = [
        RepeatedRequest(
            repetition=k,
            request=MODEL_SENT.changed(parameters=(START if k == better else 50 * START)[None]),
        )
        for k in range(2)
    ]
    call = Call(
        operation="deliver",
        run="r",
        model="mlp",
        schema_is=schema_digest(SCHEMA),
        repetitions=2,
        asked=tuple(sent),
    )
    told = unpack(Answers, service.answer("server", pack(call))).answered
    assert read_model(place / "models" / "r.safetensors")[1].seed == better
    whole = Personal(prefixes=EVERYTHING, slot=DELIVERED)
    kept = SCORE.changed(parameters=9 * START, personal=whole)
    later = [(RepeatedRequest(repetition=k, request=kept),) for k in range(2)]
    return told, [str(asked(service, kept, asked=one)) for one in later]


def test_a_choice_that_is_not_told_shows_nowhere(tmp_path):
    """Neither by the repetition, nor by what is asked of the model that the silo keeps."""
    assert seen_of_a_choice(tmp_path / "a", 0) == seen_of_a_choice(tmp_path / "b", 1)


def test_choices_count_as_evaluations(tmp_path):
    service = SiloService(kit(tmp_path, "[limits]\nevaluations_per_day = 2\n"))
    told = [choice_of(service, run=f"r{k}").method for k in range(4)]
    assert told == ["local", "local", "", ""]

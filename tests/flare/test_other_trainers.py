"""Boosted trees and models on arrays over the wire: as in a simulation, with the same approvals."""

import pytest
import torch

from fedegoists.consortium.export import read_model
from fedegoists.errors import MissingDependencyError
from fedegoists.federation import (
    Candidate,
    Deliver,
    Delivered,
    Evaluate,
    Participant,
    Personal,
    Train,
    TrainSettings,
)
from fedegoists.federation.flare.approved_code import approve
from fedegoists.federation.flare.silo_secret import sealed_models
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import file_digest, model_parts
from fedegoists.learning.sealed_models import MODELS_FOLDER
from fedegoists.methods import METHODS, RunSettings, run
from fedegoists.methods.consent import ConsentError
from tests.docs.pages import HowTo
from tests.flare.masked_silos import NAMES, TABLE, MaskedWire, write_kits

pytest.importorskip("nvflare", reason="the extra flare is not installed")

THREE = NAMES[:3]
FOREST = "trees(members=3, trees=40)"
TREES = TrainSettings(steps=8, batch_size=1_000_000, learning_rate=0.2)


def kits_for(folder, *, consent):
    kits = write_kits(folder, THREE)
    for kit in kits.values():
        with (kit / "silo.toml").open("a") as file:
            file.write(f"[limits]\nsingle_updates = {str(consent).lower()}\n")
    return kits


def grown(federation, name, rounds=2):
    """Train trees by a method, round by round, in one coalition."""
    start = federation.schema.drawn(0).expand(3, -1).clone()
    method, groups = METHODS[name](TREES), [federation.participants]
    state = method.start(federation, groups, start, seed=0)
    for _ in range(rounds):
        state, report = method.round(federation, groups, state, seed=0)
        assert not report.failures
    return state


class TestTrees:
    """The model trees."""

    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("lightgbm")

    def over_wire(self, wire, **more):
        options = {**TABLE, "members": 3, "trees": 40}
        return wire.federation(model=FOREST, options=options, **more)

    def test_bagging_over_the_wire_is_bagging_in_a_simulation(self, tmp_path):
        wire = MaskedWire(kits_for(tmp_path, consent=True))
        found = grown(self.over_wire(wire, consenting=THREE), "bagging")
        forest = lambda: build_model("trees", 0, members=3, trees=40, **TABLE)  # noqa: E731
        expected = grown(wire.simulation(model=forest), "bagging")
        assert found.parameters[:, 0].max() <= 3
        assert torch.equal(found.parameters, expected.parameters)

    def test_without_consent_trees_stay_at_home_and_are_delivered_there(self, tmp_path):
        kits = kits_for(tmp_path, consent=False)
        wire = MaskedWire(kits)
        silos = self.over_wire(wire)
        start = silos.schema.drawn(0).expand(3, -1).clone()
        settings = RunSettings(rounds=2, seed=0)
        with pytest.raises(ConsentError, match="bagging shows the server single updates"):
            run(METHODS["bagging"](TREES), silos, [silos.participants], start, settings)
        alone = [(one,) for one in silos.participants]
        outcome = run(METHODS["local"](TREES), silos, alone, start, settings)
        assert torch.equal(outcome.best, start)  # nothing of them has left the silos
        assert set(outcome.at_home) == set(silos.participants)
        south = Participant("South")
        personal = Personal(prefixes=("",), slot="local/best")
        own = Candidate(method="local", round=2, personal=personal)
        request = Deliver(parameters=start[1:2], candidates=(own,))
        assert silos.deliver({south: request}) == {south: Delivered(kept=True, method="local")}
        (file,) = (kits["South"] / MODELS_FOLDER).glob("*.safetensors")
        plain = tmp_path / "model.safetensors"
        plain.write_bytes(sealed_models(kits["South"]).read(file.name)[0])
        model, card = read_model(plain)
        assert card.model == FOREST
        assert model.leaf[0].any()
        assert model(torch.zeros(2, 3)).shape == (2, 1)

    def test_a_silo_without_lightgbm_says_how_to_get_it(self, tmp_path, monkeypatch):
        wire = MaskedWire(kits_for(tmp_path, consent=True))

        def missing():
            raise MissingDependencyError("boosted trees need lightgbm: pip install it")

        monkeypatch.setattr("fedegoists.federation.tree_trainer.require_lightgbm", missing)
        silos = self.over_wire(wire)
        request = Evaluate(parameters=torch.zeros(silos.schema.size), split="validation")
        (failure,) = silos.call({silos.participants[0]: request}).values()
        assert failure.reason == "refused"
        assert "boosted trees need lightgbm: pip install" in failure.detail


def test_scikit_learn_by_file_trains_over_masked_sums_where_it_was_approved(tmp_path):
    pytest.importorskip("sklearn")
    kits = kits_for(tmp_path, consent=False)
    code = HowTo("how-to-own-model").block_with("SGDClassifier")
    for folder in (tmp_path, *kits.values()):
        (folder / "model.py").write_text(code, encoding="utf-8")
    digest = file_digest(tmp_path / "model.py")
    data = DataDescription("loopback", "binary", 2, {}, ((3,),), ("f4",), "")
    name = f"{tmp_path / 'model.py'}:build"
    parts = model_parts(data, name)
    options = {"task": "binary", "classes": 2, "shapes": "[[3]]", "code": digest}
    wire = MaskedWire(kits)
    silos = wire.federation(model=name, options=options, parts=parts)
    start = silos.schema.drawn(0).expand(3, -1).clone()
    method, groups = METHODS["fedavg"](TrainSettings(steps=5)), [silos.participants]
    request = Evaluate(parameters=start[0], split="validation")
    (failure,) = silos.call({silos.participants[0]: request}).values()
    assert "model.py has not been approved at this silo" in failure.detail
    for kit in kits.values():
        approve(kit, "model.py", digest)
    state, report = method.round(silos, groups, method.start(silos, groups, start, 0), seed=0)
    assert not report.failures
    simulated = wire.simulation(model=lambda: model_parts(data, name).module)
    rows = torch.stack(
        [
            reply.parameters
            for reply in simulated.call(
                {
                    one: Train(parameters=start[0], settings=method.settings, seed="0/0")
                    for one in silos.participants
                }
            ).values()
        ]
    )
    counts = torch.tensor([float(silos.samples(one)) for one in silos.participants])
    expected = (counts[:, None] * rows).sum(0) / counts.sum()
    torch.testing.assert_close(state.parameters, expected.expand(3, -1), atol=1e-4, rtol=1e-4)
    assert "train" not in wire.operations()  # masked only

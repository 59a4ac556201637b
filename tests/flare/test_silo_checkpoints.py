"""What silos keep for a run is that run's alone, whatever ran before and whoever was away."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedegoists.federation import (
    Evaluate,
    Failure,
    Keep,
    Participant,
    Personal,
    Train,
    TrainSettings,
)
from fedegoists.federation.flare.flare_federation import FlareFederation
from fedegoists.federation.flare.relay_connection import Lost
from fedegoists.federation.flare.silo_service import SiloService
from fedegoists.federation.seam import MemoryKey
from tests.flare.silo_kit import START, TRAINED, kit

SOUTH = Participant("South")
OWN = Personal(prefixes=("output.",), slot="fedavg")
TRAIN = Train(
    parameters=START,
    settings=TrainSettings(steps=5, batch_size=16, learning_rate=0.1),
    personal=OWN,
)
SCORE = Evaluate(parameters=START, split="test", personal=OWN)
TUNED = SCORE.changed(personal=OWN.changed(slot="fedavg+ft"))
LINEAGE = MemoryKey(None, "checkpoint")


class Wire:
    """Brings messages to a silo in this process, as FLARE does to others."""

    run = "r"

    def __init__(self, folder):
        self.folder, self.told, self.away = folder, [], False
        self.tell = self.told.append
        self.restart()

    def restart(self):
        """Every job has a process of its own."""
        self.silo = SiloService(self.folder)

    def ask(self, messages, timeout=None):
        if self.away:
            return dict.fromkeys(messages, Lost("error", "the silo is away"))
        return {site: self.silo.answer("server", m) for site, m in messages.items()}


class Run:
    """A method's training over one silo, of which only what concerns its own layers happens."""

    def __init__(self, wire, memory=None):
        options = {"features": 3, "outputs": 1}
        self.federation = FlareFederation(
            wire,
            {"South": "south"},
            model="mlp",
            options=options,
            task="binary",
            samples={"South": TRAINED},
        )
        if memory is None:
            self.federation.call({SOUTH: Keep(slot="fedavg")})
        else:
            self.federation.restore("fedavg", memory)

    def train(self):
        self.federation.call({SOUTH: TRAIN})

    def checkpoint(self):
        return self.federation.memory("fedavg")

    def loss(self):
        reply = self.federation.call({SOUTH: SCORE})[SOUTH]
        return reply if isinstance(reply, Failure) else reply.losses


@pytest.fixture
def wire(tmp_path):
    return Wire(kit(tmp_path))


def log(wire):
    return (wire.folder / "silo.log").read_text()


def gone(wire, *, back_by):
    """Let a silo be away while something happens; it comes back as a new process."""
    wire.away = True
    result = back_by()
    wire.away = False
    wire.restart()
    return result


def test_a_run_goes_back_to_its_own_checkpoint_after_a_longer_one(wire):
    earlier = Run(wire)
    for _ in range(5):
        earlier.train()
        earlier.checkpoint()
    one = Run(wire)
    one.train()
    checkpoint, then = one.checkpoint(), one.loss()
    one.train()
    assert one.loss() != then
    assert Run(wire, checkpoint).loss() == then
    assert wire.told == []


def test_a_silo_that_has_not_kept_a_checkpoint_is_named_and_begins_anew(wire):
    new = Run(wire).loss()
    one = Run(wire)
    one.train()
    checkpoint = one.checkpoint()
    for file in (wire.folder / "state").glob("memory-fedavg-[0-9]*"):
        file.unlink()
    again = Run(wire, checkpoint)
    assert "South: refused (nothing was kept here at that checkpoint" in wire.told[0]
    assert again.loss() == new
    assert "fedavg: nothing was kept at that checkpoint" in (wire.folder / "silo.log").read_text()


def test_a_silo_that_was_away_when_the_run_went_back_goes_back_when_it_returns(wire):
    one = Run(wire)
    one.train()
    checkpoint, then = one.checkpoint(), one.loss()
    one.train()
    later = one.loss()
    again = gone(wire, back_by=lambda: Run(wire, checkpoint))
    assert "asked to recall" in wire.told[-1]
    assert again.loss() == then
    again.train()
    assert again.loss() == later  # the same step once more, from the same layers


def test_a_silo_that_missed_a_checkpoint_can_go_back_to_it(wire):
    one = Run(wire)
    one.train()
    then = one.loss()
    checkpoint = gone(wire, back_by=one.checkpoint)
    # Back, it goes on; the run goes back to the checkpoint that the silo did not see.
    one.train()
    assert one.loss() != then
    assert Run(wire, checkpoint).loss() == then
    # Or it comes back only after the run has gone back.
    one = Run(wire)
    one.train()
    checkpoint = gone(wire, back_by=one.checkpoint)
    assert gone(wire, back_by=lambda: Run(wire, checkpoint)).loss() == then


def test_a_silo_that_missed_two_returns_and_a_checkpoint_ends_where_the_run_is(wire):
    one = Run(wire)
    one.train()
    first, then = one.checkpoint(), one.loss()
    one.train()
    one.checkpoint()
    one.train()

    def without_it():
        second = Run(wire, first).checkpoint()
        return Run(wire, second)

    assert gone(wire, back_by=without_it).loss() == then


def test_a_run_can_go_back_to_an_early_checkpoint_again_and_again(wire):
    one = Run(wire)
    one.train()
    then = one.loss()
    checkpoint = gone(wire, back_by=one.checkpoint)
    for _ in range(3):
        one.train()
        one.checkpoint()  # higher numbers, all given up
    missed = int(checkpoint[LINEAGE][0])
    assert not (wire.folder / "state" / f"memory-fedavg-{missed}.safetensors").exists()
    new = Run(wire, checkpoint)
    assert new.loss() != then  # it is gone here, and its layers begin anew
    begun = new.loss()
    new.train()
    assert Run(wire, checkpoint).loss() == begun


@pytest.mark.parametrize("checkpoints", [1, 4])
def test_the_checkpoint_that_a_run_went_back_to_stays(wire, checkpoints):
    one = Run(wire)
    one.train()
    checkpoint, then = one.checkpoint(), one.loss()
    for _ in range(4):
        again = Run(wire, checkpoint)
        assert again.loss() == then
        for _ in range(checkpoints):
            again.train()
            again.checkpoint()
    assert wire.told == []
    assert len(list((wire.folder / "state").glob("memory-fedavg-[0-9]*"))) <= 4


def test_a_run_that_another_came_between_goes_back_to_its_own_checkpoint(wire):
    one = Run(wire)
    one.train()
    checkpoint, then = one.checkpoint(), one.loss()
    other = Run(wire)
    other.train()
    other.train()
    assert other.loss() != then
    assert one.loss() == then
    assert "not as this run left it; goes back to its last" in log(wire)
    one.train()
    assert Run(wire, checkpoint).loss() == then


def test_a_silo_never_takes_other_layers_for_those_of_a_checkpoint(wire):
    new = Run(wire).loss()
    one = Run(wire)
    one.train()
    checkpoint = one.checkpoint()
    Run(wire).train()
    for file in (wire.folder / "state").glob("memory-fedavg-[0-9]*"):
        file.unlink()
    assert one.loss() == new
    assert "not as this run left it; and nothing was kept at its last" in log(wire)
    one.train()
    one.train()
    number = int(checkpoint[LINEAGE][0])
    assert not (wire.folder / "state" / f"memory-fedavg-{number}.safetensors").exists()
    assert Run(wire, checkpoint).loss() == new
    assert "South: refused (nothing was kept here at that checkpoint" in wire.told[-1]


@pytest.mark.parametrize("content", [b"", b"junk", None])
def test_a_damaged_file_costs_only_what_was_in_it(wire, content):
    one = Run(wire)
    one.train()
    checkpoint, then = one.checkpoint(), one.loss()
    elsewhere = OWN.changed(slot="fedprox")
    one.federation.call({SOUTH: TRAIN.changed(personal=elsewhere)})
    other = one.federation.call({SOUTH: SCORE.changed(personal=elsewhere)})
    file = wire.folder / "state" / "memory-fedavg-now.safetensors"
    file.write_bytes(file.read_bytes()[:-9] if content is None else content)
    wire.restart()
    assert one.loss() == then  # from its checkpoint
    assert one.federation.call({SOUTH: SCORE.changed(personal=elsewhere)}) == other
    assert "memory-fedavg-now.safetensors is damaged and moved aside" in log(wire)
    assert file.with_suffix(".damaged").exists()
    (kept,) = (wire.folder / "state").glob("memory-fedavg-[0-9]*.safetensors")
    kept.write_bytes(b"junk")
    assert Run(wire, checkpoint).loss() != then
    assert "South: refused (nothing was kept here at that checkpoint" in wire.told[-1]


def state(wire, when="now"):
    (file,) = (wire.folder / "state").glob(f"memory-fedavg-{when}.safetensors")
    return file


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(part=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_changed_byte_anywhere_is_never_used(wire, part, change):
    one = Run(wire)
    one.train()
    one.checkpoint()
    then = one.loss()
    file = state(wire)
    content = bytearray(file.read_bytes())
    content[int(part * len(content))] ^= change
    file.write_bytes(content)
    wire.restart()
    assert one.loss() == then  # from the copy at the checkpoint
    assert f"{file.name} is damaged and moved aside" in log(wire)


def test_layers_of_another_silo_are_never_used(wire, tmp_path):
    elsewhere = Wire(kit(tmp_path / "other"))
    other = Run(elsewhere)
    other.train()
    other.checkpoint()
    one = Run(wire)
    begun = one.loss()
    one.checkpoint()
    state(wire).write_bytes(state(elsewhere).read_bytes())
    wire.restart()
    assert one.loss() == begun != other.loss()
    assert "memory-fedavg-now.safetensors is damaged and moved aside" in log(wire)


def test_layers_of_another_checkpoint_are_never_used(wire):
    one = Run(wire)
    one.train()
    first, then = one.checkpoint(), one.loss()
    early = state(wire, "[0-9]*")
    one.train()
    second = one.checkpoint()
    (late,) = set((wire.folder / "state").glob("memory-fedavg-[0-9]*")) - {early}
    late.write_bytes(early.read_bytes())
    Run(wire, second)
    assert "South: refused (nothing was kept here at that checkpoint" in wire.told[-1]
    assert f"{late.name} is damaged and moved aside" in log(wire)
    assert Run(wire, first).loss() == then


def test_layers_that_were_put_back_are_never_used(wire):
    one = Run(wire)
    one.train()
    old = state(wire).read_bytes()
    one.train()
    one.train()
    one.checkpoint()
    then = one.loss()
    state(wire).write_bytes(old)
    wire.restart()
    assert one.loss() == then
    assert "memory-fedavg-now.safetensors is damaged and moved aside" in log(wire)


def test_a_silo_that_was_killed_before_it_wrote_its_layers_says_so(wire):
    one = Run(wire)
    one.train()
    old, then = state(wire).read_bytes(), one.loss()
    one.train()
    state(wire).write_bytes(old)
    wire.restart()
    assert one.loss() == then
    assert "is as it was before it was written last" in log(wire)


def test_a_silo_away_at_the_beginning_does_not_bring_layers_of_an_earlier_run(wire):
    new = Run(wire).loss()
    earlier = Run(wire)
    earlier.train()
    assert earlier.loss() != new
    assert gone(wire, back_by=lambda: Run(wire)).loss() == new


def test_a_tuned_method_begins_with_the_layers_of_the_checkpoint(wire):
    one = Run(wire)
    one.train()
    checkpoint, then = one.checkpoint(), one.loss()
    one.train()
    again = gone(wire, back_by=lambda: Run(wire, checkpoint))
    again.federation.call({SOUTH: Keep(slot="fedavg+ft", source="fedavg")})
    assert again.federation.call({SOUTH: TUNED})[SOUTH].losses == then


def test_layers_of_an_earlier_run_can_be_begun_with(wire):
    one = Run(wire)
    one.train()
    other = Run(wire, memory={}).federation
    other.call({SOUTH: Keep(slot="fedavg+ft", source="fedavg")})
    assert other.call({SOUTH: TUNED})[SOUTH].losses == one.loss()


def test_a_checkpoint_survives_as_numbers(wire):
    one = Run(wire)
    one.train()
    numbers = one.checkpoint()[LINEAGE]
    assert numbers.dtype == torch.int64
    again = Run(wire, {LINEAGE: numbers})
    assert len(again.checkpoint()[LINEAGE]) == len(numbers) + 2


def test_only_silos_that_keep_something_are_told_of_checkpoints(tmp_path):
    wire = Wire(kit(tmp_path))
    asked = []

    class Recorded:
        run, tell = wire.run, wire.tell

        def ask(self, messages, timeout=None):
            asked.extend(messages)
            return wire.ask(messages, timeout)

    options = {"features": 3, "outputs": 1}
    sites, samples = {"North": "north", "South": "south"}, {"North": 1, "South": 42}

    def federation():
        return FlareFederation(
            Recorded(), sites, model="mlp", options=options, task="binary", samples=samples
        )

    first = federation()
    first.call({SOUTH: Keep(slot="fedavg")})
    kept = first.memory("fedavg")
    federation().restore("fedavg", kept)
    assert set(asked) == {"south"}
    federation().restore("fedavg", {LINEAGE: kept[LINEAGE]})  # of an earlier version
    assert set(asked) == {"north", "south"}

"""Messages: what goes in comes out, and nothing else is accepted."""

import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    AddPrior,
    Describe,
    Evaluate,
    Gradient,
    Keep,
    LocalTerms,
    Personal,
    Train,
    TrainSettings,
)
from fedegoists.federation.flare import wire
from fedegoists.federation.flare.flare_federation import ask_about
from fedegoists.federation.flare.messages import (
    About,
    Answers,
    Call,
    RepeatedReply,
    RepeatedRequest,
)
from fedegoists.federation.flare.silo_service import SiloService
from fedegoists.federation.flare.wire import (
    PROTOCOL,
    OldVersionError,
    WireError,
    old_refusal,
    pack,
    unpack,
)
from fedegoists.federation.replies import (
    Described,
    Evaluated,
    Failed,
    Gradients,
    Kept,
    PriorAdded,
    Trained,
)
from fedegoists.federation.validated import RingVector, Validated, Vector
from tests.flare.silo_kit import kit


class Hello(Validated):
    name: str
    parameters: Vector | None = None


REQUESTS = [
    Train(
        parameters=torch.arange(5.0),
        settings=TrainSettings(steps=3, total_steps=9, augment=True),
        seed="0/3",
        first_step=60,
        share=0.25,
        part=3,
        personal=Personal(prefixes=("output.",), slot="fedavg"),
        terms=LocalTerms(
            anchor=torch.arange(5.0), pull=0.5, correction=torch.ones(5), inner_steps=2
        ),
    ),
    Gradient(
        parameters=torch.randn(3, 5),
        split="validation",
        share=0.5,
        step=7,
        seed=12345678901234567,
        clip=1.0,
    ),
    Evaluate(parameters=torch.zeros(5), split="test"),
    Describe(direction=True),
    AddPrior(
        parameters=torch.arange(5.0), personal=Personal(prefixes=("",), slot="egomix"), noise=2.0
    ),
    Keep(slot="fedavg/best", source="fedavg"),
    Keep(slot="fedavg", source=None),
]


def assert_same(one, other):
    """Two values are the same in every field."""
    assert type(one) is type(other)
    for name, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, getattr(other, name))
        elif isinstance(value, Validated):
            assert_same(value, getattr(other, name))
        else:
            assert repr(value) == repr(getattr(other, name))  # no number is like itself


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_arrives_as_it_was_sent(request_):
    asked = tuple(RepeatedRequest(repetition=number, request=request_) for number in (None, 1))
    call = unpack(Call, pack(Call(operation=request_.operation, repetitions=2, asked=asked)))
    assert call.operation == request_.operation
    assert [one.repetition for one in call.asked] == [None, 1]
    for one in call.asked:
        assert_same(one.request, request_)


def test_a_vector_that_stands_twice_travels_once():
    vector = torch.randn(10_000)
    plain = Train(parameters=vector, settings=TrainSettings())
    held = plain.changed(terms=LocalTerms(anchor=vector.clone(), pull=0.1))
    one, two = pack(plain), pack(held)
    assert len(two) - len(one) < 500
    assert len(one) < 1.05 * 4 * len(vector)


def test_replies_arrive_as_they_were_sent():
    replies = [
        Trained(parameters=torch.randn(4), loss=0.5, samples=3, sample_passes=12),
        Gradients(losses=(0.1, 0.2), gradient=torch.randn(2, 4), samples=3),
        Evaluated(losses=(1.0,), scores=(float("nan"),), samples=9),
        Evaluated(losses=(1.0, 2.0), scores=(float("nan"), 0.5), samples=4),
        Described(samples={"train": 3, "validation": 1, "test": 2}, labels=(1, 2)),
        PriorAdded(parameters=torch.randn(4)),
        Kept(),
        Failed(reason="not finite", detail="gradient"),
    ]
    sent = tuple(RepeatedReply(repetition=k, reply=reply) for k, reply in enumerate(replies))
    arrived = unpack(Answers, pack(Answers(answered=sent)))
    assert arrived.about is None
    assert arrived.refused is None
    for one, reply in zip(arrived.answered, replies, strict=True):
        assert_same(one.reply, reply)


@given(st.binary(max_size=300))
def test_noise_is_no_message(content):
    with pytest.raises(WireError):
        unpack(Hello, content)


@given(st.data())
def test_a_damaged_message_is_refused_or_differs_only_in_its_numbers(data):
    message = bytearray(pack(Hello(name="North", parameters=torch.arange(6.0))))
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= data.draw(st.integers(1, 255))
    try:
        hello = unpack(Hello, bytes(message))
    except WireError:
        return
    assert isinstance(hello.name, str)
    assert hello.parameters.dtype == torch.float32
    assert hello.parameters.numel() == 6


def forged(text, tensors=None, protocol=PROTOCOL, **more):
    """A message as anybody could make one."""
    return save(tensors or {}, {"protocol": protocol, "message": json.dumps(text), **more})


PAIR = {"0": torch.zeros(2)}


HOSTILE = [
    forged({"name": 3}),
    forged({"name": "x", "more": 1}),
    forged({"name": "x", "parameters": "0"}),
    forged({"name": "x", "parameters": [1.0, 2.0]}),
    forged({"name": "x"}, PAIR),
    forged({"name": "x", "parameters": "1"}, PAIR),
    forged({"name": "x", "parameters": "0"}, {**PAIR, "1": torch.zeros(2)}),
    forged({"name": "x", "parameters": "0"}, PAIR)[:-1],
    forged({"name": "x", "parameters": "0"}, PAIR) + b"0000",
    forged({"name": "x", "parameters": "0"}, {"0": torch.zeros(2, dtype=torch.float64)}),
    forged({"name": "x", "parameters": "0"}, {"0": torch.zeros(2, dtype=torch.int32)}),
    forged({"name": "x", "parameters": "0"}, {"0": torch.zeros(2, 2, 2)}),
    forged({"name": "x", "parameters": "0"}, {"0": torch.zeros(2, 2)}),
    forged({"name": "x", "parameters": "0"}, {"0": torch.zeros(())}),
    forged({"name": "x", "parameters": "0"}, {"0": torch.zeros(0)}),
    forged({"name": "x"}, more="of the same"),
    forged({"name": "x"}, protocol="5"),
    save({}, {"protocol": PROTOCOL}),
    save({}),
    struct.pack("<Q", 2**62) + b"{}",
    struct.pack("<Q", 2**20) + b"[" * 2**20,
    "text",
    None,
    {"a": 1},
]


@pytest.mark.parametrize("message", HOSTILE, ids=range(len(HOSTILE)))
def test_what_was_not_expected_is_refused(message):
    assert unpack(Hello, forged({"name": "x", "parameters": "0"}, PAIR)).name == "x"
    with pytest.raises(WireError):
        unpack(Hello, message)


def test_a_header_cannot_take_all_memory(monkeypatch):
    hello = Hello(name="x" * 10_000)
    assert unpack(Hello, pack(hello)) == hello
    monkeypatch.setattr(wire, "LARGEST_HEADER", 5_000)
    with pytest.raises(WireError, match="too long a header"):
        unpack(Hello, pack(hello))
    monkeypatch.setattr(wire, "LARGEST_BODY", 5_000)
    with pytest.raises(WireError, match="at most 5,000 travel"):
        pack(hello)


def test_a_message_has_few_tensors_with_few_rows(monkeypatch):
    gradient = Gradient(parameters=torch.zeros(5, 2))
    unpack(Gradient, pack(gradient))
    monkeypatch.setattr(wire, "MOST_ROWS", 4)
    with pytest.raises(WireError, match="more tensors, or rows"):
        unpack(Gradient, pack(gradient))
    monkeypatch.setattr(wire, "MOST_TENSORS", 0)
    with pytest.raises(WireError, match="more tensors, or rows"):
        unpack(Hello, pack(Hello(name="x", parameters=torch.zeros(2))))


def test_requests_that_do_not_belong_together_are_refused():
    keep, score = Keep(slot="x"), Evaluate(parameters=torch.zeros(2), split="test")
    with pytest.raises(SettingsError, match="another operation"):
        Call(operation="train", asked=(RepeatedRequest(request=keep),))
    with pytest.raises(SettingsError, match="occurs twice"):
        Call(
            operation="evaluate",
            asked=(RepeatedRequest(request=score), RepeatedRequest(request=score)),
        )


ABOUT = About(
    participant="North",
    version="1",
    task="binary",
    classes=2,
    shapes=[[3]],
    kinds=["f4"],
    sizes=[5, 2, 2],
    digest="ab",
)


def test_a_silo_describes_itself_without_any_sample():
    assert unpack(Answers, pack(Answers(about=ABOUT))).about == ABOUT


@pytest.mark.parametrize(
    "claim",
    [
        {"sizes": [2**52, 1, 1]},
        {"shapes": [[10**6, 10**6]]},
        {"shapes": [[3], [3]]},
        {"kinds": ["f9"]},
        {"classes": 10**9},
    ],
)
def test_no_silo_can_claim_what_the_coordinator_has_no_memory_for(claim):
    with pytest.raises(WireError):
        unpack(Answers, forged({"about": {**ABOUT.model_dump(), **claim}}))


# Versions before ------------------------------------------------------------------------------

RECORDED = {
    (protocol, name): (
        Path(__file__).parent / "recorded" / f"protocol-{protocol}-{name}.bin"
    ).read_bytes()
    for protocol in "23"
    for name in ("call", "answer")
}


@pytest.mark.parametrize("protocol", "23")
def test_a_silo_of_a_version_before_is_named_and_not_misread(protocol):
    class OldSilo:
        def ask(self, messages):
            return dict.fromkeys(messages, RECORDED[protocol, "answer"])

    with pytest.raises(SettingsError, match=r"North runs a version .* before message protocol 4"):
        ask_about(OldSilo(), {"North": "north"})


@pytest.mark.parametrize("protocol", "23")
def test_a_coordinator_of_a_version_before_is_told_in_its_own_words(protocol, tmp_path):
    service = SiloService(kit(tmp_path))
    call = RECORDED[protocol, "call"]
    with pytest.raises(OldVersionError):
        unpack(Call, call)
    answer = service.answer("server", call)
    # Read, and not compared byte for byte: safetensors writes its metadata in any order.
    read = {"2": read_as_protocol_2, "3": read_as_protocol_3}[protocol]
    reason = f"the coordinator {OldVersionError(protocol)}"
    assert read(answer) == read(old_refusal(protocol, reason)) == {"refused": reason}
    assert reason.endswith("install the same version everywhere")
    assert "install the same version everywhere" in (tmp_path / "silo.log").read_text()


def read_as_protocol_2(answer):
    """Four letters, the length of the header, the header."""
    (length,) = struct.unpack("<I", answer[4:8])
    assert (answer[:4], len(answer)) == (b"FEG2", 8 + length)
    content = json.loads(answer[8:])
    assert content["vectors"] == []
    return content["header"]


def read_as_protocol_3(answer):
    """A safetensors file without tensors, with its version and JSON in the metadata."""
    (length,) = struct.unpack("<Q", answer[:8])
    assert len(answer) == 8 + length
    metadata = json.loads(answer[8:])["__metadata__"]
    assert metadata["protocol"] == "3"
    return json.loads(metadata["message"])


class Masked(Validated):
    ring: RingVector
    parameters: Vector


def test_elements_of_the_ring_travel_bit_for_bit_beside_equal_numbers():
    ring = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31)], dtype=torch.int32)
    sent = Masked(ring=ring, parameters=ring.float())
    arrived = unpack(Masked, pack(sent))
    assert torch.equal(arrived.ring, ring)
    assert arrived.ring.dtype == torch.int32
    assert arrived.parameters.dtype == torch.float32


def test_numbers_are_not_taken_for_elements_of_the_ring_nor_the_other_way_round():
    ring, numbers = torch.zeros(2, dtype=torch.int32), torch.ones(2)
    for swapped in ({"0": ring, "1": ring + 1}, {"0": numbers, "1": 2 * numbers}):
        with pytest.raises(WireError):
            unpack(Masked, forged({"ring": "0", "parameters": "1"}, swapped))

"""Messages: what goes in comes out, and nothing else is taken."""

import json
import struct
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.federation import Failure, LocalTerms, TrainSettings
from fedegoists.federation.flare.messages import (
    About,
    Request,
    pack_replies,
    pack_request,
    unpack_replies,
    unpack_request,
)
from fedegoists.federation.flare.wire import Strict, WireError, pack, unpack


class Hello(Strict):
    name: str


class Claim(Strict):
    about: dict[str, Any]


PAYLOADS = [
    (
        "train",
        {
            "parameters": torch.arange(5.0),
            "settings": TrainSettings(steps=3, total_steps=9, augment=True),
            "seed": "0/3",
            "first_step": 60,
            "personal": ("output.",),
            "slot": "fedavg",
            "terms": LocalTerms(
                anchor=torch.arange(5.0), pull=0.5, correction=torch.ones(5), inner_steps=2
            ),
        },
    ),
    (
        "loss_and_gradient",
        {
            "parameters": torch.randn(3, 5),
            "split": "validation",
            "share": 0.5,
            "step": 7,
            "seed": 12345678901234567,
            "clip": 1.0,
            "noise": 0.0,
            "augment": False,
        },
    ),
    ("evaluate", {"parameters": torch.zeros(5), "split": "test"}),
    ("describe", {"direction": True}),
    ("keep", {"slot": "fedavg/best", "source": "fedavg"}),
    ("keep", {"slot": "fedavg", "source": None}),
]


@pytest.mark.parametrize(("operation", "payload"), PAYLOADS)
def test_a_payload_arrives_as_it_was_sent(operation, payload):
    message = pack_request(Request(operation=operation, trials=2), {"": payload, "1": payload})
    request, arrived = unpack_request(message)
    assert request.operation == operation
    assert set(arrived) == {"", "1"}
    for got in arrived.values():
        assert got.keys() == {key for key, value in payload.items() if value is not None}
        for key, value in got.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, payload[key])
            elif isinstance(value, LocalTerms):
                for part in fields(LocalTerms):
                    one, other = getattr(value, part.name), getattr(payload[key], part.name)
                    assert (
                        torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
                    )
            else:
                assert value == payload[key]


def test_a_vector_that_stands_twice_travels_once():
    vector = torch.randn(10_000)
    terms = LocalTerms(anchor=vector.clone(), pull=0.1)
    one = pack_request(Request(operation="train"), {"": {"parameters": vector}})
    two = pack_request(Request(operation="train"), {"": {"parameters": vector, "terms": terms}})
    assert len(two) - len(one) < 500
    assert len(one) < 1.05 * 4 * len(vector)


def test_replies_arrive_as_they_were_sent():
    replies = {
        "0": {"parameters": torch.randn(4), "loss": 0.5, "samples": 3, "sample_passes": 12},
        "1": {"loss": [0.1, 0.2], "gradient": torch.randn(2, 4), "samples": 3},
        "2": {"loss": 1.0, "score": float("nan"), "samples": 9},
        "5": {"loss": [1.0, 2.0], "score": [float("nan"), 0.5], "samples": 4},
        "3": {"samples": {"train": 3, "validation": 1, "test": 2}, "labels": [1, 2]},
        "4": Failure("", "not finite", "gradient"),
    }
    arrived, about, refused = unpack_replies(pack_replies(replies))
    assert about is None
    assert refused is None
    assert arrived["4"] == replies["4"]
    assert torch.equal(arrived["0"]["parameters"], replies["0"]["parameters"])
    assert torch.equal(arrived["1"]["gradient"], replies["1"]["gradient"])
    assert arrived["1"]["loss"] == [0.1, 0.2]
    assert arrived["2"]["score"] != arrived["2"]["score"]
    assert arrived["3"] == replies["3"]
    assert [score != score for score in arrived["5"]["score"]] == [True, False]


@given(st.binary(max_size=300))
def test_noise_is_no_message(content):
    with pytest.raises(WireError):
        unpack(Hello, content)


@given(st.data())
def test_a_damaged_message_is_refused_or_differs_only_in_its_numbers(data):
    message = bytearray(pack(Hello(name="North"), {"parameters": torch.arange(6.0)}))
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= data.draw(st.integers(1, 255))
    try:
        header, vectors = unpack(Hello, bytes(message))
    except WireError:
        return
    assert isinstance(header.name, str)
    assert all(v.dtype == torch.float32 and v.numel() == 6 for v in vectors.values())


def test_what_was_not_expected_is_refused():
    def message(header, vectors, body=b""):
        text = json.dumps({"header": header, "vectors": vectors}).encode()
        return b"FEG2" + struct.pack("<I", len(text)) + text + body

    vector = {"name": "parameters", "size": 2}
    assert unpack(Hello, message({"name": "x"}, [vector], bytes(8)))
    for header, vectors, body in (
        ({"name": 3}, [], b""),
        ({"name": "x", "more": 1}, [], b""),
        ({"name": "x"}, [vector], bytes(7)),
        ({"name": "x"}, [vector, vector], bytes(16)),
        ({"name": "x"}, [{**vector, "size": -1}], b""),
        ({"name": "x"}, [{**vector, "size": 2**62}], bytes(8)),
        ({"name": "x"}, [{**vector, "same_as": "parameters"}], b""),
        ({"name": "x"}, [{**vector, "dtype": "object"}], bytes(8)),
    ):
        with pytest.raises(WireError):
            unpack(Hello, message(header, vectors, body))
    for odd in ("text", None, {"a": 1}, b"FEG0\0\0\0\0"):
        with pytest.raises(WireError):
            unpack(Hello, odd)


def test_only_numbers_of_32_bits_travel():
    for odd in (torch.zeros(2, dtype=torch.float64), torch.zeros(2, 2, 2)):
        with pytest.raises(WireError):
            pack(Hello(name="x"), {"parameters": odd})


def test_vectors_that_no_trial_has_are_refused():
    request = Request(operation="evaluate")
    with pytest.raises(WireError, match="no trial has"):
        unpack_request(pack(request, {"7/parameters": torch.zeros(2)}))


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
    assert unpack_replies(pack_replies(about=ABOUT))[1] == ABOUT


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
    message = pack(Claim(about={**ABOUT.model_dump(), **claim}))
    with pytest.raises(WireError):
        unpack_replies(message)

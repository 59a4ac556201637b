"""What travels between the coordinator and a silo: one flat run of numbers and a checked header.

A message is ``FEG2``, the length of the header, the header as JSON, and all vectors one after the
other as 32-bit floats. Nothing in it is code, and nothing is taken that was not expected.
"""

import hashlib
import json
import struct
import sys
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from fedegoists.errors import FedEgoistsError
from fedegoists.learning.parameters import ParameterSchema

__all__ = ["Strict", "WireError", "pack", "schema_digest", "unpack"]

MAGIC = b"FEG2"
"""Its number is raised when messages change; a silo and a coordinator must have the same."""

LARGEST_HEADER = 4 * 1024 * 1024
LARGEST_BODY = 2 * 1024**3 - 64 * 1024 * 1024
"""FLARE's own limit for a message is 2 GiB."""

MOST_ROWS = 100_000


class WireError(FedEgoistsError, ValueError):
    """A message that is not one, or not the one that is expected."""


class Strict(BaseModel):
    """A part of a header: exactly these keys, with values of exactly these types."""

    # A score that is not defined, like an AUC with one class, is no number and must arrive so.
    # Values, such as seeds, hardly ever come again: only the words for keys are worth keeping.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        ser_json_inf_nan="constants",
        cache_strings="keys",
    )


class _Vector(Strict):
    name: Annotated[str, Field(max_length=200)]
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] | None = None
    size: Annotated[int, Field(ge=1)]
    same_as: Annotated[str, Field(max_length=200)] | None = None

    @property
    def count(self) -> int:
        return 0 if self.same_as is not None else (self.rows or 1) * self.size

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,) if self.rows is None else (self.rows, self.size)


class _Envelope(Strict):
    header: dict[str, Any]
    vectors: Annotated[list[_Vector], Field(max_length=2000)]


Header = TypeVar("Header", bound=BaseModel)


def schema_digest(schema: ParameterSchema) -> str:
    """Return a short hash of names and shapes; both ends must mean the same vector."""
    return hashlib.sha256(repr((schema.names, schema.shapes)).encode()).hexdigest()[:32]


def pack(header: BaseModel, vectors: Mapping[str, Tensor] | None = None) -> bytes:
    """Return a message. A vector that is there already, as an anchor often is, travels once.

    Examples
    --------
    >>> class Hello(Strict):
    ...     name: str
    >>> message = pack(Hello(name="North"), {"parameters": torch.tensor([1.0, 2.0])})
    >>> unpack(Hello, message)
    (Hello(name='North'), {'parameters': tensor([1., 2.])})
    """
    listed: list[_Vector] = []
    parts: list[bytes] = []
    sent: dict[int, tuple[str, Tensor]] = {}
    for name, vector in (vectors or {}).items():
        if vector.dtype != torch.float32 or vector.ndim not in (1, 2):
            raise WireError(f"{name}: a {vector.ndim}-dimensional tensor of {vector.dtype}")
        rows = None if vector.ndim == 1 else len(vector)
        twin = next(
            (
                known
                for known, other in sent.values()
                if other.shape == vector.shape and torch.equal(other, vector)
            ),
            None,
        )
        listed.append(_Vector(name=name, rows=rows, size=vector.shape[-1], same_as=twin))
        if twin is None:
            sent[len(sent)] = (name, vector)
            parts.append(_little(vector.detach().cpu().contiguous().numpy()).tobytes())
    envelope = _Envelope(header=header.model_dump(mode="json", exclude_none=True), vectors=listed)
    text = envelope.model_dump_json(exclude_none=True).encode()
    message = b"".join([MAGIC, struct.pack("<I", len(text)), text, *parts])
    if len(message) > LARGEST_BODY:
        raise WireError(f"a message of {len(message):,} bytes; at most {LARGEST_BODY:,} travel")
    return message


def unpack(kind: type[Header], message: object) -> tuple[Header, dict[str, Tensor]]:
    """Return header and vectors of a message, checked in every part.

    Raises
    ------
    WireError
        If it is anything but a header of this kind with exactly the vectors that it lists.
    """
    if not isinstance(message, bytes | bytearray | memoryview):
        raise WireError(f"a {type(message).__name__} instead of a message")
    content = memoryview(message)
    start = len(MAGIC) + 4
    if len(content) < start or bytes(content[: len(MAGIC)]) != MAGIC:
        raise WireError("not a message of this protocol")
    (length,) = struct.unpack("<I", content[len(MAGIC) : start])
    if length > LARGEST_HEADER or start + length > len(content):
        raise WireError("a message with a header that is too long")
    try:
        envelope = _Envelope.model_validate_json(bytes(content[start : start + length]))
        header = kind.model_validate_json(_json(envelope.header))
    except ValidationError as error:
        raise WireError(_explained(error)) from None
    body = content[start + length :]
    if 4 * sum(vector.count for vector in envelope.vectors) != len(body):
        raise WireError(f"{len(body):,} bytes of numbers are not what the header lists")
    vectors: dict[str, Tensor] = {}
    begin = 0
    for vector in envelope.vectors:
        if vector.name in vectors:
            raise WireError(f"two vectors are called {vector.name!r}")
        if vector.same_as is not None:
            twin = vectors.get(vector.same_as)
            if twin is None or twin.shape != vector.shape:
                raise WireError(f"{vector.name!r} is like nothing before it")
            vectors[vector.name] = twin
            continue
        end = begin + 4 * vector.count
        numbers = np.frombuffer(body[begin:end], dtype="<f4").astype(
            np.float32
        )  # a copy of its own
        vectors[vector.name] = torch.from_numpy(numbers).reshape(vector.shape)
        begin = end
    return header, vectors


def _little(array: Any) -> Any:
    return array if sys.byteorder == "little" else array.byteswap()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _explained(error: ValidationError) -> str:
    """Say what is wrong without repeating what was sent, which could be anything."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part)[:40] for part in first["loc"]) or "the header"
    return f"{where}: {first['msg'][:200]}"

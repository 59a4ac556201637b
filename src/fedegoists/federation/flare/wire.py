"""The format of messages between the coordinator and a silo: safetensors with checked metadata.

A message is a safetensors file. Its metadata hold the version of the protocol and the JSON of a
validated value; the value's tensors follow in the file: 32-bit floats, or 32-bit integers where
sums are masked. Nothing in it is code, and only exactly what is expected is accepted.
"""

import hashlib
import json
import struct
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.validated import Tensors, Validated, explained
from fedegoists.learning.parameters import ParameterSchema

PROTOCOL = "4"
"""Raised when messages change; a silo and the coordinator must have the same."""

PROTOCOL_BEFORE = "3"
"""Its messages have the same form, but other content."""

OLDEST_PROTOCOL = b"FEG2"
"""How messages of protocol 2 begin."""

LARGEST_HEADER = 4 * 1024 * 1024
LARGEST_BODY = 2 * 1024**3 - 64 * 1024 * 1024
"""FLARE's own limit for a message is 2 GiB."""

MOST_ROWS = 100_000
MOST_TENSORS = 2000


class WireError(FedEgoistsError, ValueError):
    """Bytes that are no message, or not the one that is expected."""


class OldVersionError(WireError):
    """A message of an earlier protocol.

    Attributes
    ----------
    protocol : str
        The earlier protocol.
    """

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        super().__init__(
            "runs a version of fedegoists from before message protocol "
            f"{PROTOCOL}; install the same version everywhere"
        )


class _TensorInfo(Validated):
    dtype: Literal["F32", "I32"]
    shape: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1, max_length=2)]
    data_offsets: tuple[int, int]


class _Metadata(Validated):
    protocol: str
    message: str


class _Header(Validated):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _TensorInfo]
    metadata: _Metadata = Field(alias="__metadata__")


Message = TypeVar("Message", bound=Validated)


def schema_digest(schema: ParameterSchema) -> str:
    """Return a short hash of names, shapes and constants; both ends must mean the same vector."""
    about = (schema.names, schema.shapes, schema.constants)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]


def pack(message: Validated) -> bytes:
    """Return a message as bytes. Equal tensors, as anchor and parameters often are, travel once.

    Examples
    --------
    >>> from fedegoists.federation.requests import LocalTerms
    >>> import torch
    >>> unpack(LocalTerms, pack(LocalTerms(anchor=torch.tensor([1.0, 2.0]), pull=0.5))).anchor
    tensor([1., 2.])
    """
    tensors = Tensors()
    text = message.model_dump_json(exclude_none=True, context=tensors)
    content: bytes = save(tensors.named, {"protocol": PROTOCOL, "message": text})
    if len(content) > LARGEST_BODY:
        raise WireError(f"a message of {len(content):,} bytes; at most {LARGEST_BODY:,} travel")
    return content


def unpack(kind: type[Message], content: object) -> Message:
    """Return the message in some bytes, checked in every part.

    Raises
    ------
    WireError
        If the bytes are anything but a message of this kind with exactly the tensors it names.
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise WireError(f"a {type(content).__name__} instead of a message")
    content = bytes(content)
    if content.startswith(OLDEST_PROTOCOL):
        raise OldVersionError("2")
    (length,) = struct.unpack("<Q", content[:8]) if len(content) >= 8 else (0,)
    if not 0 < length <= min(LARGEST_HEADER, len(content) - 8):
        raise WireError("not a message of this protocol, or one with too long a header")
    try:
        header = _Header.model_validate_json(content[8 : 8 + length])
        _check(header)
        tensors = Tensors(load(content))
        message = kind.model_validate_json(header.metadata.message, context=tensors)
    except ValidationError as error:
        raise WireError(explained(error)) from None
    except WireError:
        raise
    except (SafetensorError, ValueError) as error:
        raise WireError(f"not a message of this protocol: {str(error)[:200]}") from None
    if tensors.unused:
        raise WireError(f"a tensor {min(tensors.unused)[:50]!r} that the message does not name")
    return message


def _check(header: _Header) -> None:
    if header.metadata.protocol == PROTOCOL_BEFORE:
        raise OldVersionError(PROTOCOL_BEFORE)
    if header.metadata.protocol != PROTOCOL:
        raise WireError(
            f"message protocol {header.metadata.protocol[:20]!r} where {PROTOCOL!r} is expected; "
            "install the same version everywhere"
        )
    infos = (header.__pydantic_extra__ or {}).values()
    if len(infos) > MOST_TENSORS or any(
        info.shape[0] > MOST_ROWS for info in infos if len(info.shape) == 2
    ):
        raise WireError("more tensors, or rows, than a message may have")


def old_protocol(content: object) -> str | None:
    """Return the earlier protocol that a message follows, or None if it follows none."""
    try:
        unpack(Validated, content)
    except OldVersionError as error:
        return error.protocol
    except WireError:
        pass
    return None


def old_refusal(protocol: str, reason: str) -> bytes:
    """Return a refusal that a coordinator of an earlier protocol understands."""
    if protocol == PROTOCOL_BEFORE:
        text = json.dumps({"refused": reason[:400]})
        answer: bytes = save({}, {"protocol": protocol, "message": text})
        return answer
    content = json.dumps({"header": {"refused": reason[:400]}, "vectors": []}).encode()
    return OLDEST_PROTOCOL + struct.pack("<I", len(content)) + content

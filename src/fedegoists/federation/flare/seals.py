"""Seals: the signed envelope of every call to a silo, and of every answer.

| bytes | content |
|---|---|
| 4 | ``FEG4`` |
| 4 | length of the seal, little-endian |
| | the seal, as JSON |
| 4 | length of the signature |
| | the signature of the seal |
| | the message, whose hash is in the seal |
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

from cryptography import x509
from pydantic import Field, ValidationError

from fedegoists.federation.flare.kit_identity import IdentityError, KitIdentity, verify
from fedegoists.federation.flare.wire import PROTOCOL, WireError
from fedegoists.federation.validated import Validated, explained

MAGIC = f"FEG{PROTOCOL}".encode()
LARGEST_SEAL = 2_000_000
LARGEST_SIGNATURE = 1024

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Token = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Name = Annotated[str, Field(max_length=400)]


class CallSeal(Validated):
    """What the coordinator signs with a message.

    Attributes
    ----------
    consortium, site, run : str
        For whom the message is, and the run that sends it.
    session : str, optional
        The number that the silo drew when it was greeted; without one this is a greeting.
    counter : int
        The number of the call in its session, higher than all before.
    elapsed : float
        Seconds since the greeting was answered, by the coordinator's clock.
    valid : float
        Seconds for which the coordinator waits.
    nonce : str
        A random number that the answer repeats.
    digest : str
        The SHA-256 of the message.
    revocations : str, optional
        The revocation list, where the silo may not have it.
    """

    kind: Literal["call"] = "call"
    consortium: Name
    site: Name
    run: Name
    session: Token | None = None
    counter: Annotated[int, Field(ge=0)] = 0
    elapsed: Annotated[float, Field(ge=0)] = 0.0
    valid: Annotated[float, Field(gt=0, le=10**7)]
    nonce: Token
    digest: Digest
    revocations: Annotated[str, Field(max_length=1_000_000)] | None = None


class AnswerSeal(Validated):
    """What a silo signs with an answer.

    Attributes
    ----------
    consortium, site : str
        Who answers.
    nonce, call : str
        The nonce of the call, and the SHA-256 of its seal; empty where the call could not be read.
    session : str, optional
        In the answer to a greeting: the session's number.
    certificate : str, optional
        In the answer to a greeting: the silo's certificate.
    refused : str, optional
        Why the call was refused before it was read.
    again : bool
        Whether the coordinator should greet again: the session is over.
    digest : str
        The SHA-256 of the answer.
    """

    kind: Literal["answer"] = "answer"
    consortium: Name
    site: Name
    nonce: Annotated[str, Field(max_length=32)] = ""
    call: Annotated[str, Field(max_length=64)] = ""
    session: Token | None = None
    certificate: Annotated[str, Field(max_length=20_000)] | None = None
    refused: Name | None = None
    again: bool = False
    digest: Digest


Seal = TypeVar("Seal", CallSeal, AnswerSeal)


@dataclass(frozen=True)
class Sealed(Generic[Seal]):
    """A message with its seal, whose signature has not been checked yet."""

    seal: Seal
    text: bytes
    signature: bytes
    message: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 of the seal."""
        return digest_of(self.text)

    def check(self, certificate: x509.Certificate) -> None:
        """Check the signature, and that the message is the signed one.

        Raises
        ------
        IdentityError
            If not.
        """
        verify(certificate, self.signature, _DOMAIN + self.text)
        if digest_of(self.message) != self.seal.digest:
            raise IdentityError("the message is not the one that was signed")


_DOMAIN = b"fedegoists seal\n"
"""Before the signed text, so that no signature of something else fits."""


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def text_of(seal: CallSeal | AnswerSeal) -> bytes:
    """Return a seal as it is signed."""
    return seal.model_dump_json(exclude_none=True).encode()


def sealed(seal: CallSeal | AnswerSeal, message: bytes, identity: KitIdentity) -> bytes:
    """Return a message with its signed seal."""
    text = text_of(seal)
    signature = identity.sign(_DOMAIN + text)
    return b"".join(
        (
            MAGIC,
            struct.pack("<I", len(text)),
            text,
            struct.pack("<I", len(signature)),
            signature,
            message,
        )
    )


def unsealed(kind: type[Seal], content: object) -> Sealed[Seal]:
    """Return the parts of a sealed message; nothing is believed before `Sealed.check`.

    Raises
    ------
    WireError
        If it is not a sealed message of this kind.
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise WireError(f"a {type(content).__name__} instead of a message")
    content = bytes(content)
    if not content.startswith(MAGIC):
        raise WireError("a message without a seal")
    text, place = _part(content, len(MAGIC), LARGEST_SEAL)
    signature, place = _part(content, place, LARGEST_SIGNATURE)
    try:
        seal = kind.model_validate_json(text)
    except ValidationError as error:
        raise WireError(explained(error)) from None
    return Sealed(seal, text, signature, content[place:])


def _part(content: bytes, place: int, largest: int) -> tuple[bytes, int]:
    begin = place + 4
    (length,) = struct.unpack("<I", content[place:begin]) if len(content) >= begin else (-1,)
    if not 0 < length <= min(largest, len(content) - begin):
        raise WireError("a message with a damaged seal")
    return content[begin : begin + length], begin + length

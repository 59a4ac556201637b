"""The gate of a silo: nothing is carried out without a valid signature of the coordinator.

See `fedegoists.federation.flare.signed_calls` for the other side.
"""

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.flare.kit_identity import (
    REVOKED_FILE,
    IdentityError,
    coordinator_certificate,
    read_trust,
    silo_identity,
)
from fedegoists.federation.flare.seals import (
    AnswerSeal,
    CallSeal,
    Sealed,
    digest_of,
    sealed,
    unsealed,
)
from fedegoists.federation.flare.wire import OldVersionError, WireError, old_protocol, old_refusal
from fedegoists.files import write_bytes

MOST_SESSIONS = 32
"""Sessions in use at once, and as many that were only greeted; the least recently used one ends."""

MOST_GREETINGS = 10_000
"""Greetings that a silo recognises when they come again."""

SLACK = 60.0
"""Seconds that a call may be late beyond its own deadline: for the way, and clocks that drift."""


class _StaleError(FedEgoistsError):
    """A call of a session that is over."""


@dataclass
class _OpenSession:
    run: str
    begun: float
    counter: int = 0


class SiloGate:
    """Checks calls before a silo carries them out, and signs the answers.

    Parameters
    ----------
    kit : Path
        The silo's kit, with its key and the certificate of the coordinator.
    carry_out : callable
        Called with the caller's name and a message of the coordinator; returns the answer.
    clock : callable
        Seconds that only go forward.
    """

    def __init__(
        self,
        kit: Path,
        carry_out: Callable[[str, bytes], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kit, self._carry_out, self._clock = kit, carry_out, clock
        self._identity = silo_identity(kit)
        self._trust = read_trust(kit)
        self._trust.check(self._identity.certificate, self._identity.site)
        self._coordinator = coordinator_certificate(kit, self._trust)
        self._sessions: OrderedDict[str, _OpenSession] = OrderedDict()
        self._greeted: OrderedDict[str, _OpenSession] = OrderedDict()
        self._greetings: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._log = logging.getLogger("fedegoists.silo")

    def answer(self, caller: str, content: object) -> bytes:
        """Return the signed answer to a call, or a signed refusal."""
        older = old_protocol(content)
        if older is not None:
            error = OldVersionError(older)
            self._log.warning("refused a message: %s %s", caller, error)
            return old_refusal(older, f"the coordinator {error}")
        call: Sealed[CallSeal] | None = None
        try:
            call = unsealed(CallSeal, content)
            with self._lock:
                session = self._admit(call)
        except (IdentityError, WireError, _StaleError) as error:
            self._log.warning("refused a message of %s before reading it: %s", caller, error)
            again = isinstance(error, _StaleError)
            return self._sealed(call, refused=str(error)[:400], again=again)
        if call.seal.session is None:
            return self._sealed(call, session=session, certificate=self._identity.pem.decode())
        return self._sealed(call, self._carry_out(caller, call.message))

    def _admit(self, call: Sealed[CallSeal]) -> str:
        """Check a call; return its session."""
        seal = call.seal
        call.check(self._coordinator)
        if (seal.consortium, seal.site) != (self._trust.consortium, self._identity.site):
            raise IdentityError(f"a call for {seal.site} in {seal.consortium}, not for this silo")
        if seal.revocations is not None:
            self._learn(seal.revocations)
        if seal.session is None:
            return self._open(seal.run, seal.nonce)
        session = self._sessions.get(seal.session) or self._greeted.get(seal.session)
        if session is None:
            raise _StaleError("a call of a session that is not open here: recorded, or a restart")
        if seal.run != session.run:
            raise IdentityError("a call of another run than the one that opened the session")
        if seal.counter <= session.counter:
            raise IdentityError("a call that was carried out already, or overtaken by a later one")
        late = self._clock() - session.begun - seal.elapsed
        if late > seal.valid + SLACK:
            raise _StaleError(f"a call that is {late:.0f} s old, and was valid for {seal.valid:g}")
        session.counter = seal.counter
        self._greeted.pop(seal.session, None)
        _keep_last(self._sessions, seal.session, session, MOST_SESSIONS)
        return seal.session

    def _open(self, run: str, nonce: str) -> str:
        """Open a session; it ends no other one before the coordinator has used it.

        Anybody can send a recorded greeting again, but only the coordinator can go on from it.
        """
        if nonce in self._greetings:
            raise IdentityError("a greeting that was answered already: recorded, or sent twice")
        _keep_last(self._greetings, nonce, None, MOST_GREETINGS)
        number = secrets.token_hex(16)
        _keep_last(self._greeted, number, _OpenSession(run, self._clock()), MOST_SESSIONS)
        return number

    def _learn(self, revocations: str) -> None:
        """Keep a later revocation list; the coordinator itself may be on it."""
        trust = self._trust.updated(revocations.encode())
        if trust.edition > self._trust.edition:
            write_bytes(self._kit / REVOKED_FILE, revocations.encode(), private=True)
            self._trust = trust
            self._log.info("revocation list %s, %s revoked", trust.edition, len(trust.revoked))
        self._trust.check(self._coordinator, "coordinator")

    def _sealed(
        self,
        call: Sealed[CallSeal] | None,
        message: bytes = b"",
        *,
        session: str | None = None,
        certificate: str | None = None,
        refused: str | None = None,
        again: bool = False,
    ) -> bytes:
        seal = AnswerSeal(
            consortium=self._trust.consortium,
            site=self._identity.site,
            nonce="" if call is None else call.seal.nonce,
            call="" if call is None else call.digest,
            session=session,
            certificate=certificate,
            refused=refused,
            again=again,
            digest=digest_of(message),
        )
        return sealed(seal, message, self._identity)


Value = TypeVar("Value")


def _keep_last(known: OrderedDict[str, Value], key: str, value: Value, most: int) -> None:
    """Put something at the end, and forget what is at the beginning beyond some number."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)

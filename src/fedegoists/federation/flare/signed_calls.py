"""The coordinator's side of signed calls: seals calls to silos, and checks who answers.

The first call to a silo is a greeting. The silo answers with a session number that it has just
drawn and with its certificate; all further calls of the connection name this session and count up.
So a recorded call is worth nothing to a silo that was restarted, since it draws another number, and
nothing depends on the clocks of the two machines agreeing, or on what a restored backup remembers.
"""

import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from fedegoists.federation.flare.kit_identity import (
    REVOKED_FILE,
    IdentityError,
    Trust,
    coordinator_identity,
    read_trust,
)
from fedegoists.federation.flare.seals import (
    AnswerSeal,
    CallSeal,
    Sealed,
    digest_of,
    sealed,
    text_of,
    unsealed,
)
from fedegoists.federation.flare.wire import WireError, old_protocol


class SessionOverError(IdentityError):
    """A silo does not know the session any more: it was restarted, or a call was very late."""


@dataclass
class _Greeted:
    number: str
    certificate: x509.Certificate
    begun: float
    counter: int = 0
    edition: int = 0


@dataclass(frozen=True)
class _Asked:
    nonce: str
    digest: str


class CallSigner:
    """Signs the calls of one connection, and checks the answers.

    Parameters
    ----------
    kit : Path
        The coordinator's kit.
    run : str
        The run that calls.
    """

    def __init__(self, kit: Path, run: str) -> None:
        self._kit, self._run = kit, run
        self._identity = coordinator_identity(kit)
        self._sessions: dict[str, _Greeted] = {}
        self._asked: dict[str, _Asked] = {}
        self._changed = -1
        self._trust = read_trust(kit)

    def forget(self) -> None:
        """End all sessions; the job at the silos is another one now."""
        self._sessions.clear()
        self._asked.clear()

    def knows(self, site: str) -> bool:
        """Return whether there is a session with a site."""
        return site in self._sessions

    def greeting(self, site: str, seconds: float) -> bytes:
        """Return a message that asks a silo for a session."""
        return self._signed(site, b"", seconds, None)

    def call(self, site: str, message: bytes, seconds: float) -> bytes:
        """Return a message to a silo with which there is a session.

        Parameters
        ----------
        seconds : float
            How long the answer is waited for; the silo does not carry it out much later.
        """
        session = self._sessions[site]
        session.counter += 1
        return self._signed(site, message, seconds, session)

    def _signed(self, site: str, message: bytes, seconds: float, session: _Greeted | None) -> bytes:
        trust = self._current_trust()
        newer = session is None or session.edition < trust.edition
        listed = (self._kit / REVOKED_FILE).read_text() if newer and trust.edition else None
        seal = CallSeal(
            consortium=trust.consortium,
            site=site,
            run=self._run,
            session=None if session is None else session.number,
            counter=0 if session is None else session.counter,
            elapsed=0.0 if session is None else time.monotonic() - session.begun,
            valid=max(seconds, 1.0),
            nonce=secrets.token_hex(16),
            digest=digest_of(message),
            revocations=listed,
        )
        if session is not None:
            session.edition = trust.edition
        self._asked[site] = _Asked(seal.nonce, digest_of(text_of(seal)))
        return sealed(seal, message, self._identity)

    def greeted(self, site: str, content: bytes) -> None:
        """Begin a session with the silo that has answered a greeting.

        Raises
        ------
        IdentityError
            If the answer is not by the owner of a valid certificate in this name.
        """
        answer = self._unsealed(site, content)
        if answer.seal.certificate is None:
            raise IdentityError(f"{site} shows no certificate")
        certificate = self._current_trust().checked(answer.seal.certificate.encode(), site)
        self._check(site, answer, certificate)
        if answer.seal.session is None:
            raise IdentityError(f"{site} opens no session")
        session = _Greeted(answer.seal.session, certificate, time.monotonic())
        session.edition = self._current_trust().edition
        self._sessions[site] = session

    def opened(self, site: str, content: bytes) -> bytes:
        """Return the answer of a silo to the last call, after checking who signed it.

        Raises
        ------
        SessionOverError
            If the silo has to be greeted again.
        IdentityError
            If the silo's certificate is not valid any more, or the answer is not to this call.
        """
        answer, session = self._unsealed(site, content), self._sessions[site]
        try:
            self._current_trust().check(session.certificate, site)
        except IdentityError:
            del self._sessions[site]
            raise
        try:
            self._check(site, answer, session.certificate)
        except SessionOverError:  # by nothing else: anybody on the way could send something else
            del self._sessions[site]
            raise
        return answer.message

    def _unsealed(self, site: str, content: bytes) -> Sealed[AnswerSeal]:
        try:
            return unsealed(AnswerSeal, content)
        except WireError as error:
            raise IdentityError(f"the answer of {site} is not signed: {error}") from None

    def _check(self, site: str, answer: Sealed[AnswerSeal], certificate: x509.Certificate) -> None:
        answer.check(certificate)
        seal, asked = answer.seal, self._asked[site]
        if (seal.consortium, seal.site) != (self._trust.consortium, site):
            raise IdentityError(f"an answer of {seal.site} in {seal.consortium}, not of {site}")
        if (seal.nonce, seal.call) != (asked.nonce, asked.digest):
            # Also a refusal: a recorded one would end the session. One without a nonce is of a silo
            # that could not read the call.
            why = f", or cannot read this one: {seal.refused}" if seal.refused else ""
            raise IdentityError(f"{site} answers another call{why}")
        if seal.refused is not None:
            kind = SessionOverError if seal.again else IdentityError
            raise kind(f"{site} refuses: {seal.refused}")

    def _current_trust(self) -> Trust:
        """Return the trust with the revocation list as it is now."""
        path = self._kit / REVOKED_FILE
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        if changed != self._changed:
            self._trust, self._changed = read_trust(self._kit), changed
        return self._trust


def is_old(content: bytes) -> bool:
    """Return whether some bytes are a message of an earlier protocol, which had no seals."""
    return old_protocol(content) is not None

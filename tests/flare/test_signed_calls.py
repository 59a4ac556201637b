"""Signed calls: a silo carries out what its coordinator has just signed for it, and only that."""

import shutil
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedegoists.federation.flare import silo_gate
from fedegoists.federation.flare.certificate_authority import certificate_text, key_text
from fedegoists.federation.flare.kit_identity import (
    COORDINATOR_CERTIFICATE,
    REVOKED_FILE,
    SIGNING_KEY,
    IdentityError,
    coordinator_identity,
    read_trust,
    silo_identity,
)
from fedegoists.federation.flare.messages import Call
from fedegoists.federation.flare.seals import AnswerSeal, CallSeal, digest_of, sealed, unsealed
from fedegoists.federation.flare.signed_calls import CallSigner, SessionOverError
from fedegoists.federation.flare.silo_gate import SLACK, SiloGate
from fedegoists.federation.flare.wire import pack
from tests.flare.authorities import new_authority, write_identities

AUTHORITY = new_authority()


class Silo:
    """A silo behind its gate, which notes what it was asked to carry out."""

    def __init__(self, kit, now=0.0):
        self.kit, self.now, self.done = kit, now, []
        self.restart()

    def restart(self):
        self.gate = SiloGate(self.kit, self._carry_out, lambda: self.now)

    def _carry_out(self, caller, message):
        self.done.append(message)
        return b"answer to " + message

    def answer(self, content):
        return self.gate.answer("server", content)

    def refusal(self, content):
        """Ask something that must be refused; return why, as the silo signed it."""
        before = list(self.done)
        answer = unsealed(AnswerSeal, self.answer(content))
        assert self.done == before
        answer.check(silo_identity(self.kit).certificate)
        assert answer.message == b""
        assert answer.seal.session is None
        return answer.seal.refused


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kits")
    coordinator = folder / "coordinator"
    silos = {site: folder / site for site in ("north", "south")}
    write_identities(AUTHORITY, coordinator, silos)
    for kit in (coordinator, *silos.values()):
        (kit / REVOKED_FILE).write_bytes(AUTHORITY.revocation_list([], 1))
    return folder


@pytest.fixture
def kits(made, tmp_path):
    """The coordinator's kit and two silos', for one test alone."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return {"": tmp_path / "coordinator", **{site: tmp_path / site for site in ("north", "south")}}


@pytest.fixture
def north(kits):
    return Silo(kits["north"])


@pytest.fixture
def signer(kits):
    return CallSigner(kits[""], "run")


def greet(signer, silo, site="north"):
    signer.greeted(site, silo.answer(signer.greeting(site, 10)))


def test_a_signed_call_is_carried_out_and_its_answer_believed(signer, north):
    greet(signer, north)
    assert north.done == []  # a greeting asks for nothing
    for message in (b"one", b"two"):
        assert signer.opened("north", north.answer(signer.call("north", message, 10))) == (
            b"answer to " + message
        )
    assert north.done == [b"one", b"two"]


@pytest.mark.parametrize("operation", ["about", "deliver", "train", "loss_and_gradient"])
def test_nothing_is_carried_out_without_a_signature(north, operation):
    assert "without a seal" in north.refusal(pack(Call(operation=operation)))


def parts(content):
    """Take a sealed message apart."""
    one = unsealed(CallSeal, content)
    return one.seal, one.signature, one.message


def put_together(seal, signature, message):
    text = seal.model_dump_json(exclude_none=True).encode()
    length, own = struct.pack("<I", len(text)), struct.pack("<I", len(signature))
    return b"FEG4" + length + text + own + signature + message


@pytest.mark.parametrize(
    "change",
    [
        {"site": "south"},
        {"consortium": "another"},
        {"run": "another"},
        {"counter": 9},
        {"nonce": "0" * 32},
        {"session": "0" * 32},
        {"elapsed": 5.0},
        {"valid": 99.0},
    ],
    ids=str,
)
def test_whoever_changes_a_call_breaks_its_signature(signer, north, change):
    greet(signer, north)
    seal, signature, message = parts(signer.call("north", b"one", 10))
    refused = north.refusal(put_together(seal.changed(**change), signature, message))
    assert "not signed by coordinator" in refused


def test_another_message_does_not_fit_the_signature(signer, north):
    greet(signer, north)
    seal, signature, _ = parts(signer.call("north", b"one", 10))
    assert "not the one that was signed" in north.refusal(put_together(seal, signature, b"two"))


def test_a_call_to_one_silo_cannot_be_sent_to_another(signer, kits, north):
    south = Silo(kits["south"])
    greet(signer, north)
    greet(signer, south, "south")
    assert "a call for north" in south.refusal(signer.call("north", b"one", 10))
    assert "a call for north" in south.refusal(signer.greeting("north", 10))


def test_only_the_coordinators_key_signs_calls(kits, north, tmp_path):
    """Neither another key, nor another certificate of the same root, nor another consortium."""
    other = tmp_path / "other"
    write_identities(new_authority(), other, {})
    stranger = CallSigner(other, "run")
    assert "not signed by coordinator" in north.refusal(stranger.greeting("north", 10))
    south = silo_identity(kits["south"])
    seal, _, _ = parts(CallSigner(kits[""], "run").greeting("north", 10))
    assert "not signed by coordinator" in north.refusal(sealed(seal, b"", south))
    # A second key with a certificate of the same authority: the silo keeps to the first.
    key = Ed25519PrivateKey.generate()
    (kits[""] / SIGNING_KEY).write_bytes(key_text(key))
    second = certificate_text(AUTHORITY.certify_coordinator(key.public_key()))
    (kits[""] / COORDINATOR_CERTIFICATE).write_bytes(second)
    assert "not signed by" in north.refusal(CallSigner(kits[""], "run").greeting("north", 10))


def test_a_call_is_carried_out_once(signer, north):
    greet(signer, north)
    one, two = (signer.call("north", message, 10) for message in (b"one", b"two"))
    north.answer(two)
    assert "carried out already, or overtaken" in north.refusal(two)
    assert "carried out already, or overtaken" in north.refusal(one)
    assert north.done == [b"two"]


def test_a_recorded_call_is_worth_nothing_after_a_restart(signer, north):
    greeting = signer.greeting("north", 10)
    signer.greeted("north", north.answer(greeting))
    call = signer.call("north", b"one", 10)
    north.answer(call)
    north.restart()
    assert "not open here" in north.refusal(call)
    # A recorded greeting opens a session, in which the recorded call does not fit either.
    opened = unsealed(AnswerSeal, north.answer(greeting)).seal.session
    assert opened != parts(call)[0].session
    assert "not open here" in north.refusal(call)


def test_recorded_greetings_end_no_session(signer, kits, north, monkeypatch):
    monkeypatch.setattr(silo_gate, "MOST_SESSIONS", 3)
    greet(signer, north)
    assert signer.opened("north", north.answer(signer.call("north", b"one", 10)))
    # One that this process has answered, and many that an earlier one has.
    known = signer.greeting("north", 10)
    signer.greeted("north", north.answer(known))
    assert signer.opened("north", north.answer(signer.call("north", b"two", 10)))
    other = CallSigner(kits[""], "run")
    for _ in range(4):
        assert "answered already" in north.refusal(known)
        north.answer(other.greeting("north", 10))
    assert signer.opened("north", north.answer(signer.call("north", b"three", 10)))
    assert len(north.gate._greeted) == 3


def test_greetings_are_not_remembered_for_ever(kits, north, monkeypatch):
    monkeypatch.setattr(silo_gate, "MOST_GREETINGS", 3)
    signer = CallSigner(kits[""], "run")
    for _ in range(4):
        north.answer(signer.greeting("north", 10))
    assert len(north.gate._greetings) == 3


def test_a_silo_that_was_restarted_is_greeted_again(signer, north):
    greet(signer, north)
    north.restart()
    with pytest.raises(SessionOverError, match="not open here"):
        signer.opened("north", north.answer(signer.call("north", b"one", 10)))
    assert not signer.knows("north")
    greet(signer, north)
    assert signer.opened("north", north.answer(signer.call("north", b"one", 10)))


def test_a_call_that_was_held_back_is_refused(signer, north):
    greet(signer, north)
    late, later = (signer.call("north", message, 10) for message in (b"one", b"two"))
    north.now += 10 + SLACK - 5
    north.answer(late)
    assert north.done == [b"one"]
    north.now += 10
    assert "s old, and was valid for 10" in north.refusal(later)


def test_clocks_need_not_agree(signer, north, monkeypatch):
    """The silo's clock is a year ahead, and a restored coordinator's goes back: no matter."""
    north.now = 3.15e7
    greet(signer, north)
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert signer.opened("north", north.answer(signer.call("north", b"one", 10)))


def test_several_runs_and_a_restored_coordinator_do_not_disturb_each_other(kits, north):
    first, second = CallSigner(kits[""], "first"), CallSigner(kits[""], "second")
    greet(first, north)
    greet(second, north)
    for k in range(3):
        for signer in (first, second):
            assert signer.opened("north", north.answer(signer.call("north", b"%d" % k, 10)))
    # The session of one run is not another's.
    seal, _, _ = parts(first.call("north", b"x", 10))
    mixed = sealed(seal.changed(run="second"), b"x", coordinator_identity(kits[""]))
    assert "another run" in north.refusal(mixed)


def test_sessions_do_not_pile_up(kits, north, monkeypatch):
    monkeypatch.setattr(silo_gate, "MOST_SESSIONS", 2)
    signers = [CallSigner(kits[""], str(k)) for k in range(3)]
    for signer in signers:
        greet(signer, north)
        north.answer(signer.call("north", b"one", 10))
    assert "not open here" in north.refusal(signers[0].call("north", b"one", 10))
    assert signers[2].opened("north", north.answer(signers[2].call("north", b"one", 10)))


# Answers -----------------------------------------------------------------------------------------


def forge(signer, kits, **change):
    """Answer a call with the seal of a silo that is changed, and signed by `by`."""
    by = change.pop("by", "north")
    call = unsealed(CallSeal, signer.call("north", b"one", 10))
    seal = AnswerSeal(
        consortium=call.seal.consortium,
        site="north",
        nonce=call.seal.nonce,
        call=call.digest,
        digest=digest_of(b"forged"),
    ).changed(**change)
    return sealed(seal, b"forged", silo_identity(kits[by]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"by": "south"}, "not signed by north"),
        ({"site": "south"}, "an answer of south"),
        ({"consortium": "another"}, "in another"),
        ({"nonce": "0" * 32}, "answers another call"),
        ({"call": "0" * 64}, "answers another call"),
        ({"digest": "0" * 64}, "not the one that was signed"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_a_forged_answer_is_not_believed(signer, kits, north, change, words):
    greet(signer, north)
    assert signer.opened("north", forge(signer, kits)) == b"forged"  # with the silo's own key
    with pytest.raises(IdentityError, match=words):
        signer.opened("north", forge(signer, kits, **change))


def test_an_answer_without_a_signature_is_not_believed(signer, north):
    greet(signer, north)
    signer.call("north", b"one", 10)
    with pytest.raises(IdentityError, match="is not signed"):
        signer.opened("north", b"an answer")


def test_a_recorded_refusal_is_not_believed_again(signer, kits, north):
    greet(signer, north)
    north.restart()
    call = signer.call("north", b"one", 10)
    recorded = north.answer(call)
    assert unsealed(AnswerSeal, recorded).seal.again
    greet(signer, north)
    signer.call("north", b"two", 10)
    with pytest.raises(IdentityError, match="answers another call") as caught:
        signer.opened("north", recorded)
    assert not isinstance(caught.value, SessionOverError)
    # Nor does any other answer that somebody puts in its place end the session.
    for forged in (forge(signer, kits, by="south"), forge(signer, kits, nonce="0" * 32)):
        with pytest.raises(IdentityError):
            signer.opened("north", forged)
    assert signer.opened("north", north.answer(signer.call("north", b"three", 10)))


def test_a_silo_that_cannot_read_a_call_says_so(signer, north):
    greet(signer, north)
    signer.call("north", b"one", 10)
    with pytest.raises(IdentityError, match="cannot read this one: a message without a seal"):
        signer.opened("north", north.answer(b"damaged"))


def test_a_silo_cannot_answer_in_anothers_name(signer, kits):
    south = Silo(kits["south"])
    signer.greeting("north", 10)
    answer = south.answer(CallSigner(kits[""], "run").greeting("south", 10))
    with pytest.raises(IdentityError, match=r"of 'south' where one of 'north' is expected"):
        signer.greeted("north", answer)


# Revocation --------------------------------------------------------------------------------------


def revoke(kits, certificate, edition=2):
    revoked = AUTHORITY.revocation_list([certificate.serial_number], edition)
    (kits[""] / REVOKED_FILE).write_bytes(revoked)


def test_a_revoked_silo_is_not_believed_from_then_on(signer, kits, north):
    greet(signer, north)
    answer = north.answer(signer.call("north", b"one", 10))
    revoke(kits, silo_identity(kits["north"]).certificate)
    with pytest.raises(IdentityError, match="north is revoked"):
        signer.opened("north", answer)
    with pytest.raises(IdentityError, match="north is revoked"):
        greet(signer, north)


def test_silos_learn_of_revocations_with_the_next_call(signer, kits, north):
    greet(signer, north)
    south = silo_identity(kits["south"]).certificate
    read_trust(kits["north"]).check(south, "south")
    revoke(kits, south)
    north.answer(signer.call("north", b"one", 10))
    with pytest.raises(IdentityError, match="south is revoked"):
        read_trust(kits["north"]).check(south, "south")
    # The list travels once, and an older one cannot replace it.
    assert parts(signer.call("north", b"two", 10))[0].revocations is None
    revoke(kits, south, edition=1)
    north.answer(CallSigner(kits[""], "run").greeting("north", 10))
    assert read_trust(kits["north"]).edition == 2


def test_a_coordinator_whose_key_is_revoked_is_not_answered(signer, kits, north):
    greet(signer, north)
    revoke(kits, coordinator_identity(kits[""]).certificate)
    assert "coordinator is revoked" in north.refusal(signer.call("north", b"one", 10))


def test_a_silo_with_a_revoked_certificate_does_not_start(kits):
    revoke({"": kits["north"]}, silo_identity(kits["north"]).certificate)
    with pytest.raises(IdentityError, match="north is revoked"):
        Silo(kits["north"])


@pytest.mark.parametrize("cut", [3, 6, 20, 400])
def test_damaged_seals_are_refused(signer, north, cut):
    greet(signer, north)
    assert north.refusal(signer.call("north", b"one", 10)[:cut])
    assert north.refusal(b"FEG4" + struct.pack("<I", 2**31) + b"{}")
    assert north.refusal(b"FEG4" + struct.pack("<I", 2) + b"{}" + struct.pack("<I", 1) + b"x")

"""A commitment fits one decision only, and opens for each reader what concerns it."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form, verify
from fedegoists.commitments import Commitment, MemberCertificate, Opening
from fedegoists.commitments.commitment import new_secret
from fedegoists.errors import CertificateError
from tests.commitments.decision import SECRET, example
from tests.instances import graphs


@settings(deadline=None, max_examples=40)
@given(graphs(min_n=1, max_n=7), st.data())
def test_every_member_can_check_its_part_and_the_auditor_everything(both, data):
    formation = form(*both, "stable")
    commitment = Commitment("test, formation 1", formation.certificate, new_secret())
    for member in formation.participants:
        rivals = both[1].competitors(member)
        reported = data.draw(st.lists(st.sampled_from(rivals), unique=True)) if rivals else []
        mine = commitment.member_certificate(member, reported)
        assert mine.check(commitment.digest, reported).ok
        assert MemberCertificate.from_json(mine.to_json()) == mine
    opening = Opening.from_json(commitment.opening().to_json())
    assert opening.check(commitment.digest).ok == formation.certificate.check().ok
    assert opening.check(commitment.digest).claims[0].ok


def test_a_free_rider_and_a_competitor_cannot_be_certified():
    formation = example()
    riding = dataclasses.replace(
        formation, coalitions=(("North", "South", "East"), ("West",)), stable=None
    )
    assert not verify(riding.benefit, riding.competition, riding.coalitions).ok
    commitment = Commitment("c", riding.certificate, SECRET)
    failed = {c.claim for c in commitment.member_certificate("East").check().claims if not c.ok}
    assert failed == {"no free riders", "no conflicts"}
    assert not commitment.opening().check().ok


def test_a_secret_must_be_long_and_is_not_shown():
    certificate = example().certificate
    with pytest.raises(CertificateError, match="32 bytes, not 3"):
        Commitment("c", certificate, b"abc")
    assert SECRET.hex()[:8] not in repr(Commitment("c", certificate, SECRET))
    assert repr(SECRET)[2:10] not in repr(Commitment("c", certificate, SECRET).opening())


def test_a_commitment_by_hand():
    """As the file formats describe it, with nothing of the package but the two files."""
    import hashlib
    import hmac

    benefit = BenefitGraph([[0, 0.5], [0.25, 0]], ["A", "B"])
    certificate = form(benefit, CompetitionGraph([], ["A", "B"])).certificate
    commitment = Commitment("by hand", certificate, SECRET)

    def compact(value):
        return json.dumps(value, separators=(",", ":")).encode()

    opening = json.loads(commitment.opening().to_json())
    secret, whole = bytes.fromhex(opening["secret"]), opening["certificate"]
    level = []
    for *key, value in (
        ["coalition", 0, [0, 1]],
        ["coalition", 1, [0, 1]],
        ["benefit", 0, 0, "0" * 16],
        ["benefit", 0, 1, "3fe0000000000000"],
        ["benefit", 1, 0, "3fd0000000000000"],
        ["benefit", 1, 1, "0" * 16],
        ["competition", 0, 1, False],
        ["certificate", hashlib.sha256(whole.encode()).hexdigest()],
    ):
        salt = hmac.digest(secret, compact(key), "sha256")
        level.append(hashlib.sha256(b"\0" + salt + compact([*key, value])).digest())
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [hashlib.sha256(b"\1" + a + b).digest() for a, b in pairs]
    head = compact(["fedegoists commitment", 1, "by hand", ["A", "B"], level[0].hex()])
    assert hashlib.sha256(head).hexdigest() == opening["commitment"]
    mine = json.loads(commitment.member_certificate("A").to_json())
    assert mine["commitment"] == opening["commitment"]

"""A member's certificate proves its part, hides the rest, and nothing in it can be altered."""

import dataclasses
import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form, verify
from fedegoists.commitments import Commitment, MemberCertificate, Opening
from fedegoists.commitments.commitment import new_secret
from fedegoists.commitments.leaves import entries, position_of, size_for
from fedegoists.commitments.merkle import leaf_hash, prove, root_from, tree
from fedegoists.errors import CertificateError
from tests.instances import graphs

SECRET = bytes(range(32))


@given(st.integers(1, 40), st.data())
def test_any_set_of_leaves_leads_to_the_root_at_its_place_only(size, data):
    leaves = [leaf_hash(b"salt", bytes([k])) for k in range(size)]
    levels = tree(leaves)
    chosen = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    proof = prove(levels, chosen)
    opened = {k: leaves[k] for k in chosen}
    assert root_from(opened, size, proof) == levels[-1][0]
    wrong = data.draw(st.sampled_from(sorted(chosen)))
    other = leaf_hash(b"salt", b"another")
    assert root_from({**opened, wrong: other}, size, proof) != levels[-1][0]
    with pytest.raises(CertificateError, match="too long"):
        root_from(opened, size, [*proof, other])
    if proof:
        with pytest.raises(CertificateError, match="too short"):
            root_from(opened, size, proof[:-1])


def test_a_tree_by_hand():
    import hashlib

    a, b, c = (leaf_hash(b"s", x) for x in (b"a", b"b", b"c"))
    assert a == hashlib.sha256(b"\x00sa").digest()
    ab = hashlib.sha256(b"\x01" + a + b).digest()
    root = hashlib.sha256(b"\x01" + ab + c).digest()
    assert tree([a, b, c])[-1] == [root]
    assert prove(tree([a, b, c]), [0]) == [b, c]
    assert prove(tree([a, b, c]), [2]) == [ab]


@given(graphs(max_n=5))
def test_every_entry_stands_at_its_position(both):
    certificate = form(*both, "stable").certificate
    positions = [position_of(key, both[0].n) for key, _ in entries(certificate)]
    assert positions == list(range(size_for(both[0].n)))


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


@settings(deadline=None, max_examples=40)
@given(graphs(min_n=2, max_n=6), st.data())
def test_a_member_sees_no_entry_between_others_and_no_report_of_others(both, data):
    formation = form(*both, "stable")
    member = data.draw(st.sampled_from(formation.participants))
    own = formation.participants.index(member)
    together = {formation.participants.index(name) for name in formation.coalition_of(member)}
    mine = Commitment("c", formation.certificate, SECRET).member_certificate(member)
    for entry in mine.opened:
        kind, *who = entry.key
        assert set(who) <= together
        if kind != "coalition":
            assert own in who
        if kind == "competition":
            assert entry.value is False  # being together says so already


@settings(deadline=None, max_examples=40)
@given(graphs(min_n=2, max_n=6), st.data())
def test_what_others_report_changes_only_hashes(both, data):
    benefit, competition = both
    before = form(benefit, competition, "stable")
    names = benefit.participants
    member = data.draw(st.sampled_from(names))
    outside = [n for n in names if n not in before.coalition_of(member)]
    assume(len(outside) > 1)
    pair = tuple(data.draw(st.permutations(outside))[:2])
    pairs = {frozenset(p) for p in competition.pairs} ^ {frozenset(pair)}
    after = form(benefit, CompetitionGraph([tuple(p) for p in pairs], names), "stable")
    assume(after.coalition_of(member) == before.coalition_of(member))
    one, other = (
        json.loads(Commitment("c", f.certificate, SECRET).member_certificate(member).to_json())
        for f in (before, after)
    )
    assert one.pop("commitment") != other.pop("commitment")
    assert len(one["proof"]) == len(other["proof"])
    del one["proof"], other["proof"]
    assert one == other


def example():
    banks = ["North", "South", "East", "West"]
    edges = [("North", "South", 0.5), ("South", "North", 0.25), ("East", "North", 1.0)]
    benefit = BenefitGraph.from_edges(edges, banks)
    return form(benefit, CompetitionGraph([("East", "South")], banks))


def test_nothing_in_a_certificate_can_be_altered():
    commitment = Commitment("c", example().certificate, SECRET)
    mine = commitment.member_certificate("North")
    text = json.loads(mine.to_json())
    assert mine.coalition == ("North", "South")
    changes = [
        ("context", "d"),
        ("participants", ["North", "South", "East", "Waste"]),
        ("coalition", ["North", "South", "East"]),
        ("coalition", ["South"]),
        ("reported", ["West"]),
        ("commitment", "0" * 64),
        ("proof", text["proof"][1:]),
        ("proof", ["0" * 64, *text["proof"][1:]]),
        ("opened", text["opened"][1:]),
        ("opened", [*text["opened"], text["opened"][0]]),
    ]
    for k, entry in enumerate(text["opened"]):
        value = entry["value"]
        other = (
            not value if isinstance(value, bool) else [0] if isinstance(value, list) else "0" * 16
        )
        assert other != value
        changes.append(
            ("opened", [*text["opened"][:k], {**entry, "value": other}, *text["opened"][k + 1 :]])
        )
    for key, value in changes:
        altered = MemberCertificate.from_json(json.dumps({**text, key: value}))
        assert not altered.check(commitment.digest).ok, key


def test_a_certificate_of_another_occasion_does_not_pass():
    certificate = example().certificate
    first = Commitment("formation 1", certificate, SECRET)
    second = Commitment("formation 2", certificate, new_secret())
    check = first.member_certificate("North").check(second.digest)
    assert [claim.claim for claim in check.claims if not claim.ok] == ["bound to the commitment"]


def test_an_own_report_that_was_not_counted_shows():
    mine = Commitment("c", example().certificate, SECRET).member_certificate("West", ["North"])
    failed = [claim for claim in mine.check().claims if not claim.ok]
    assert [claim.claim for claim in failed] == ["own reports"]
    assert failed[0].found == "not counted: North"


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "valid dictionary"),
        ('{"format": "fedegoists member certificate"}', "version: Field required"),
    ],
)
def test_what_is_no_certificate_is_said_plainly(text, message):
    with pytest.raises(CertificateError, match=message):
        MemberCertificate.from_json(text)
    with pytest.raises(CertificateError):
        Opening.from_json(text)


def test_a_secret_must_be_long_and_is_not_shown():
    certificate = example().certificate
    with pytest.raises(CertificateError, match="32 bytes, not 3"):
        Commitment("c", certificate, b"abc")
    assert SECRET.hex()[:8] not in repr(Commitment("c", certificate, SECRET))
    assert repr(SECRET)[2:10] not in repr(Commitment("c", certificate, SECRET).opening())


def test_the_command_tells_what_was_opened_and_checks_it(tmp_path):
    from typer.testing import CliRunner

    from fedegoists.cli import app

    commitment = Commitment("c", example().certificate, SECRET)
    commitment.member_certificate("North").save(tmp_path / "north.json")
    commitment.opening().save(tmp_path / "opening.json")
    for file in ("north.json", "opening.json"):
        path = str(tmp_path / file)
        right = CliRunner().invoke(app, ["verify", path, "--commitment", commitment.digest])
        assert right.exit_code == 0, right.output
        wrong = CliRunner().invoke(app, ["verify", path, "--commitment", "0" * 64])
        assert wrong.exit_code == 1


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

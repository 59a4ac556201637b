"""A member's certificate proves its part, hides the rest, and nothing in it can be altered."""

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.commitments import Commitment, MemberCertificate
from fedegoists.commitments.commitment import new_secret
from tests.commitments.decision import SECRET, example
from tests.instances import graphs


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


def test_every_member_checks_its_coalition_against_the_same_demand():
    banks = ["North", "South", "East", "West"]
    ring = [("North", "South", 1), ("South", "East", 1), ("East", "North", 1)]
    benefit = BenefitGraph.from_edges(ring, banks)
    formation = form(benefit, CompetitionGraph([], banks), fewest_members=3)
    commitment = Commitment("c", formation.certificate, SECRET)
    assert commitment.opening().check(commitment.digest, fewest_members=3).ok
    for name in banks:
        mine = commitment.member_certificate(name)
        check = mine.check(commitment.digest, fewest_members=3)
        assert check.ok
        assert "enough members" in [claim.claim for claim in check.claims]
        assert not mine.check(commitment.digest, fewest_members=4).ok
        text = json.loads(mine.to_json())
        for other in (1, 2, 4):  # the commitment binds the number
            altered = MemberCertificate.from_json(json.dumps({**text, "fewest_members": other}))
            assert not altered.check(commitment.digest).ok
        del text["fewest_members"]
        assert not MemberCertificate.from_json(json.dumps(text)).check(commitment.digest).ok


def test_a_member_sees_that_its_coalition_is_too_small():
    """A coordinator that commits to a pair although three were demanded is found out by both."""
    certificate = replace(example().certificate, fewest_members=3)
    commitment = Commitment("c", certificate, SECRET)
    for name, fine in (("North", False), ("South", False), ("East", True)):
        check = commitment.member_certificate(name).check(commitment.digest)
        failed = [claim.claim for claim in check.claims if not claim.ok]
        assert failed == ([] if fine else ["enough members"])


def test_a_members_certificate_of_an_earlier_version_still_holds():
    path = Path(__file__).parent / "earlier_member_certificate.json"
    earlier = MemberCertificate.load(path)
    digest = "07884b6dedd613ac29f516f001b5f2f233563f97efeb70ccb6cd3554f338b00e"
    assert earlier.check(digest, ["South"], fewest_members=1).ok
    assert earlier.to_json() == path.read_text()

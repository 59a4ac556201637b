"""Certificates survive a round trip, re-derive, and show any changed byte."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form
from fedegoists.coalitions import FORMATION_METHODS
from fedegoists.errors import CertificateError, FedEgoistsError, FileError
from tests.instances import graphs, random_graphs

NAMES = ["Nörd", "South, Ltd", "East"]
BENEFIT = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], NAMES)
COMPETITION = CompetitionGraph([("South, Ltd", "East")], NAMES)


def certificate_text() -> str:
    return form(BENEFIT, COMPETITION).certificate.to_json()


@pytest.mark.parametrize("method", FORMATION_METHODS)
@given(graphs(max_n=6))
@settings(max_examples=40, deadline=None)
def test_round_trip_and_check(method, instance):
    formation = form(*instance, method)
    certificate = Certificate.from_json(formation.certificate.to_json())
    assert certificate == formation.certificate
    assert certificate.changed == ()
    check = certificate.check()
    promised = formation.stable is True or method == "truthful"  # which promises no stability
    assert check.ok == promised
    assert [claim.claim for claim in check.claims if not claim.ok] == (
        [] if promised else ["merge-stable"]
    )
    restored = certificate.formation()
    assert restored.coalitions == formation.coalitions
    assert restored.welfare == formation.welfare
    assert restored.stable == formation.stable


def test_the_same_input_gives_the_same_bytes():
    assert certificate_text() == certificate_text()


def test_the_digest_can_be_derived_with_a_text_editor():
    """Set the 64 digits of the last entry to zeros and take the SHA-256 of the file."""
    text = certificate_text()
    digest = json.loads(text)["sha256"]
    head, tail = text.rsplit(digest, 1)
    assert hashlib.sha256(f"{head}{'0' * 64}{tail}".encode()).hexdigest() == digest


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_changed_byte_is_found(data):
    """Replace, insert or delete one byte anywhere: unreadable, or the check says it."""
    raw = bytearray(certificate_text().encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    how = data.draw(st.sampled_from(["replace", "insert", "delete"]))
    byte = data.draw(st.integers(0, 255))
    if how == "replace":
        if raw[at] == byte:
            return
        raw[at] = byte
    elif how == "insert":
        raw.insert(at, byte)
    else:
        del raw[at]
    try:
        certificate = Certificate.from_json(raw.decode())
    except (FedEgoistsError, UnicodeDecodeError):
        return
    assert certificate.changed
    assert not certificate.check(time_limit=1).ok


def forged(**changes: object) -> Certificate:
    """A certificate with changed content and a digest that fits it again."""
    document = json.loads(certificate_text())
    for key, value in changes.items():
        document[key] = value
    document["sha256"] = "0" * 64
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Certificate.from_json(re.sub(r'0{64}("\n}\n)\Z', rf"{digest}\1", text))


def failed(certificate: Certificate) -> dict[str, str]:
    check = certificate.check(time_limit=2)
    return {claim.claim: claim.found for claim in check.claims if not claim.ok}


def test_a_forgery_with_a_fitting_digest_is_found_by_its_content():
    assert failed(forged()) == {}
    claims = json.loads(certificate_text())["claims"]

    together = failed(forged(coalitions=[NAMES]))
    assert "reaches its competitor" in together["no conflicts"]
    assert set(together) == {"no conflicts", "welfare"}

    alone = failed(forged(coalitions=[[name] for name in NAMES]))
    assert "would gain 3 by merging" in alone["merge-stable"]
    assert alone["welfare"] == "0"

    claims[3]["value"] = 4.0
    assert failed(forged(claims=claims)) == {"welfare": "3"}

    claims[3]["value"] = 3.0
    claims[4]["value"] = 2.5
    assert "a valid partition reaches 3" in failed(forged(claims=claims))["upper bound"]

    benefit = json.loads(certificate_text())["benefit"]
    benefit["edges"][0][2] = 7.0
    found = failed(forged(benefit=benefit))
    assert "SHA-256 of the benefit graph" in found["unchanged"]


def test_a_free_rider_in_a_forgery_is_named():
    graph = BenefitGraph.from_edges([("a", "b", 1), ("b", "a", 1), ("b", "c", 1)], ["a", "b", "c"])
    formation = form(graph, CompetitionGraph([], ["a", "b", "c"]))
    assert formation.coalitions == (("a", "b"), ("c",))
    document = json.loads(formation.certificate.to_json())
    document["coalitions"] = [["a", "b", "c"]]
    found = failed(Certificate.from_json(json.dumps(document)))
    assert found["no free riders"] == "refuted; c benefits nobody in its coalition {a, b, c}"


@pytest.mark.slow
def test_a_bound_below_the_proven_one_is_not_believed():
    formation = form(*random_graphs(60, 1.0, 0.05, seed=1), time_limit=1)
    document = json.loads(formation.certificate.to_json())
    document["claims"][4]["value"] = formation.welfare * 1.01
    check = Certificate.from_json(json.dumps(document)).check()
    (bound,) = (claim for claim in check.claims if claim.claim == "upper bound")
    assert not bound.ok
    assert bound.found.startswith("not proven: the certificate proves at most")


def test_a_check_that_has_no_time_says_so():
    certificate = form(*random_graphs(20, 0.5, 0.1, seed=1), time_limit=5).certificate
    check = certificate.check(time_limit=1e-9)
    (bound,) = (claim for claim in check.claims if claim.claim == "upper bound")
    assert not bound.ok
    assert bound.found == "not confirmed within the time limit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "not a certificate"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"format": "fedegoists certificate", "version": 2}', "version 2; this software reads"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_certificate_is_refused(text, message):
    with pytest.raises(CertificateError, match=message):
        Certificate.from_json(text, "x.json")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("coalitions", [["Nörd"]], "'South, Ltd' is in no coalition"),
        ("coalitions", "abc", "coalitions"),
        ("method", "magic", "method"),
        ("seed", -1, "seed"),
        ("claims", [], "a claim is missing"),
        ("extra", 1, "extra"),
        ("competition", {"participants": ["x"], "pairs": [], "sha256": "0" * 64}, "different"),
    ],
)
def test_what_cannot_be_checked_is_refused(key, value, message):
    document = json.loads(certificate_text())
    document[key] = value
    with pytest.raises(CertificateError, match=message):
        Certificate.from_json(json.dumps(document))


def test_files(tmp_path):
    certificate = form(BENEFIT, COMPETITION).certificate
    certificate.save(tmp_path / "new" / "certificate.json")
    assert Certificate.load(tmp_path / "new" / "certificate.json") == certificate
    with pytest.raises(FileError, match="no such file"):
        Certificate.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("position", "change"),
    [
        (0, {"value": 1.0}),
        (2, {"witnesses": ["nothing"]}),
        (2, {"status": "refuted"}),
        (3, {"status": "refuted"}),
        (4, {"status": "not proven"}),
        (4, {"value": -1.0}),
    ],
)
def test_claims_that_contradict_themselves_are_refused(position, change):
    claims = json.loads(certificate_text())["claims"]
    claims[position].update(change)
    with pytest.raises(CertificateError, match="the claim"):
        forged(claims=claims)


def test_a_byte_order_mark_is_a_changed_file(tmp_path):
    path = tmp_path / "certificate.json"
    path.write_bytes(b"\xef\xbb\xbf" + certificate_text().encode())
    certificate = Certificate.load(path)
    assert certificate.changed == ("a byte-order mark was put in front",)
    assert not certificate.check().ok


# At least k members ----------------------------------------------------------------------------

BANKS = ["North", "South", "East", "West"]
EDGES = [("North", "South", 5), ("South", "North", 5), ("North", "East", 1), ("East", "West", 1)]
RING = BenefitGraph.from_edges([*EDGES, ("West", "North", 1)], BANKS)
APART = CompetitionGraph([("South", "East"), ("South", "West")], BANKS)


def demanding(**changes: object) -> Certificate:
    """A certificate that demands three members, changed, with a digest that fits it again.

    Without the demand, North and South are a pair of welfare 10. With it, the circle North, East,
    West of welfare 3 is best.
    """
    document = json.loads(form(RING, APART, fewest_members=3).certificate.to_json())
    for key, value in changes.items():
        if value is None:
            del document[key]
        else:
            document[key] = value
    document["sha256"] = "0" * 64
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Certificate.from_json(re.sub(r'0{64}("\n}\n)\Z', rf"{digest}\1", text))


def demanding_claims() -> list[dict[str, object]]:
    text = form(RING, APART, fewest_members=3).certificate.to_json()
    claims: list[dict[str, object]] = json.loads(text)["claims"]
    return claims


def test_a_demand_is_certified_and_checked_again():
    certificate = demanding()
    assert certificate.fewest_members == 3
    assert certificate.coalitions == (("North", "East", "West"), ("South",))
    check = certificate.check(fewest_members=3)
    assert check.ok
    assert [claim.claim for claim in check.claims] == [
        "unchanged",
        "demand",
        "no free riders",
        "no conflicts",
        "enough members",
        "merge-stable",
        "welfare",
        "upper bound",
    ]
    assert certificate.formation().fewest_members == 3
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_a_removed_or_lowered_demand_is_found():
    """The claims no longer fit the certificate, and it does not state what was agreed on."""
    with pytest.raises(CertificateError, match="a claim is missing or out of order"):
        demanding(fewest_members=None)
    claims = [claim for claim in demanding_claims() if claim["claim"] != "enough members"]
    for forgery in (demanding(fewest_members=None, claims=claims), demanding(fewest_members=2)):
        found = failed(forgery)
        assert "a valid partition reaches 10" in found["upper bound"]
        (wrong,) = (c for c in forgery.check(fewest_members=3).claims if c.claim == "demand")
        assert not wrong.ok
    # Unlike above, nothing in this file is wrong; only the agreement shows it.
    pair = form(RING, APART, fewest_members=2).certificate
    assert pair.check().ok
    assert [c.claim for c in pair.check(fewest_members=3).claims if not c.ok] == ["demand"]


def test_a_raised_demand_is_found():
    found = failed(demanding(fewest_members=4))
    assert found["enough members"].startswith("refuted; {North, East, West} has 3 members")


def test_a_coalition_that_is_too_small_is_found():
    pair = [["North", "South"], ["East"], ["West"]]
    found = failed(demanding(coalitions=pair))
    assert found["enough members"] == (
        "refuted; {North, South} has 2 members; a coalition of two or more needs at least 3 here"
    )
    claims = demanding_claims()
    for claim in claims:
        if claim["claim"] in ("welfare", "upper bound"):
            claim["value"] = 10.0
    assert set(failed(demanding(coalitions=pair, claims=claims))) == {"enough members"}


def test_a_bound_below_the_best_large_enough_partition_is_found():
    claims = demanding_claims()
    claims[-1]["value"] = 2.0
    assert "a valid partition reaches 3" in failed(demanding(claims=claims))["upper bound"]


@pytest.mark.parametrize("value", [0, -3, "3", 3.0, True])
def test_what_is_no_demand_is_refused(value):
    with pytest.raises(CertificateError, match="fewest_members"):
        demanding(fewest_members=value)


def test_a_certificate_of_an_earlier_version_still_holds():
    path = Path(__file__).parent / "earlier_certificate.json"
    earlier = Certificate.load(path)
    assert earlier.check(fewest_members=1).ok
    assert earlier.to_json() == path.read_text()
    again = form(earlier.benefit, earlier.competition, objective="participation").certificate
    assert {**json.loads(again.to_json()), "software": 0, "sha256": 0} == {
        **json.loads(path.read_text()),
        "software": 0,
        "sha256": 0,
    }

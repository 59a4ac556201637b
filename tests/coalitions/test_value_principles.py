"""The checker under coalition values, certificates and forgeries."""

import itertools
import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedegoists.coalitions import Certificate, form, verify
from fedegoists.coalitions.proof.value_exhaustion import best_by_trying_all
from fedegoists.coalitions.value_principles import Judge
from fedegoists.commitments import Commitment
from fedegoists.errors import CertificateError, FedEgoistsError, GraphError
from fedegoists.graphs import CompetitionGraph, CurveValues
from tests.coalitions.value_instances import (
    best_total,
    plain_total,
    plainly_admissible,
    random_competition,
    random_values,
)

NAMES = ["North", "South", "East"]


def three(**more):
    """North and South help each other; East is helped by both and helps nobody."""
    rates = [[0, 0.5, 0.5], [0.5, 0, 0.5], [0, 0, 0]]
    return CurveValues([100, 100, 100], [0.02, 0.02, 0.02], rates, NAMES, unit="AUC", **more)


def nobody():
    return CompetitionGraph([], NAMES)


def test_a_free_rider_is_named_with_what_it_gives():
    checked = verify(three(), nobody(), [NAMES])
    assert [str(rider) for rider in checked.free_riders] == [
        "East gives nothing in its coalition {North, South, East}: the others' total gain changes "
        "by +0 AUC with it"
    ]
    assert not checked.ok


def test_a_member_that_gains_nothing_is_named():
    checked = verify(three(), nobody(), [("North", "East"), ("South",)])
    assert [(rider.participant, rider.missing) for rider in checked.free_riders] == [
        ("North", "incoming"),
        ("East", "outgoing"),
    ]
    assert "North gains nothing in its coalition {North, East}: +0 AUC" in str(checked)


def test_an_unlikely_gain_is_named_with_its_probability():
    values = three(slope_errors=0.02)  # the probability of gaining is that of one standard error
    pair = [("North", "South"), ("East",)]
    assert verify(values, nobody(), pair, confidence=0.8).ok
    checked = verify(values, nobody(), pair, confidence=0.9)
    assert len(checked.unlikely) == 2
    assert "North gains with probability 0.841 only" in str(checked)
    assert "at least 0.9 is demanded" in str(checked)


def test_competitors_and_mergers_are_named():
    rivals = CompetitionGraph([("North", "South")], NAMES)
    checked = verify(three(), rivals, [("North", "South"), ("East",)])
    assert str(checked.conflicts[0]) == "North reaches its competitor South: North → South"
    apart = verify(three(), nobody(), [("North",), ("South",), ("East",)])
    assert apart.stable is False
    assert apart.mergers[0].coalitions == (("North",), ("South",))
    assert apart.mergers[0].gain == pytest.approx(form(three(), nobody()).welfare)


def test_a_budget_of_nothing_proves_nothing():
    assert verify(three(), nobody(), [("North",), ("South",), ("East",)], budget=0).stable is None


@pytest.mark.parametrize("seed", range(40))
def test_a_merger_is_found_if_and_only_if_there_is_one(seed):
    n, confidence = 6, (0.5, 0.8)[seed % 2]
    values, competition = random_values(n, seed), random_competition(n, seed)
    groups = [(0, 1), (2,), (3,), (4,), (5,)] if seed % 3 else [(k,) for k in range(n)]
    if not plainly_admissible(values, competition, groups[0], confidence):
        groups = [(k,) for k in range(n)]
    rises = [
        plain_total(values, union) - sum(plain_total(values, group) for group in chosen)
        for size in range(2, len(groups) + 1)
        for chosen in itertools.combinations(groups, size)
        if plainly_admissible(
            values, competition, union := tuple(sorted(itertools.chain(*chosen))), confidence
        )
    ]
    named = [[f"v{k}" for k in group] for group in groups]
    checked = verify(values, competition, named, confidence=confidence, budget=None)
    assert (checked.stable is False) == any(rise > 1e-9 for rise in rises)
    for merger in checked.mergers:
        assert min(abs(merger.gain - rise) for rise in rises) < 1e-9


@pytest.mark.parametrize("seed", range(15))
def test_trying_all_partitions_finds_the_best(seed):
    values, competition = random_values(6, seed), random_competition(6, seed)
    best, coalitions = best_by_trying_all(Judge(values, competition, 0.7))
    assert best == pytest.approx(best_total(values, competition, 0.7))
    assert not verify(values, competition, coalitions, confidence=0.7).violations


def test_other_participants_are_an_error():
    with pytest.raises(GraphError, match="over different participants"):
        verify(three(), CompetitionGraph([], ["North"]), [NAMES])


# Certificates ----------------------------------------------------------------------------------


def certificate(seed=2, n=6, confidence=0.7):
    values, competition = random_values(n, seed), random_competition(n, seed)
    return form(values, competition, confidence=confidence).certificate


TEXT = certificate(n=4).to_json().encode()


@pytest.mark.parametrize("seed", range(8))
def test_an_honest_certificate_reads_back_and_holds(seed, tmp_path):
    made = certificate(seed, n=5 + seed)
    made.save(tmp_path / "certificate.json")
    read = Certificate.load(tmp_path / "certificate.json")
    assert (read.values, read.confidence, read.claims) == (made.values, 0.7, made.claims)
    check = read.check()
    assert check.ok, check
    assert "participation constraint" in {claim.claim for claim in check.claims}
    formation = read.formation()
    assert formation.coalitions == made.coalitions
    assert formation.welfare == pytest.approx(dict(claims(read))["welfare"])


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_byte_is_found(data):
    raw = bytearray(TEXT)
    at = data.draw(st.integers(0, len(raw) - 1))
    byte = data.draw(st.integers(0, 255))
    assume(raw[at] != byte)
    raw[at] = byte
    try:
        read = Certificate.from_json(raw.decode())
    except (FedEgoistsError, UnicodeDecodeError):
        return
    assert read.changed
    assert not read.check().ok


def claims(certificate):
    return [(claim.claim, claim.value) for claim in certificate.claims]


def forged(change, made=None) -> Certificate:
    """A certificate with another content, whose digest was made to fit again."""
    made = made or certificate()
    document = json.loads(made.to_json())
    change(document)
    text = json.dumps(document)
    read = Certificate.from_json(text)
    again = json.loads(read.to_json())
    again.update(document)
    # The digest over the forged file; only re-deriving the claims can show the forgery.
    from fedegoists.coalitions.certificate import _digest

    blank = json.dumps({**again, "sha256": "0" * 64}, ensure_ascii=False, indent=1) + "\n"
    return Certificate.from_json(
        blank.replace(f'"sha256": "{"0" * 64}"\n}}', f'"sha256": "{_digest(blank)}"\n}}')
    )


def failed(certificate) -> set[str]:
    assert not certificate.changed
    return {claim.claim for claim in certificate.check().claims if not claim.ok}


def claim_of(document, name):
    return next(claim for claim in document["claims"] if claim["claim"] == name)


def test_a_forged_welfare_fails():
    def change(document):
        claim_of(document, "welfare")["value"] *= 1.01

    assert "welfare" in failed(forged(change))


def test_a_forged_upper_bound_fails():
    def change(document):
        claim_of(document, "upper bound")["value"] *= 0.9

    assert "upper bound" in failed(forged(change))


def test_worse_coalitions_sold_as_optimal_fail():
    def change(document):
        document["coalitions"] = [[name] for name in document["values"]["participants"]]
        claim_of(document, "welfare")["value"] = 0.0
        claim_of(document, "upper bound")["value"] = 0.0

    assert {"merge-stable", "upper bound"} <= failed(forged(change))


def test_a_higher_confidence_than_reached_fails():
    values = three(slope_errors=0.02)
    made = form(values, nobody(), confidence=0.7).certificate

    def change(document):
        document["confidence"] = 0.95

    assert "participation constraint" in failed(forged(change, made))


def test_two_competitors_put_together_fail():
    rivals = CompetitionGraph([("North", "South")], NAMES)
    made = form(three(), rivals).certificate

    def change(document):
        document["coalitions"] = [["North", "South"], ["East"]]

    assert "no conflicts" in failed(forged(change, made))


def test_other_values_do_not_fit_their_digest():
    def change(document):
        document["values"]["slopes"][0] += 0.01

    read = forged(change)
    assert read.changed == ("the SHA-256 of the coalition values is not the one stated",)
    assert not read.check().ok


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("confidence"),
        lambda d: d.update(confidence=0.3),
        lambda d: d.update(method="stable"),
        lambda d: d.update(objective="fair"),
        lambda d: d["values"].update(kind="trees"),
        lambda d: d["values"].update(slopes=[-1]),
        lambda d: d.pop("values"),
        lambda d: d["claims"].pop(2),
    ],
)
def test_a_damaged_certificate_is_an_error(change):
    document = json.loads(certificate().to_json())
    change(document)
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(document))


def test_a_commitment_refuses_coalition_values():
    with pytest.raises(CertificateError, match="cannot be opened member by member"):
        Commitment("example", certificate(), bytes(32))

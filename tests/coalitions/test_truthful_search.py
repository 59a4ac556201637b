"""Method truthful: no misreport of received benefit pays, alone or in a group."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form, verify
from fedegoists.coalitions import truthful_search
from fedegoists.coalitions.proof.check import check as stand_alone_check
from fedegoists.coalitions.truthful_search import independent_groups
from fedegoists.errors import CertificateError, SettingsError
from tests.instances import graphs

NAMES = ["i", "j", "k", "l"]
NOBODY = CompetitionGraph([], NAMES)


def chain(*more):
    """k and l benefit each other, k benefits i, i benefits j, and whatever is added."""
    edges = [("k", "l", 1), ("l", "k", 1), ("k", "i", 5), ("i", "j", 1), *more]
    return BenefitGraph.from_edges(edges, NAMES)


def received(benefit, coalitions, name):
    """What a participant truly receives in its coalition."""
    home = next(group for group in coalitions if name in group)
    return sum(weight for a, b, weight in benefit.edges() if b == name and a in home)


def with_columns(benefit, columns):
    """The graph in which some participants report that these benefit them, and no others."""
    weights = benefit.weights.copy()
    for i, sources in columns.items():
        weights[:, i] = 0.0
        weights[list(sources), i] = 3.0
    return BenefitGraph(weights, benefit.participants)


def columns_of(n, i):
    others = [k for k in range(n) if k != i]
    return itertools.chain.from_iterable(itertools.combinations(others, size) for size in range(n))


@given(graphs(min_n=2, max_n=5))
@settings(max_examples=40, deadline=None)
def test_no_misreport_of_received_benefit_pays(consortium):
    benefit, competition = consortium
    truth = form(benefit, competition, "truthful")
    for i, name in enumerate(benefit.participants):
        for sources in columns_of(benefit.n, i):
            lied = form(with_columns(benefit, {i: sources}), competition, "truthful")
            gained = received(benefit, lied.coalitions, name)
            assert gained <= received(benefit, truth.coalitions, name) + 1e-12


@given(graphs(min_n=3, max_n=4))
@settings(max_examples=25, deadline=None)
def test_no_two_liars_both_gain(consortium):
    benefit, competition = consortium
    names = benefit.participants
    truth = form(benefit, competition, "truthful").coalitions
    for a, b in itertools.combinations(range(benefit.n), 2):
        reports = itertools.product(columns_of(benefit.n, a), columns_of(benefit.n, b))
        for one, other in reports:
            lied = with_columns(benefit, {a: one, b: other})
            found = form(lied, competition, "truthful").coalitions
            assert not all(
                received(benefit, found, names[k]) > received(benefit, truth, names[k]) + 1e-12
                for k in (a, b)
            )


def test_one_liar_can_help_another_at_no_cost():
    # j has no reason to report a benefit from i that it does not have; but it loses nothing.
    benefit = BenefitGraph.from_edges([("k", "i", 5), ("j", "k", 1)], NAMES)
    assert received(benefit, form(benefit, NOBODY, "truthful").coalitions, "i") == 0
    helped = BenefitGraph.from_edges([("k", "i", 5), ("j", "k", 1), ("i", "j", 1)], NAMES)
    found = form(helped, NOBODY, "truthful").coalitions
    assert received(benefit, found, "i") == 5
    assert received(benefit, found, "j") == 0


@given(graphs(max_n=7))
@settings(max_examples=60, deadline=None)
def test_both_principles_hold(consortium):
    formation = form(*consortium, "truthful")
    checked = verify(*consortium, formation.coalitions)
    assert not checked.violations
    assert formation.stable is checked.stable


@given(graphs(max_n=7), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_certificates_hold_whatever_the_instance(consortium, seed):
    certificate = form(*consortium, "truthful", seed=seed).certificate
    assert certificate.check().ok
    assert certificate.check().claims == Certificate.from_json(certificate.to_json()).check().claims


@given(graphs(max_n=6))
@settings(max_examples=40, deadline=None)
def test_groups_have_as_many_pairs_as_possible(consortium):
    rivals = consortium[1].matrix

    def pairs(partition):
        return sum(len(group) * (len(group) - 1) for group in partition)

    groups, notes = independent_groups(consortium[1])
    free = [
        partition
        for partition in all_partitions(list(range(len(rivals))))
        if not any(rivals[np.ix_(group, group)].any() for group in partition)
    ]
    assert sorted(map(sorted, groups)) in [sorted(map(sorted, one)) for one in free]
    assert pairs(groups) == max(map(pairs, free))
    assert notes == ()


def all_partitions(items):
    if not items:
        yield []
        return
    first, *rest = items
    for partition in all_partitions(rest):
        yield [[first], *partition]
        for k, group in enumerate(partition):
            yield [*partition[:k], [first, *group], *partition[k + 1 :]]


@pytest.mark.parametrize("method", ["best", "stable", "published"])
def test_a_merge_stable_method_rewards_an_invented_benefit(method):
    assert received(chain(), form(chain(), NOBODY, method).coalitions, "i") == 0
    lied = form(chain(("j", "i", 0.1)), NOBODY, method)
    assert lied.coalitions == (("i", "j", "k", "l"),)
    assert received(chain(), lied.coalitions, "i") == 5


def test_truthful_leaves_the_merge_that_would_reward_it():
    lied = form(chain(("j", "i", 0.1)), NOBODY, "truthful")
    assert lied.coalitions == (("i", "j"), ("k", "l"))
    assert lied.stable is False
    assert received(chain(), lied.coalitions, "i") == 0


def test_the_only_valid_partition_of_the_chain_leaves_i_alone():
    # The step of the impossibility proof: whatever the rule, a true report of i brings nothing.
    valid = [
        partition
        for partition in all_partitions(NAMES)
        if not verify(chain(), NOBODY, partition).violations
    ]
    assert all(["i"] in partition for partition in valid)


def test_a_seed_or_a_time_limit_changes_nothing():
    benefit, competition = chain(("j", "i", 1)), CompetitionGraph([("i", "l")], NAMES)
    plain = form(benefit, competition, "truthful")
    assert form(benefit, competition, "truthful", seed=7, time_limit=0.1) == plain
    assert plain.seed == 0


def test_a_demanded_number_of_members_is_refused():
    with pytest.raises(SettingsError, match="false reports"):
        form(chain(), NOBODY, "truthful", fewest_members=3)


def forged(certificate, coalitions):
    """A certificate for other coalitions, with its sums and seal put right."""
    benefit, competition = certificate.benefit, certificate.competition
    other = form(benefit, competition, "best")
    assert other.coalitions == coalitions
    text = other.certificate.to_json()
    claim = '{\n   "claim": "strategy-proof",\n   "status": "proven"\n  },\n  '
    text = text.replace('"method": "best"', '"method": "truthful"')
    return text.replace('{\n   "claim": "welfare"', claim + '{\n   "claim": "welfare"')


def test_other_coalitions_are_not_strategy_proof():
    certificate = form(chain(("j", "i", 0.1)), NOBODY, "truthful").certificate
    text = forged(certificate, (("i", "j", "k", "l"),))
    found = {c.claim: c for c in Certificate.from_json(text).check().claims}
    assert found["no free riders"].ok
    assert not found["strategy-proof"].ok
    assert found["strategy-proof"].found.startswith("refuted")


def test_a_certificate_without_the_claim_is_none():
    text = form(chain(), NOBODY, "best").certificate.to_json()
    with pytest.raises(CertificateError, match="claim is missing"):
        Certificate.from_json(text.replace('"method": "best"', '"method": "truthful"'))


def test_a_false_claim_of_stability_is_found():
    document = json.loads(form(chain(("j", "i", 0.1)), NOBODY, "truthful").certificate.to_json())
    claim = next(one for one in document["claims"] if one["claim"] == "merge-stable")
    assert (claim.pop("witnesses"), claim["status"]) != ([], "proven")
    claim["status"] = "proven"
    lied = json.dumps(document, ensure_ascii=False, indent=1)
    found = {c.claim: c for c in Certificate.from_json(lied).check().claims}
    assert not found["merge-stable"].ok


def test_the_stand_alone_program_says_what_it_leaves_open():
    text = form(chain(("j", "i", 0.1)), NOBODY, "truthful").certificate.to_json()
    fine, checked, lines = stand_alone_check(text)
    assert (fine, checked) == (True, False)
    assert any("strategy-proof: not checked" in one for one in lines)
    assert any("merge-stable: not claimed" in one for one in lines)


def test_more_participants_than_memory_allows_are_refused(monkeypatch):
    certificate = form(chain(), NOBODY, "truthful").certificate
    assert certificate.check().ok
    independent_groups.cache_clear()
    monkeypatch.setattr(truthful_search, "MOST_PARTICIPANTS", 3)
    with pytest.raises(SettingsError, match="up to 3 participants into groups, not 4"):
        form(chain(), NOBODY, "truthful")
    (claim,) = (one for one in certificate.check().claims if one.claim == "strategy-proof")
    assert not claim.ok
    assert claim.found.startswith("not derived: method 'truthful' divides up to 3")

"""Decisions under uncertain benefits: zero doubt, more doubt, optimality, certificates."""

import hashlib
import json
import re
from itertools import combinations, pairwise

import numpy as np
import pytest

from fedegoists import (
    BenefitGraph,
    Certificate,
    CompetitionGraph,
    CurveValues,
    UncertainBenefits,
    form,
    verify,
    what_if,
)
from fedegoists.coalitions.coalition_files import coalitions_csv
from fedegoists.coalitions.doubt_report import standing_benefit, without_riders
from fedegoists.coalitions.proof.value_exhaustion import best_by_trying_all
from fedegoists.coalitions.value_principles import Judge
from fedegoists.coalitions.worst_decile import scenario_welfare, worst_mean
from fedegoists.errors import CertificateError, SettingsError


def consortium(seed, n=6, error=0.3, density=0.5, competition=0.15):
    random = np.random.default_rng(seed)
    real = random.random((n, n)) < density
    size = random.uniform(0.1, 1, (n, n))
    errors = error * size
    weights = np.maximum(real * size + errors * random.standard_normal((n, n)), 0)
    for matrix in (weights, errors):
        np.fill_diagonal(matrix, 0)
    rivals = np.triu(random.random((n, n)) < competition, 1)
    doubt = UncertainBenefits(weights, errors)
    return doubt, CompetitionGraph.from_numpy(rivals | rivals.T, doubt.participants)


def partitions(items):
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            left = [one for one in rest if one not in others]
            for more in partitions(left):
                yield [[first, *others], *more]


def test_zero_doubt_gives_todays_decision_byte_for_byte():
    for seed in range(300):
        random = np.random.default_rng(seed)
        n = int(random.integers(1, 9))
        weights = np.where(random.random((n, n)) < random.random(), random.random((n, n)), 0)
        np.fill_diagonal(weights, 0)
        rivals = np.triu(random.random((n, n)) < 0.3 * random.random(), 1)
        plain = BenefitGraph(weights)
        competition = CompetitionGraph.from_numpy(rivals | rivals.T)
        sure = UncertainBenefits(weights, np.zeros((n, n)))
        for risk in ("expected", "worst-decile", "ignore")[: 1 if seed % 10 else 3]:
            mine, theirs = form(sure, competition, risk=risk), form(plain, competition)
            assert coalitions_csv(mine) == coalitions_csv(theirs)
            if seed % 10 == 0:
                assert mine.certificate.to_json() == theirs.certificate.to_json()


@pytest.mark.parametrize("seed", range(25))
def test_more_doubt_never_raises_the_promised_gain(seed):
    doubt, competition = consortium(seed)
    promised = form(doubt, competition).welfare
    for factor in (1.1, 1.5, 3.0):
        more = UncertainBenefits(doubt.weights, factor * doubt.errors)
        later = form(more, competition).welfare
        assert later <= promised * (1 + 1e-9)
        promised = later
    demanding = [
        form(doubt, competition, confidence=one).welfare for one in (0.5, 0.7, 0.8, 0.9, 0.99)
    ]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(demanding))


@pytest.mark.parametrize("seed", range(15))
def test_the_decision_is_the_best_by_trying_all(seed):
    doubt, competition = consortium(seed)
    for confidence in (0.6, 0.9):
        formation = form(doubt, competition, confidence=confidence)
        best, _ = best_by_trying_all(Judge(doubt, competition, confidence))
        assert formation.welfare == pytest.approx(best)
        assert formation.optimal
        assert verify(doubt, competition, formation.coalitions, confidence=confidence).ok
        for one in formation.doubt.coalitions:
            assert one.safety >= confidence
            assert min(*one.receives.values(), *one.gives.values()) >= confidence


@pytest.mark.parametrize("seed", range(6))
def test_the_worst_tenth_is_the_best_by_trying_all(seed):
    doubt, competition = consortium(seed, n=5)
    formation = form(doubt, competition, risk="worst-decile", scenarios=50, seed=3, confidence=0.7)
    drawn = doubt.scenarios(50, seed=3)
    judge = Judge(doubt, competition, 0.7)
    names, best = doubt.participants, 0.0
    for groups in partitions(list(range(5))):
        named = [tuple(names[k] for k in group) for group in groups]
        rivals = any(competition.competes(a, b) for g in named for a, b in combinations(g, 2))
        if not rivals and all(judge.admits(group) for group in named):
            best = max(best, worst_mean(scenario_welfare(drawn, groups)))
    assert formation.doubt.worst_tenth == pytest.approx(best)
    assert formation.stable is True
    if best > 0:
        assert "the highest possible over these scenarios" in formation.notes[-1]


def test_the_worst_tenth_of_more_participants_has_a_valid_bound():
    doubt, competition = consortium(2, n=13, density=0.3)
    formation = form(doubt, competition, risk="worst-decile", scenarios=40)
    expected = form(doubt, competition, scenarios=40)
    assert formation.doubt.worst_tenth >= expected.doubt.worst_tenth * (1 - 1e-9)
    found = re.search(r"at most ([0-9.]+) is possible", formation.notes[-1])
    if found:
        assert float(found[1]) >= formation.doubt.worst_tenth * (1 - 1e-5)
    assert formation.certificate.check().ok


@pytest.mark.slow
def test_more_participants_than_can_be_enumerated():
    doubt, competition = consortium(4, n=24, density=0.2, competition=0.4)
    formation = form(doubt, competition, scenarios=10)
    assert formation.welfare <= formation.upper_bound
    assert (
        verify(doubt, competition, formation.coalitions, confidence=0.8, budget=0).violations == ()
    )
    assert all(one.safety >= 0.8 for one in formation.doubt.coalitions)


@pytest.mark.parametrize("seed", range(8))
def test_regret_against_trying_all_in_every_scenario(seed):
    doubt, competition = consortium(seed, n=5)
    report = form(doubt, competition, scenarios=30, seed=1).doubt
    names = doubt.participants
    own = [[names.index(name) for name in group] for group in _groups(report, names)]
    regret = 0.0
    for one in doubt.scenarios(30, seed=1):
        best = 0.0
        for groups in partitions(list(range(5))):
            named = [[names[k] for k in group] for group in groups]
            if not any(competition.competes(a, b) for g in named for a, b in combinations(g, 2)):
                valid = without_riders(one, groups)
                best = max(best, float(scenario_welfare(one[None], valid)[0]))
        regret += best - float(scenario_welfare(one[None], without_riders(one, own))[0])
    assert report.regret == pytest.approx(regret / 30)
    assert report.proven == 30


def _groups(report, names):
    together = [one.members for one in report.coalitions]
    alone = [(name,) for name in names if not any(name in group for group in together)]
    return [*together, *alone]


@pytest.mark.parametrize("seed", range(8))
def test_the_best_measurement_against_deciding_again(seed):
    doubt, competition = consortium(seed, n=6)
    formation = form(doubt, competition, scenarios=10)
    report, names = formation.doubt, doubt.participants

    def standing(known):
        decided = form(known, competition, confidence=0.8)
        place = [[names.index(name) for name in group] for group in decided.coalitions]
        return standing_benefit(known, place)

    base, worth = standing(doubt), {}
    for j, i in np.argwhere((doubt.probabilities > 0) & (doubt.probabilities < 1)).tolist():
        p = doubt.probabilities[j, i]
        known = [doubt.measured(j, i, real=result) for result in (True, False)]
        worth[names[j], names[i]] = p * standing(known[0]) + (1 - p) * standing(known[1]) - base
    found = report.measurement
    assert report.examined == report.uncertain
    if found is None:
        assert max(worth.values(), default=0) <= 1e-6
    else:
        assert found.gain == pytest.approx(max(worth.values()), rel=1e-6)


# Certificates ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate_text():
    doubt, competition = consortium(11, n=6)
    formation = form(doubt, competition, scenarios=40)
    assert formation.doubt.coalitions
    assert formation.doubt.measurement is not None
    return formation.certificate.to_json()


def sealed(document):
    """Return a certificate with a digest that fits, as a forger would write it."""
    document["sha256"] = "0" * 64
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    return text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest())


def failed(document):
    check = Certificate.from_json(sealed(document)).check()
    return {claim.claim for claim in check.claims if not claim.ok}


def test_verify_derives_everything_again(certificate_text):
    certificate = Certificate.from_json(certificate_text)
    assert certificate.check().ok
    assert failed(json.loads(certificate_text)) == set()
    assert certificate.to_json() == certificate_text
    again = certificate.formation()
    assert again.doubt.to_dict() == again.doubt.to_dict()
    assert json.loads(json.dumps(again.doubt.to_dict())) == json.loads(certificate_text)["doubt"]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_proven_is_proven_after_a_certificate_was_read(seed):
    formation = form(*consortium(seed, n=6), scenarios=10)
    again = Certificate.from_json(formation.certificate.to_json()).formation()
    assert formation.optimal
    assert again.optimal
    assert "not both proven" not in str(what_if(again, leaves=["v5"]))


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (lambda doubt: doubt["coalitions"][0].update(safety=0.999999), "probabilities"),
        (lambda doubt: doubt["coalitions"][0].update(expected=9.0), "probabilities"),
        (lambda doubt: doubt.update(null_share=0.01), "probabilities"),
        (lambda doubt: doubt.update(standing=doubt["standing"] * 1.01), "probabilities"),
        (lambda doubt: doubt["coalitions"].clear(), "probabilities"),
        (lambda doubt: doubt.update(regret=doubt["regret"] / 2 - 0.01), "regret"),
        (lambda doubt: doubt.update(worst_tenth=doubt["worst_tenth"] * 1.01), "regret"),
        (lambda doubt: doubt["scenario_best"].pop(), "regret"),
        (lambda doubt: doubt["scenario_best"].__setitem__(0, 999), "regret"),
        (lambda doubt: doubt["measurement"].update(gain=5.0), "best measurement"),
        (lambda doubt: doubt["measurement"].update(probability=0.5), "best measurement"),
    ],
)
def test_forged_statements_about_doubt_are_rejected(certificate_text, change, claim):
    document = json.loads(certificate_text)
    change(document["doubt"])
    assert failed(document) == {claim}


def test_scenarios_without_their_best_partition_are_rejected(certificate_text):
    document = json.loads(certificate_text)
    names = document["values"]["participants"]
    document["doubt"]["partitions"] = [[[name] for name in names]]
    document["doubt"]["scenario_best"] = [0] * 40
    document["doubt"]["regret"] = 0.0
    assert failed(document) == {"regret"}


def test_an_assumed_null_share_is_rejected(certificate_text):
    document = json.loads(certificate_text)
    values = UncertainBenefits.from_dict(
        {k: v for k, v in document["values"].items() if k != "sha256"}
    )
    assumed = UncertainBenefits(
        values.weights, values.errors, values.participants, null_share=0.001
    )
    competition = CompetitionGraph.from_dict(
        {k: v for k, v in document["competition"].items() if k != "sha256"}
    )
    check = form(assumed, competition, scenarios=20).certificate.check()
    assert {claim.claim for claim in check.claims if not claim.ok} == {"probabilities"}


def test_doubt_and_uncertain_benefits_belong_together(certificate_text):
    document = json.loads(certificate_text)
    del document["doubt"]
    with pytest.raises(CertificateError, match="belong together"):
        Certificate.from_json(sealed(document))
    document = json.loads(certificate_text)
    document["doubt"]["seed"] = 5
    with pytest.raises(CertificateError, match="two different seeds"):
        Certificate.from_json(sealed(document))


def test_a_risky_coalition_is_refused_with_a_witness():
    doubt, competition = consortium(11, n=6)
    formation = form(doubt, competition, risk="ignore")
    checked = verify(doubt, competition, formation.coalitions, confidence=0.999)
    assert any("nobody rides free in the coalition" in str(one) for one in checked.violations)


# Options -----------------------------------------------------------------------------------------


def test_ignored_errors_are_the_plain_graph():
    doubt, competition = consortium(3)
    ignoring = form(doubt, competition, "stable", risk="ignore")
    assert ignoring.coalitions == form(doubt.graph, competition, "stable").coalitions
    assert ignoring.doubt is None


def test_options_that_do_not_fit_are_refused():
    doubt, competition = consortium(3)
    with pytest.raises(SettingsError, match="no standard errors"):
        form(doubt.graph, competition, risk="expected")
    with pytest.raises(SettingsError, match="unknown risk"):
        form(doubt, competition, risk="brave")
    with pytest.raises(SettingsError, match="use method 'best'"):
        form(doubt, competition, "stable")
    with pytest.raises(SettingsError, match="expected 10 to"):
        form(doubt, competition, scenarios=3)
    with pytest.raises(SettingsError, match=r"0\.5 to below 1"):
        form(UncertainBenefits(doubt.weights, 0 * doubt.errors), competition, confidence=2)
    curves = CurveValues([10, 10], [0.1, 0.1], [[0, 1], [1, 0]])
    with pytest.raises(SettingsError, match="no standard errors"):
        form(curves, CompetitionGraph([], curves.participants), risk="worst-decile")


def test_a_what_if_keeps_the_risk_and_learns_the_null_share_again():
    doubt, competition = consortium(11, n=6)
    formation = form(doubt, competition, scenarios=20)
    after = what_if(formation, leaves=["v5"]).after
    assert after.risk == "expected"
    assert after.scenarios == 20
    assert after.certificate.check().ok


def test_the_report_speaks_to_a_manager():
    doubt, competition = consortium(11, n=6)
    lines = form(doubt, competition, scenarios=20).doubt.lines
    assert "the probability that nobody rides free is" in lines[0]
    for seed, error in ((11, 0.3), (11, 0.02)):
        for one in form(*consortium(seed, error=error), scenarios=10).doubt.coalitions:
            assert (" or more." in str(one)) is (one.safety < 0.995)
            assert ("is over 99 %." in str(one)) is (0.995 <= one.safety < 1)
    assert "Knowing the truth would bring" in lines[-2]
    assert lines[-1].startswith("Measure first whether v")

"""A run decides by the errors of its estimates, unless its settings say otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from fedegoists import UncertainBenefits
from fedegoists.coalitions import form
from fedegoists.consortium.consortium_run import LearnedBenefit
from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.pipeline import Consortium
from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph
from tests.consortium.reports import Balance, estimated, written


def consortium(**sections):
    return Consortium(ConsortiumSettings(data={"source": "synthetic-weak"}, **sections))


def doubtful(names):
    """Two that are sure of each other, and a pair whose evidence is just above the rule."""
    n = len(names)
    gains, errors = np.zeros((n, n)), np.ones((n, n))
    for j, i, gain in ((0, 1, 600.0), (1, 0, 600.0), (2, 3, 3.2), (3, 2, 3.2)):
        gains[j, i] = gain
    return estimated(names, gains, errors)


def test_the_error_of_a_weight_is_as_sure_as_its_evidence():
    estimate = doubtful(("a", "b", "c", "d"))
    doubt = estimate.uncertain()
    listed = doubt.probabilities > 0
    assert (listed == (estimate.graph().weights > 0)).all()
    assert (doubt.weights[listed] == estimate.weights[listed]).all()
    assert doubt.probabilities[0, 1] > 0.9 > 0.6 > doubt.probabilities[2, 3]


def test_runs_decide_by_errors():
    run = consortium()
    estimate = doubtful(run.data.participants)
    learned = LearnedBenefit(estimate.graph(), estimate)
    formation = run.form(learned)
    assert isinstance(formation.values, UncertainBenefits)
    assert formation.risk == "expected"
    assert formation.confidence == 0.8
    assert [len(group) for group in formation.coalitions].count(2) == 1
    ignoring = consortium(formation={"risk": "ignore"}).form(learned)
    assert ignoring.values is None
    assert [len(group) for group in ignoring.coalitions].count(2) == 2
    by_rule = consortium(benefit={"confidence": 0.9}).form(learned)
    assert by_rule.values is None
    surer = consortium(formation={"risk": "worst-decile", "confidence": 0.9}).form(learned)
    assert (surer.risk, surer.confidence) == ("worst-decile", 0.9)
    assert consortium(formation={"method": "stable"}).form(learned).values is None


def test_a_file_may_have_errors(tmp_path):
    names = consortium().data.participants
    doubt = doubtful(names).uncertain()
    doubt.to_csv(tmp_path / "benefit.csv")
    run = consortium(benefit={"estimator": "file", "file": str(tmp_path / "benefit.csv")})
    learned = run.learn_benefit()
    assert learned.uncertain == doubt
    assert run.form(learned).values == doubt


def test_a_risk_without_errors_is_refused():
    run = consortium(benefit={"estimator": "everybody"}, formation={"risk": "expected"})
    with pytest.raises(SettingsError, match="no standard errors"):
        run.form(run.learn_benefit())


def test_the_report_says_how_sure_the_decision_is(banks, tmp_path):
    names = banks.formation.participants
    estimate = doubtful(names)
    competition = CompetitionGraph([], names)
    formation = form(estimate.uncertain(), competition, scenarios=20)
    learned = LearnedBenefit(estimate.graph(), estimate)
    run = replace(banks, formation=formation, benefit=learned)
    page = Balance(written(run, tmp_path)["report.html"]).text
    assert "How sure this is" in page
    assert "the probability that nobody rides free is" in page
    assert "What a competitor that nobody named would reach" in page
    assert f"{names[0]} would be reached by what {names[1]} contributes" in page
    assert "expected total benefit" in page


def test_the_report_says_that_doubt_kept_participants_apart(banks, tmp_path):
    names = banks.formation.participants
    gains, errors = np.zeros((5, 5)), np.ones((5, 5))
    gains[2, 3] = gains[3, 2] = 3.2
    estimate = estimated(names, gains, errors)
    formation = form(estimate.uncertain(), CompetitionGraph([], names), scenarios=20)
    assert len(formation.coalitions) == 5
    run = replace(banks, formation=formation, benefit=LearnedBenefit(estimate.graph(), estimate))
    page = Balance(written(run, tmp_path)["report.html"]).text
    assert "The probability that nobody rides free would be too low" in page
    assert "--set formation.risk=ignore" in page

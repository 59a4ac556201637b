"""No lie about received benefit is obvious: in the best and worst case the truth is as good."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph, form
from tests.instances import graphs

METHODS = ["best", "stable", "published"]


def best_company(benefit, competition, i):
    """The independent participants that benefit i most together, of those that benefit it."""
    givers = np.flatnonzero((benefit.weights[:, i] > 0) & ~competition.matrix[i]).tolist()
    free = [
        set(group)
        for size in range(len(givers) + 1)
        for group in itertools.combinations(givers, size)
        if not competition.matrix[np.ix_(group, group)].any()
    ]
    return max(free, key=lambda group: benefit.weights[sorted(group), i].sum())


@pytest.mark.parametrize("method", METHODS)
@given(graphs(min_n=2, max_n=6))
@settings(max_examples=40, deadline=None)
def test_some_reports_of_others_bring_the_truthful_the_best_of_all(method, consortium):
    benefit, competition = consortium
    for i in range(benefit.n):
        company = sorted(best_company(benefit, competition, i))
        weights = np.zeros((benefit.n, benefit.n))
        for k in company:
            weights[[j for j in (*company, i) if j != k], k] = 100.0
        weights[:, i] = benefit.weights[:, i]
        reports = BenefitGraph(weights, benefit.participants)
        found = form(reports, competition, method).coalition_of(benefit.participants[i])
        assert set(found) == {benefit.participants[k] for k in (*company, i)}


@pytest.mark.parametrize("method", METHODS)
@given(graphs(min_n=1, max_n=6))
@settings(max_examples=20, deadline=None)
def test_others_can_leave_any_report_with_nothing(method, consortium):
    benefit, competition = consortium
    for i, name in enumerate(benefit.participants):
        weights = benefit.weights.copy()
        weights[i] = 0.0  # nobody reports a benefit from i, so nothing i reports can help
        reports = BenefitGraph(weights, benefit.participants)
        assert form(reports, competition, method).coalition_of(name) == (name,)

"""Why no coalition was formed."""

from dataclasses import replace

import numpy as np
import pytest

from fedegoists.coalitions import form
from fedegoists.consortium.consortium_run import LearnedBenefit
from fedegoists.consortium.consortium_settings import BenefitSection
from fedegoists.federation.seam import WithTimeout
from fedegoists.graphs import CompetitionGraph
from tests.consortium.reports import T_AT, Balance, estimated, written


@pytest.mark.parametrize("pairs", [(), (("Alder", "Birch"),)])
def test_why_nobody_trains_together(banks, tmp_path, pairs):
    names = banks.formation.participants
    gains, errors = np.zeros((5, 5)), np.ones((5, 5))
    # By Student's t with two degrees of freedom: 4 errors are sure to 97 %, 2 to 91 %, 1 to 79 %.
    gains[0, 1], gains[1, 0], gains[2, 3] = 2.0, 1.0, 4.0
    estimate = estimated(names, gains, errors)
    np.testing.assert_allclose(estimate.confidences()[[0, 1, 2], [1, 0, 3]], T_AT, atol=1e-3)
    assert estimate.confidences()[0, 2] == 0
    graph = estimate.graph(confidence=0.95)
    assert [edge[:2] for edge in graph.edges()] == [("Cedar", "Dogwood")]
    formation = form(graph, CompetitionGraph(pairs, names))
    learned = LearnedBenefit(graph, estimate)
    settings = banks.settings.model_copy(update={"benefit": BenefitSection(confidence=0.95)})
    run = replace(banks, formation=formation, benefit=learned, settings=settings)
    pages = written(run, tmp_path)
    page = Balance(pages["report.html"]).text
    assert "Of 20 possible benefits, 1 does." in page
    assert "Cedar Dogwood 4 97 % yes Alder Birch 2 91 % no" in page
    if pairs:
        assert (
            "No lower confidence that was tried would change that: even with 50 %, 3 benefits"
            in page
        )
        assert "less-strict" not in page
    else:
        assert (
            "With a confidence of 0.78, 3 benefits would count, and {Alder, Birch} would train"
            in page
        )
        less = "--set benefit.confidence=0.78 --name less-strict"
        assert f"fedegoists run config.toml {less}" in page
        silos = replace(run.repetitions, federation=WithTimeout(run.repetitions.federation, 1.0))
        deployed = written(replace(run, repetitions=silos), tmp_path / "deployed")
        command = f"fedegoists run consortium.toml --engine flare {less}"
        assert command in Balance(deployed["report.html"]).text
    # Which evidence there is would tell members about others.
    assert all("evidence" not in text for file, text in pages.items() if "members" in file)
    certain = replace(run, benefit=LearnedBenefit(graph))
    other = Balance(written(certain, tmp_path / "read")["report.html"]).text
    assert "Why no coalition was formed" not in other


def test_why_nobody_reaches_a_threshold(banks, tmp_path):
    names = banks.formation.participants
    gains = np.zeros((5, 5))
    gains[0, 1] = gains[1, 0] = 0.2
    estimate = estimated(names, gains, 0.01 * np.ones((5, 5)))
    graph = estimate.graph(0.5)
    settings = banks.settings.model_copy(update={"benefit": BenefitSection(threshold=0.5)})
    learned = LearnedBenefit(graph, estimate)
    formation = form(graph, CompetitionGraph((), names))
    run = replace(banks, formation=formation, benefit=learned, settings=settings)
    page = Balance(written(run, tmp_path)["report.html"]).text
    assert "No benefit between any two participants is large enough to count." in page
    assert "A benefit counts where its weight is above 0.5. Of 20 possible benefits, none" in page
    assert "--set benefit.threshold=0.19" in page


def test_failed_estimates_are_no_answer_and_said_at_the_top(banks, tmp_path):
    names = banks.formation.participants
    estimate = replace(
        estimated(names, np.zeros((5, 5)), np.ones((5, 5))),
        absent=("Elm",),
        failures=("Elm: failed 5 times, last not finite",),
    )
    graph = estimate.graph(confidence=0.95)
    settings = banks.settings.model_copy(update={"benefit": BenefitSection(confidence=0.95)})
    formation = form(graph, CompetitionGraph((), names))
    run = replace(banks, formation=formation, settings=settings)
    pages = written(replace(run, benefit=LearnedBenefit(graph, estimate)), tmp_path)
    page = Balance(pages["report.html"]).text
    assert "This is no answer: the estimates for Elm failed." in page
    assert "This is an answer" not in page
    assert page.index("Incomplete. A stage failed") < page.index("Coalitions")
    assert "Elm: its benefits could not be estimated" in page
    # Its own page says so, and no other one does.
    told = {name for name, text in pages.items() if "Incomplete:" in text}
    assert told == {"members/Elm.html"}
    whole = LearnedBenefit(graph, replace(estimate, absent=(), failures=()))
    page = Balance(written(replace(run, benefit=whole), tmp_path / "w")["report.html"]).text
    assert "This is an answer, not a failure" in page
    assert "Incomplete" not in page

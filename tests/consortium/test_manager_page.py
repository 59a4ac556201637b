"""The manager's page: everything is said."""

from dataclasses import replace

import numpy as np
import pytest

from fedegoists.benefit import ESTIMATOR_ENTRIES, BenefitEstimate
from fedegoists.benefit.silo_queries import Cost
from fedegoists.consortium import Consortium
from fedegoists.consortium.consortium_settings import BenefitSection
from fedegoists.consortium.exposure import MaskedSums
from fedegoists.consortium.report.setup_section import settings_text
from tests.consortium.reports import Balance, estimated, pages_of, with_graphs, written


def test_says_everything(banks):
    page = Balance(pages_of(banks)["report.html"])
    assert "2 of 5 participants train together, in 1 coalition." in page.text
    assert "Cedar, Dogwood and Elm train alone." in page.text
    assert "The total benefit is 0.75" in page.text
    for part in (
        "fedavg+ft", "AUC", "fedegoists verify certificate.json", "Alder and Cedar compete",
        "fedegoists run config.toml", "no free riders", "PyTorch", "MB sent",
    ):  # fmt: skip
        assert part in page.text
    for name in banks.formation.participants:
        assert page.text.count(name) > 5


def test_where_everybody_is_taken_to_benefit_everybody_only_competition_keeps_apart(banks):
    benefit = BenefitSection(estimator="everybody")
    settings = banks.settings.model_copy(update={"name": "wide", "benefit": benefit})
    run = Consortium(settings).run()
    assert run.benefit.estimate is None  # nobody was asked anything
    assert {x for _, _, x in run.benefit.graph.edges()} == {1.0}
    assert len(list(run.benefit.graph.edges())) == 5 * 4
    assert sorted(map(len, run.formation.coalitions)) == [2, 3]
    together = {name: group for group in run.formation.coalitions for name in group}
    for one, other in (("Alder", "Cedar"), ("Dogwood", "Elm")):
        assert together[one] != together[other]
    page = Balance(pages_of(run)["report.html"]).text
    assert "Every participant is assumed to benefit every other" in page
    assert "Read from a file" not in page


@pytest.mark.parametrize("estimator", ESTIMATOR_ENTRIES)
@pytest.mark.parametrize("pairs", [[], [("Alder", "Cedar")]])
def test_says_where_competitors_were_not_kept_apart(banks, tmp_path, estimator, pairs):
    runs = np.zeros((2, 1, 5, 5))
    names = banks.formation.participants
    estimate = BenefitEstimate(names, estimator, runs, runs, runs[0, 0])
    edges = [("Alder", "Birch", 1), ("Birch", "Alder", 1)]
    run = with_graphs(banks, edges, pairs, estimate)
    pages = written(run, tmp_path)
    warned = "competitors were not kept apart" in pages.pop("report.html")
    assert warned == (bool(pairs) and estimator in ("hypernetwork", "pairs"))
    assert not any("not kept apart" in page for page in pages.values())


def test_who_was_away_is_named_to_the_manager_alone(banks, tmp_path):
    pages = written(replace(banks, absent=("Fir",), undelivered=("Elm",)), tmp_path)
    report = pages.pop("report.html")
    assert "<li>data: <bdi>Fir</bdi>, did not answer and was left out</li>" in report
    assert "<li>report: <bdi>Elm</bdi>, its model was not delivered</li>" in report
    assert pages
    assert not any("Fir" in page or "not delivered" in page for page in pages.values())


def test_masked_sums_are_said_to_the_manager(banks, tmp_path):
    masked = (MaskedSums(("Alder", "Birch", "Cedar"), ("fedavg", "egomix")),)
    pages = written(replace(banks, masked=masked), tmp_path)
    report = Balance(pages.pop("report.html")).text
    assert (
        "sums of Alder, Birch and Cedar were masked in every round of fedavg and egomix" in report
    )
    assert not any("masked" in page for page in pages.values())
    assert "masked in every round" not in Balance(pages_of(banks)["report.html"]).text


def test_nobody_together(banks, tmp_path):
    page = Balance(written(with_graphs(banks, [], []), tmp_path)["report.html"]).text
    assert "No coalition was formed. No benefit between any two participants was found." in page
    assert "proven to be the highest possible" in page
    assert "No competitors were reported." in page


def test_learned_weights_are_shown_with_their_errors(banks, tmp_path):
    weights = banks.formation.benefit.weights + 0.03 * ~np.eye(5, dtype=bool)
    estimate = replace(
        estimated(banks.formation.participants, weights, weights / 10),
        cost=Cost(1, bytes_sent=10**6, bytes_received=10**6, sample_passes=1234),
        failures=("Elm: failed 2 times, last timeout",),
    )
    run = with_graphs(banks, list(banks.formation.benefit.edges()), [], estimate)
    pages = written(run, tmp_path)
    page = Balance(pages["report.html"]).text
    assert "Alder → Birch: 0.53 ± 0.053, used in a coalition" in page
    assert "Alder → Cedar: 0.03 ± 0.003, does not count" in page
    assert "1,234 sample passes and 2 MB" in page
    assert "benefit: Elm, failed 2 times, last timeout" in page
    assert "failed 2 times" in Balance(pages["members/Elm.html"]).text
    assert "failed 2 times" not in Balance(pages["members/Alder.html"]).text


def test_read_weights_have_no_errors(banks):
    page = Balance(pages_of(banks)["report.html"]).text
    assert "Read from a file" in page
    assert "Standard error" not in page


def test_settings_say_nothing_of_the_machine(banks):
    text = (banks.folder / "report.html").read_text(encoding="utf-8")
    assert str(banks.folder.parent.parent) not in text
    assert "../../data" in text
    deploy = banks.settings.deploy.model_copy(
        update={"schema_file": str(banks.folder.parent / "schema.toml")}
    )
    shown = settings_text(banks.settings.model_copy(update={"deploy": deploy}), banks.folder)
    assert 'schema_file = "../schema.toml"' in shown

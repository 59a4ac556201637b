"""Metrics, costs and gains in words."""

import math
import re
from dataclasses import replace

from fedegoists.consortium.evaluations import Evaluations
from fedegoists.federation import Failure, Participant
from fedegoists.federation.seam import WithTimeout
from fedegoists.training.gains import gains_over_local
from tests.consortium.reports import (
    Balance,
    circle,
    make,
    pages_of,
    written,
)


def test_costs_of_tuning_include_those_of_the_method_before(banks):
    page = Balance(pages_of(banks)["report.html"]).text
    # Local and FedAvg take 20 steps, and tuning as many.
    passes = {
        method: int(
            re.search(rf"{re.escape(method)} \S+ ± \S+ 2 ([\d,]+)", page)[1].replace(",", "")
        )
        for method in ("local", "fedavg+ft")
    }
    assert passes["fedavg+ft"] == 2 * passes["local"]


def test_without_local_there_are_no_gains(banks, tmp_path):
    training = banks.settings.training.model_copy(update={"methods": ("fedavg+ft",)})
    settings = banks.settings.model_copy(update={"training": training})
    pages = written(replace(banks, settings=settings, gains=[]), tmp_path)
    report = Balance(pages["report.html"]).text
    assert "against the method local, training alone, which was not among the methods" in report
    assert "training alone, which was not among the methods" in pages["members/Alder.html"]


def test_one_repetition_has_intervals_over_test_samples_only(odd):
    page = Balance(pages_of(odd)["report.html"]).text
    assert "There was one repetition, so they leave out the luck of training" in page
    assert "nan" not in page.casefold().split()
    assert "the line its 95 % interval;" in page


def test_a_deployed_run_says_where_its_intervals_are(odd, tmp_path):
    pages = written(replace(odd, evaluations=Evaluations()), tmp_path)
    for page in (Balance(text).text for name, text in pages.items() if "members" not in name):
        assert "the uncertainty of a gain is not known" in page
        assert "predictions for single samples never leave a silo" in page
        assert "uncertain" in page
        assert "95 % interval;" not in page


def test_a_gain_of_someone_alone_is_not_shown(banks):
    assert banks.alone == ("Cedar", "Dogwood", "Elm")
    assert {gain.participant for gain in banks.gains} == {"Alder", "Birch"}
    pages = pages_of(banks)
    report = Balance(pages["report.html"]).text
    assert "Cedar, Dogwood, Elm train alone with every method, so there is no gain" in report
    own = Balance(pages["members/Elm.html"]).text
    assert "There is no gain to show: Elm trains alone with every method." in own


def test_a_binary_model_is_shown_with_intervals_calibration_and_thresholds(banks):
    page = Balance(pages_of(banks)["members/Alder.html"])
    assert "Quality of its model" in page.text
    judged = banks.evaluations.models["Alder"].binary
    auc = judged.auc
    assert f"{auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})" in page.text
    assert f"{judged.auprc.value:.3f} ({judged.auprc.low:.3f}" in page.text
    assert "by validation data" in page.text
    assert "Calibration: groups of equal size" in page.text
    labels = [v for tag, name, v in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert sum(label.startswith("Calibration curve: predicted") for label in labels) == 1


def test_few_test_samples_are_no_result(tmp_path):
    names = ["North", "South"]
    run = make(tmp_path, names, circle(names), rows=24, seeds=1)
    assert run.evaluations.models["North"].few
    pages = {name: Balance(text) for name, text in pages_of(run).items()}
    for page in (pages["report.html"], pages["members/North.html"]):
        assert "† Too few test samples for a result: North (" in page.text
        assert ".† Too few" not in page.text  # a sentence of its own
        assert "fewer than 10 of each" in page.text
        assert "† too few test samples" in page.text
        assert "▲ better" not in page.text
        assert "▼ worse" not in page.text
        circles = [v for tag, name, v in page.attributes if (tag, name) == ("circle", "class")]
        assert circles  # every dot is an open one
        assert set(circles) == {"open"}
    assert "This is no result" in pages["members/North.html"].text
    assert "No calibration curve" in pages["members/North.html"].text


def test_words_for_gains(banks, tmp_path):
    first = banks.gains[0]
    gains = [
        replace(first, participant=name, gain=(low + high) / 2, low=low, high=high)
        for name, low, high in (
            ("Alder", 0.1, 0.3), ("Birch", -0.3, -0.1), ("Cedar", -0.1, 0.2), ("Elm", -9, 9.2),
        )
    ]  # fmt: skip
    pages = written(replace(banks, gains=gains, evaluations=Evaluations()), tmp_path)
    page = Balance(pages["report.html"]).text
    assert "1 better, 2 no clear difference, 1 worse" in page
    assert "+0.200 ▲ better" in page
    assert "−0.200 ▼ worse" in page
    assert "+0.050 ◆ no clear difference" in page
    assert "An arrow means that the interval is longer." in page
    assert "+0.100 to +0.300" in Balance(pages["members/Alder.html"]).text


def test_somebody_without_a_model(banks, tmp_path):
    outcomes = {}
    names = banks.repetitions.federation.participants
    for method, outcome in banks.outcomes.items():
        scores = [
            (-math.inf, -math.inf) if name.name == "Elm" else score
            for name, score in zip(names, outcome.best_score, strict=True)
        ]
        failures = [(k + 1, Failure(Participant("Elm", k), "timeout")) for k in range(2)]
        outcomes[method] = replace(outcome, best_score=scores, failures=failures)
    wanted = {method: outcomes[method] for method in banks.settings.training.methods}
    gains = gains_over_local(wanted, banks.repetitions.federation)
    kept = {name: one for name, one in banks.delivered.items() if name != "Elm"}
    run = replace(banks, outcomes=outcomes, gains=gains, delivered=kept)
    pages = written(run, tmp_path)
    page = Balance(pages["report.html"]).text
    assert "none: no model was validated" in page
    assert "local: Elm, timeout, 2 times" in page
    own = Balance(pages["members/Elm.html"]).text
    assert "Model: none" in own
    assert "Failed to answer in local: timeout, 2 times." in own


def test_lower_is_better_in_a_regression(tmp_path):
    names = ["North", "South"]
    run = make(tmp_path, names, circle(names), task="regression")
    page = Balance((run.folder / "report.html").read_text(encoding="utf-8")).text
    assert "mean squared error (lower is better)" in page
    assert "that is a lower error" in page
    assert "units of their own variance" not in page
    silos = replace(run.repetitions, federation=WithTimeout(run.repetitions.federation, 1.0))
    deployed = written(replace(run, repetitions=silos), tmp_path / "deployed")["report.html"]
    assert "mean squared error, at silos with noise in units of their own variance" in deployed
    assert "All 2 participants train together, in 1 coalition. None trains alone." in page


def test_a_comparison_in_which_all_train_alone_says_so(tmp_path, banks):
    names = ["North", "South"]
    run = make(tmp_path, names, [])
    said = "All participants trained alone with every method. Differences between the rows"
    assert said in Balance((run.folder / "report.html").read_text(encoding="utf-8")).text
    assert said not in Balance(pages_of(banks)["report.html"]).text

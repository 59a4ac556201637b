"""Metrics, costs and gains in words."""

import math
import re
from dataclasses import replace

from fedegoists.consortium.gains import gains_over_local
from fedegoists.federation import Failure, Participant
from tests.consortium.reports import (
    Balance,
    circle,
    make,
    pages_of,
    written,
)


def test_costs_of_tuning_include_those_of_the_method_before(banks):
    page = Balance(pages_of(banks)["report.html"]).text
    # Local and FedAvg take 20 steps, and tuning another 200.
    passes = {
        method: int(
            re.search(rf"{re.escape(method)} \S+ ± \S+ 2 ([\d,]+)", page)[1].replace(",", "")
        )
        for method in ("local", "fedavg+ft")
    }
    assert passes["fedavg+ft"] == 11 * passes["local"]


def test_without_local_there_are_no_gains(banks, tmp_path):
    training = banks.settings.training.model_copy(update={"methods": ("fedavg+ft",)})
    settings = banks.settings.model_copy(update={"training": training})
    pages = written(replace(banks, settings=settings, gains=[]), tmp_path)
    report = Balance(pages["report.html"]).text
    assert "against the method local, training alone, which was not among the methods" in report
    assert "training alone, which was not among the methods" in pages["members/Elm.html"]


def test_one_seed_has_no_interval(odd):
    page = Balance(pages_of(odd)["report.html"]).text
    assert "There was one repetition" in page
    assert "uncertain" in page
    assert "nan" not in page.casefold().split()
    assert "95 % interval;" not in page


def test_words_for_gains(banks, tmp_path):
    first = banks.gains[0]
    gains = [
        replace(first, participant=name, gain=(low + high) / 2, low=low, high=high)
        for name, low, high in (
            ("Alder", 0.1, 0.3), ("Birch", -0.3, -0.1), ("Cedar", -0.1, 0.2), ("Elm", -9, 9.2),
        )
    ]  # fmt: skip
    pages = written(replace(banks, gains=gains), tmp_path)
    page = Balance(pages["report.html"]).text
    assert "1 better, 2 no clear difference, 1 worse" in page
    assert "+0.200 ▲ better" in page
    assert "−0.200 ▼ worse" in page
    assert "+0.050 ◆ no clear difference" in page
    assert "An arrow means that the interval is longer." in page
    assert "+0.100 to +0.300" in Balance(pages["members/Alder.html"]).text
    assert "no result both alone and with another" in Balance(pages["members/Dogwood.html"]).text


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
    pages = written(replace(banks, outcomes=outcomes, gains=gains), tmp_path)
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
    assert "All 2 participants train together, in 1 coalition. None trains alone." in page

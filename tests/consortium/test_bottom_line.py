"""The recommendation, in units that a director knows."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.consortium.report.bottom_line import bottom_line, mean_gain, plain_unit
from fedegoists.consortium.report.plain_units import PlainUnit
from fedegoists.consortium.report.results_section import Results
from fedegoists.learning.estimates import Estimate, Interval
from tests.consortium.reports import Balance, pages_of, with_graphs, written

PAIR = [("Alder", "Birch", 1), ("Birch", "Alder", 1)]


def decided(run, gains, kept="fedavg+ft"):
    """Return a run in which Alder and Birch are together, with given gains of what they keep."""
    run = with_graphs(run, PAIR, [("Alder", "Cedar")])
    kept_by = {
        name: replace(
            one, card=one.card.model_copy(update={"method": kept if name in gains else "local"})
        )
        for name, one in run.delivered.items()
    }
    found = {**run.evaluations.delivered, **gains}
    return replace(run, delivered=kept_by, evaluations=replace(run.evaluations, delivered=found))


def top(run):
    return bottom_line(run, Results.of(run), "No benefit was found.")


@pytest.mark.parametrize(
    ("gain", "advice", "reason"),
    [
        (Estimate(0.1, 0.01, 40.0), "Train in 1 coalition: Alder and Birch. ", "10.0 more of 100"),
        (Estimate(0.01, 0.05, 40.0), "Try 1 coalition: Alder and Birch. ", "not certain"),
        (Estimate(-0.1, 0.01, 40.0), "Every participant should train alone.", "10.0 fewer of 100"),
        (Estimate(0.1), "Try 1 coalition: Alder and Birch. ", "at home only"),
    ],
)
def test_the_advice_follows_the_mean_gain_of_the_members(banks, gain, advice, reason):
    found = top(decided(banks, {"Alder": gain, "Birch": gain}))
    assert found.advice.startswith(advice)
    assert reason in " ".join(found.reasons)


def test_the_mean_is_over_members_only_and_its_error_is_that_of_independent_gains(banks):
    run = decided(banks, {"Alder": Estimate(0.1, 0.03, 40), "Birch": Estimate(0.3, 0.04, 40)})
    found = mean_gain(run, Results.of(run), plain_unit(run))
    assert found.value == pytest.approx(20.0)
    assert found.error == pytest.approx(100 * math.sqrt(0.03**2 + 0.04**2) / 2)


def test_who_keeps_its_own_model_is_told_so(banks):
    found = top(decided(banks, {}))
    assert found.advice == "Every participant should keep the model that it trained alone."
    assert top(with_graphs(banks, [], [])).advice == "Every participant should train alone."


def test_the_top_of_the_page_has_costs_and_facts(banks):
    page = Balance(pages_of(banks)["report.html"]).text
    first = page[: page.index("Confidential.")]
    for part in ("Recommendation", "Time", "MB sent", "simulated", "Made", "Decided by", "PyTorch"):
        assert part in first
    for name, value in banks.data.fingerprints.items():
        assert f"{name} {value[:12]}" in first
    assert banks.made in first


def test_a_member_sees_the_fingerprint_of_its_own_data_only(banks, tmp_path):
    pages = written(banks, tmp_path)
    own = banks.data.fingerprints["Alder"]
    assert len(set(banks.data.fingerprints.values())) == 5
    assert own[:16] in pages["members/Alder.html"]
    for name, value in banks.data.fingerprints.items():
        assert (value[:12] in pages["members/Alder.html"]) == (name == "Alder")


@given(
    alone=st.floats(0.01, 1e6),
    ends=st.lists(st.floats(-2.0, 0.99), min_size=3, max_size=3).map(sorted),
)
def test_roots_keep_the_order_and_the_verdict_of_gains(alone, ends):
    low, value, high = (alone * one for one in ends)
    unit = PlainUnit.of("mse", False, "metres")
    found = unit.gain(Interval(value, low, high), alone)
    assert found.low <= found.value <= found.high
    for before, after in ((low, found.low), (value, found.value), (high, found.high)):
        assert (before > 0) == (after > 0) or abs(before) < 1e-9 * alone
    assert found.value == pytest.approx(math.sqrt(alone) - math.sqrt(alone - value))


@given(alone=st.floats(1.0, 1e4), gain=st.floats(-0.5, 0.5), error=st.floats(0.01, 0.1))
def test_an_estimate_in_plain_units_is_the_gain_with_a_scaled_error(alone, gain, error):
    unit = PlainUnit.of("mse", False, "metres")
    one = unit.estimate(Estimate(alone * gain, alone * error, 20.0), alone)
    assert one.value == pytest.approx(unit.gain(Interval(alone * gain), alone).value, abs=1e-9)
    # Near zero the slope of a root is 1 / (2 √alone); it changes by less than half here.
    slope = 1 / (2 * math.sqrt(alone))
    assert 0.6 * slope < one.error / (alone * error) < 1.6 * slope

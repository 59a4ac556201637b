"""Expected gains: from a consortium's file to its report."""

import pytest

from fedegoists import BenefitGraph, CompetitionGraph, CurveValues, form
from fedegoists.benefit.curve_fit import pair_gains
from fedegoists.coalitions import Certificate
from fedegoists.consortium import Consortium
from fedegoists.consortium.example_files import init
from fedegoists.consortium.report.expected_gains import expected_gains
from fedegoists.consortium.report.heatmap import benefit_cells
from fedegoists.consortium.report.wording import weight
from fedegoists.errors import SettingsError
from tests.consortium.reports import Balance

NAMES = ["North", "South"]
QUICK = ["training.steps=40", "training.seeds=1", "benefit.estimator=curves"]


def formed(slope_error, rate=1.0):
    values = CurveValues(
        [100, 100],
        [0.02, 0.04],
        [[0, rate], [rate, 0]],
        NAMES,
        slope_errors=slope_error,
        unit="auc",
    )
    return form(values, CompetitionGraph([], NAMES))


def test_gains_have_intervals_and_probabilities():
    """One doubling: North gains 0.02 ± 1.645 · 0.01, two standard errors above zero."""
    found = expected_gains(formed(0.01))
    assert found.unit == "auc"
    north, south = found.rows
    assert (north.participant, north.gain) == ("North", "+0.0200")
    assert north.interval == "+0.0036 to +0.0364"
    assert north.probability == "98 %"
    assert (south.gain, south.probability) == ("+0.0400", "100 %")
    assert found.sentences == ()


def test_how_much_more_would_be_needed_and_the_next_experiment():
    """North's 0.02 ± 0.04: (1.28 · 2)² = 6.6 times the samples."""
    needed, following = expected_gains(formed(0.04)).sentences
    assert "about 7 times the samples" in needed
    assert "for North, +0.0200 ± 0.0400 could still be nothing" in needed
    assert "every member keeps the better model" in following  # it has been trained
    assert any("far too little" in one for one in expected_gains(formed(1.0)).sentences)


def test_where_nobody_gains_it_says_so():
    found = expected_gains(formed(0.01, rate=-0.2))
    assert found.rows == ()
    assert found.sentences == (
        "In no coalition is every member likely to gain and to give the others something.",
        "No pair is expected to gain, so more evidence would hardly help.",
    )


def test_without_a_coalition_the_free_rider_is_named_and_no_gain_denied():
    """South would gain 0.04 ± 0.04 and give nothing: nobody is together, which is no verdict."""
    values = CurveValues(
        [100, 100], [0.02, 0.04], [[0, 1], [0, 0]], NAMES, slope_errors=0.04, unit="AUC"
    )
    found = expected_gains(form(values, CompetitionGraph([], NAMES)))
    assert found.rows == ()
    first, rider, needed, following = found.sentences
    assert first.startswith("In no coalition")
    assert rider.startswith("South is alone because South cannot pair up with North")
    assert "South itself would gain +0.04 ± 0.04 AUC" in rider
    assert "that of South with North, about 2 times the samples" in needed
    assert "experiment" in following
    assert not any("not benefit" in one for one in found.sentences)


def test_benefits_have_no_units():
    benefit = BenefitGraph([[0, 1], [1, 0]], NAMES)
    assert expected_gains(form(benefit, CompetitionGraph([], NAMES))) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curves")
    init(folder, "banks")
    return Consortium.read(folder / "consortium.toml", QUICK).run()


def test_a_consortium_decides_by_expected_gains(run):
    values = run.benefit.estimate.values
    assert run.formation.values == values
    assert values.unit == run.repetitions.federation.task.metric_words
    again = form(values, run.formation.competition)
    assert again.coalitions == run.formation.coalitions
    assert Certificate.load(run.folder / "certificate.json").check().ok


def test_the_report_tells_expected_gains(run):
    page = Balance((run.folder / "report.html").read_text(encoding="utf-8"))
    assert "Expected gains" in page.text
    assert f"total expected gain in {run.formation.values.unit}" in page.text
    for name in run.formation.probabilities:
        (row,) = (one for one in expected_gains(run.formation).rows if one.participant == name)
        assert f"{name} {row.gain} {row.interval} {row.probability}" in page.text


def test_pairs_are_listed_with_the_errors_of_their_gains(run):
    cells = benefit_cells(run)
    errors = pair_gains(run.formation.values)[1]
    assert [cell.error for cell in cells] == [weight(errors[c.source, c.target]) for c in cells]
    assert any(cell.error not in ("", "0") for cell in cells)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("benefit.threshold=0.1", "a threshold is for benefits"),
        ("formation.method=stable", "only 'best' decides by expected gains"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_learned(tmp_path, change, message):
    init(tmp_path, "banks")
    with pytest.raises(SettingsError, match=message):
        Consortium.read(tmp_path / "consortium.toml", [*QUICK, change]).learn_benefit()

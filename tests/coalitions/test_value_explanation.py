"""Explanations and what-ifs in the units of the metric."""

import pytest

from fedegoists.coalitions import Newcomer, explain, explain_alone, form, what_if
from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph, CurveValues

NAMES = ["North", "South", "East", "VA"]


def consortium(confidence=None, rivals=(), **more):
    """All have 100 samples; a rate of 1 doubles the data. Nobody gains from VA."""
    rates = [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0]]
    values = CurveValues([100] * 4, [0.02, 0.02, 0.02, 0.04], rates, NAMES, unit="AUC", **more)
    return form(values, CompetitionGraph(rivals, NAMES), confidence=confidence)


def test_members_hear_what_the_other_adds():
    # With South and East North has three times its data, log2(3) = 1.585 doublings.
    assert str(explain(consortium(slope_errors=0.002), "North", "East")) == (
        "North and East train together: adding East raises North's expected gain from 0.02 to "
        "0.0317 AUC (± 0.0032), and adding North raises East's expected gain from 0.02 to 0.0317 "
        "AUC (± 0.0032)."
    )


def test_a_member_that_adds_nothing_or_harms_is_called_that():
    # A and B help each other, C helps A and is helped by B; A is worth nothing to C and harms none.
    rates = [[0, 1, 0], [1, 0, 1], [0.5, -0.2, 0]]
    values = CurveValues([100] * 3, [0.02] * 3, rates, ["A", "B", "C"])
    formation = form(values, CompetitionGraph([], values.participants))
    assert formation.coalitions == (("A", "B", "C"),)
    assert "adding A leaves C's expected gain at 0.02" in str(explain(formation, "A", "C"))
    assert "adding C lowers B's expected gain from 0.02 to" in str(explain(formation, "B", "C"))


def test_who_is_alone_hears_why():
    assert str(explain_alone(consortium(), "VA")) == (
        "VA is alone because VA cannot join North's coalition (VA would give nothing there: the "
        "others' total gain would change by +0 AUC; VA itself would gain +0.08 ± 0 AUC)."
    )


def test_competition_and_low_confidence_are_reasons():
    formation = consortium(rivals=[("North", "South"), ("South", "East")])
    assert formation.coalitions == (("North", "East"), ("South",), ("VA",))
    assert "North there competes with South" in str(explain_alone(formation, "South"))
    unsure = consortium(confidence=0.9, slope_errors=0.02)
    assert "North would gain there with probability 0.84, and 0.9 is demanded" in str(
        explain(unsure, "South", "North")
    )
    assert len(unsure.coalitions) == 4


def test_alone_is_a_question_about_those_who_are():
    with pytest.raises(SettingsError, match="'North' is in a coalition with others"):
        explain_alone(consortium(), "North")
    one = CurveValues([1], [0.1], [[0]], ["A"])
    alone = form(one, CompetitionGraph([], ["A"]))
    assert str(explain_alone(alone, "A")) == "A is the only participant."


def test_what_if_competition_changes():
    change = what_if(consortium(), add=[("North", "East")])
    assert len(change.moved) == 1
    assert change.welfare_change == pytest.approx(2 * 0.02 - 3 * 0.0317, abs=1e-4)
    assert "The total gain falls by 0.0551 AUC to 0.04." in str(change)
    assert change.after.values == change.before.values
    assert change.after.certificate.check().ok


def test_what_if_the_confidence_or_the_participants_change():
    formation = consortium(slope_errors=0.02)
    assert len(what_if(formation, confidence=0.9).coalitions) == 4
    assert what_if(formation, confidence=0.5).coalitions == formation.coalitions
    left = what_if(formation, leaves=["East"])
    assert left.coalitions == (("North", "South"), ("VA",))
    assert left.utility_changes == pytest.approx(
        {"North": -0.0117, "South": -0.0117, "VA": 0}, abs=1e-4
    )


def test_of_equally_good_partitions_the_one_that_moves_few_is_kept():
    # Pairs of four that are all alike: with North and East rivals, one of them has to move.
    rates = [[0 if a == b else 1 for b in range(4)] for a in range(4)]
    values = CurveValues([100] * 4, [0.02] * 4, rates)
    rivals = [("v0", "v1"), ("v2", "v3")]
    before = form(values, CompetitionGraph(rivals, values.participants))
    for pair in (("v0", "v2"), ("v0", "v3")):
        changed = what_if(before, add=[pair])
        together = any(set(pair) <= set(group) for group in before.coalitions)
        assert len(changed.moved) == (2 if together else 0)


def test_a_newcomer_needs_a_curve():
    with pytest.raises(SettingsError, match="'New' cannot join by benefits alone"):
        what_if(consortium(), joins=[Newcomer("New", gives={"North": 0.3})])

"""Contributions by training without a member, and the ledger."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, TrainSettings
from fedegoists.learning.data import Samples
from fedegoists.learning.estimates import Interval
from fedegoists.methods import FedAvg
from fedegoists.training.contributions import (
    Contribution,
    Ledger,
    accounted_among,
    contributions,
    cost_shares,
    left_out_in_turn,
)
from tests.methods.hand import START, lines, starts
from tests.silos import groups, run

STEP = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.0)


def trained(federation, coalitions, rounds=6):
    start = starts(len(federation.participants), START)
    return run(FedAvg(STEP), federation, coalitions, start, rounds=rounds, seed=5)


def measured(silos, coalitions, **options):
    federation = next(iter(silos.federations(**options)))
    whole = groups(coalitions)
    without = [trained(federation, turn) for turn in left_out_in_turn(whole)]
    outcome = trained(federation, coalitions)
    return federation, outcome, without, contributions(federation, whole, outcome, without)


def held_out(silos, k, model):
    """The mean loss over validation and test samples, in numpy."""
    splits = [(silos.designs[one][k], silos.targets[one][k]) for one in ("validation", "test")]
    design, targets = (np.concatenate(parts) for parts in zip(*splits, strict=True))
    return float(np.mean((design @ model - targets) ** 2))


def test_what_a_member_gave_is_what_the_others_lose_without_it_by_hand():
    silos = lines((60, 50, 40, 30), slopes=[(2.0, -1.0)] * 4)
    _, outcome, without, found = measured(silos, [["a", "b", "c"], ["d"]])
    assert [one.participant for one in found] == ["a", "b", "c"]
    assert len(without) == 3
    for k, one in enumerate(found):
        others = [i for i in range(3) if i != k]
        expected = sum(
            held_out(silos, i, without[k].best[i].numpy())
            - held_out(silos, i, outcome.best[i].numpy())
            for i in others
        )
        assert one.gave.value == pytest.approx(expected, rel=1e-3, abs=1e-6)
        assert one.gave.low < one.gave.value < one.gave.high
        assert one.coalition == ("a", "b", "c")
    shares = cost_shares(np.array([one.gave.value for one in found]))
    assert [one.share_of_costs for one in found] == pytest.approx(shares.tolist())


def held_out_losses(silos, k, model):
    splits = [(silos.designs[one][k], silos.targets[one][k]) for one in ("validation", "test")]
    design, targets = (np.concatenate(parts) for parts in zip(*splits, strict=True))
    return (design @ model - targets) ** 2


def test_the_intervals_of_all_members_hold_together():
    silos = lines((60, 50, 40, 30), slopes=[(2.0, -1.0)] * 4)
    _, outcome, without, found = measured(silos, [list("abcd")])
    for k, one in enumerate(found):
        variances, degrees = [], []
        for i in range(4):
            if i != k:
                own = [
                    held_out_losses(silos, i, model.best[i].double().numpy())
                    for model in (without[k], outcome)
                ]
                variances.append(np.var(own[0] - own[1], ddof=1) / len(own[0]))
                degrees.append(len(own[0]) - 1)
        total = sum(variances)
        freedom = total**2 / sum(v**2 / d for v, d in zip(variances, degrees, strict=True))
        # A miss of any of four members has a probability of 5 %, on both sides together.
        reach = stats.t.ppf(1 - 0.05 / 4 / 2, freedom) * math.sqrt(total)
        assert one.gave.high - one.gave.value == pytest.approx(reach, rel=1e-2)
        assert one.gave.value - one.gave.low == pytest.approx(reach, rel=1e-2)


def with_random_targets(silos, k):
    rng, samples, bad = np.random.default_rng(0), silos.data.samples, silos.data.silos[k]
    targets = samples.targets.copy()
    for part in (bad.train, bad.validation):
        targets[part] = rng.permutation(targets[part])
    return replace(silos, data=replace(silos.data, samples=Samples(samples.inputs, targets)))


def idle(request, reply):
    if not hasattr(request, "settings"):
        return reply
    return reply.model_copy(update={"parameters": request.parameters})


def test_a_member_with_random_targets_is_last_and_found():
    silos = lines((90, 90, 90, 90, 90), slopes=[(2.0, -1.0)] * 5)
    *_, found = measured(with_random_targets(silos, 4), [list("abcde")])
    assert min(found, key=lambda one: one.gave.value).participant == "e"
    assert [one.participant for one in found if one.gave_nothing] == ["e"]


def test_a_member_that_never_moves_holds_the_others_back_and_is_found():
    silos = lines((900, 900, 900), slopes=[(2.0, -1.0)] * 3)
    *_, found = measured(silos, [list("abc")], behaviours={"b": idle})
    assert [one.participant for one in found if one.gave_nothing] == ["b"]


def test_own_samples_do_not_count_for_what_one_gives():
    silos = lines((60, 50, 40), slopes=[(2.0, -1.0)] * 3)
    federation, outcome, without, found = measured(silos, [list("abc")])
    changed = [replace(one, best=one.best.clone()) for one in without]
    for k, one in enumerate(changed):
        one.best[k] = 100.0  # of the member that was left out
    again = contributions(federation, groups([list("abc")]), outcome, changed)
    assert [one.gave for one in again] == [one.gave for one in found]


def test_repetitions_are_one_estimate_and_their_spread_counts():
    silos = lines((60, 50), slopes=[(2.0, -1.0)] * 2)
    federation, outcome, without, once = measured(silos, [["a", "b"]])
    # The same repetition again tells nothing new, and adds a variance of zero.
    both = groups([["a", "b"], ["a", "b"]])
    twice = contributions(federation, both, outcome, without)
    assert [one.gave.value for one in twice] == pytest.approx([one.gave.value for one in once])
    assert len(twice) == 2


def test_a_receiver_without_a_result_is_left_out_and_named():
    silos = lines((60, 50, 40), slopes=[(2.0, -1.0)] * 3)
    federation, outcome, without, found = measured(silos, [list("abc")])
    broken = replace(without[0], best=without[0].best.clone())
    broken.best[1] = math.nan
    again = contributions(federation, groups([list("abc")]), outcome, [broken, *without[1:]])
    assert [one.left_out for one in again] == [("b",), (), ()]
    assert again[0].gave.value != found[0].gave.value
    assert again[1].gave == found[1].gave
    never = [(-math.inf, -math.inf)] * 3
    gone = contributions(
        federation, groups([list("abc")]), replace(outcome, best_score=never), without
    )
    assert all(math.isnan(one.gave.value) and not one.gave_nothing for one in gone)
    assert all(math.isnan(one.share_of_costs) for one in gone)


def test_who_trains_alone_has_no_contribution():
    silos = lines((60, 50), slopes=[(2.0, -1.0)] * 2)
    *_, without, found = measured(silos, [["a"], ["b"]])
    assert (without, found) == ([], [])


def test_every_member_is_left_out_once_and_everybody_has_a_place():
    whole = groups([list("abc"), ["d"], list("ef")])
    turns = left_out_in_turn(whole)
    alone = [
        sorted(one[0].name for one in turn if len(one) == 1 and one[0].name != "d")
        for turn in turns
    ]
    assert alone == [["a", "e", "f"], ["b", "e", "f"], ["c"]]
    for turn in turns:
        assert sorted(one.name for group in turn for one in group) == list("abcdef")


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=6))
def test_shares_of_costs_sum_to_one_and_fall_with_what_is_given(gave):
    shares = cost_shares(np.array(gave))
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    order = np.argsort(gave)
    assert (np.diff(shares[order]) <= 1e-12).all()


@pytest.mark.parametrize(("high", "accused"), [(0.5, False), (0.0, True), (-0.5, True)])
def test_a_member_is_named_only_where_its_whole_interval_is_not_positive(high, accused):
    one = Contribution("a", ("a", "b"), Interval(-1.0, -2.0, high), 1.0)
    assert one.gave_nothing is accused
    assert bool(Ledger("fedavg", (one,)).remarks) is accused


def test_the_ledger_and_its_remarks():
    names = ("a", "b", "c")
    ledger = Ledger(
        "fedavg",
        (
            Contribution("a", names, Interval(2.0, 1.0, 3.0), 0.0, ("c",)),
            Contribution("b", names, Interval(-1.0, -2.0, 0.0), 0.5, (), ("a", "c")),
            Contribution("c", names, Interval(0.5, -1.0, 2.0), 0.5, ("a",)),
        ),
    )
    assert ledger.remarks == (
        "b: the others are not worse off without it (it gave -1, 95 % interval -2 to 0)",
        "a and c: their samples are the same, or nearly so; it is not known who had them first",
    )
    assert ledger.about("b").gave_nothing
    assert ledger.about("d") is None
    lines_ = list(csv.DictReader(io.StringIO(ledger.csv().decode())))
    assert [line["redundant_with"] for line in lines_] == ["c", "", "a"]
    assert lines_[1]["left_out"] == "a;c"
    assert (lines_[0]["gave"], lines_[0]["low"], lines_[0]["high"]) == ("2", "1", "3")
    assert lines_[0]["coalition"] == "a;b;c"


def test_members_with_the_same_samples_are_named_by_pairs():
    # b agrees with both others, which do not agree with each other.
    alike = {"a": ("b",), "b": ("a", "c"), "c": ("b",)}
    ledger = Ledger(
        "fedavg",
        tuple(
            Contribution(name, ("a", "b", "c"), Interval(2.0, 1.0, 3.0), 0.3, others)
            for name, others in alike.items()
        ),
    )
    assert [one.split(":")[0] for one in ledger.remarks] == ["a and b", "b and c"]


def test_several_named_members_are_a_warning_about_the_coalition():
    def gave(name, coalition, high):
        return Contribution(name, tuple(coalition), Interval(high - 1, high - 2, high), 0.3)

    ledger = Ledger(
        "fedavg",
        (
            *(gave(name, "abcd", high) for name, high in zip("abcd", (-1, -1, 1, 1), strict=True)),
            *(gave(name, "efg", high) for name, high in zip("efg", (-1, 1, 1), strict=True)),
        ),
    )
    (warning,) = [one for one in ledger.remarks if "members of one coalition" in one]
    assert warning.startswith("2 of the 4 members of one coalition are named.")


def test_the_first_method_with_whole_models_in_coalitions_is_taken():
    assert accounted_among(["local", "fedavg+ft", "egomix"], None, split=True) == "fedavg+ft"
    assert accounted_among(["local", "bagging"], None, split=False) == "bagging"
    assert accounted_among(["fedegoists"], None, split=False) == "fedegoists"
    for methods, personal, split in (
        (["local"], None, False),
        (["local", "fedegoists"], None, True),
        (["fedper"], None, False),
        (["fedavg"], ["output."], False),
    ):
        with pytest.raises(SettingsError, match="add fedavg to the methods"):
            accounted_among(methods, personal, split=split)


def test_the_models_are_left_as_they_are():
    silos = lines((60, 50), slopes=[(2.0, -1.0)] * 2)
    federation = next(iter(silos.federations()))
    outcome = trained(federation, [["a", "b"]])
    before = outcome.best.clone()
    contributions(federation, groups([["a", "b"]]), outcome, [outcome, outcome])
    assert torch.equal(outcome.best, before)
    same = contributions(federation, groups([["a", "b"]]), outcome, [outcome, outcome])
    assert [one.gave.value for one in same] == [0, 0]
    assert {Participant(one.participant) for one in same} == {Participant("a"), Participant("b")}

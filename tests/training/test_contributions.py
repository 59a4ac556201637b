"""Contributions over rounds and repetitions, and the ledger."""

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.federation import Participant
from fedegoists.federation.seam import Failure
from fedegoists.methods.recorded_silos import RoundContributions
from fedegoists.training.contributions import contributions, cost_shares, ledger_csv


def recorded(matrices, repetition=0):
    names = [Participant(name, repetition) for name in "abc"[: len(matrices[0])]]
    return [RoundContributions(tuple(names), np.array(one, float)) for one in matrices]


def test_sums_over_rounds_and_means_over_repetitions_by_hand():
    rounds = recorded([[[9, 2], [1, 9]], [[9, 1], [-3, 9]]])
    rounds += recorded([[[9, 4], [0, 9]], [[9, 1], [0, 9]]], 1)
    a, b = contributions(rounds)
    assert (a.gave.value, a.received) == (4, -1)
    assert (b.gave.value, b.received) == (-1, 4)
    assert (a.share_of_costs, b.share_of_costs) == (0, 1)
    # Of one receiver, resampled rounds lie between four times the lowest and the highest.
    assert 4 * 1 / 2 <= a.gave.low < 4 < a.gave.high <= 4 * 4 / 2
    assert not a.gave_nothing


def test_a_member_is_found_only_where_its_whole_interval_is_not_positive():
    harmful, doubtful = [[0, 1], [-1, 0]], [[0, 1], [1, 0]]
    assert [one.gave_nothing for one in contributions(recorded([harmful] * 9))] == [False, True]
    mixed = recorded([harmful, doubtful] * 9)
    assert [one.gave_nothing for one in contributions(mixed)] == [False, False]


def test_a_member_that_does_nothing_for_itself_is_judged_by_others_alone():
    rounds = recorded([[[-100, 1, 1], [1, 5, 1], [0, 0, 50]]])
    a, _, c = contributions(rounds)
    assert a.gave.value == 2
    assert c.gave_nothing


@given(st.integers(0, 10**6))
def test_all_that_is_given_is_received_and_the_same_seed_gives_the_same(seed):
    rng = np.random.default_rng(seed)
    rounds = recorded(rng.normal(size=(5, 3, 3)))
    found = contributions(rounds, seed=seed)
    given_ = sum(one.gave.value for one in found)
    received = sum(one.received for one in found)
    assert given_ == pytest.approx(received, abs=1e-9)
    assert found == contributions(rounds, seed=seed)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=6))
def test_shares_of_costs_sum_to_one_and_fall_with_what_is_given(gave):
    shares = cost_shares(np.array(gave))
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    order = np.argsort(gave)
    assert (np.diff(shares[order]) <= 1e-12).all()


def test_the_ledger_has_a_line_for_each_member():
    found = contributions(recorded([[[0, 2], [1, 0]]]))
    lines = list(csv.DictReader(io.StringIO(ledger_csv(found).decode())))
    assert [line["participant"] for line in lines] == ["a", "b"]
    assert lines[0]["coalition"] == "a;b"
    assert (lines[0]["gave"], lines[0]["received"]) == ("2", "1")
    assert float(lines[0]["share_of_costs"]) == pytest.approx(1 / 3, rel=1e-4)


def failing(matrix, *names):
    """A round in which evaluations of some receivers failed."""
    (one,) = recorded([matrix])
    left_out = [member for member in one.members if member.name in names]
    one.given[:, [member.name in names for member in one.members]] = np.nan
    failures = tuple(Failure(member, "timeout", "no answer") for member in left_out)
    return RoundContributions(one.members, one.given, failures)


def test_a_round_without_a_receiver_counts_for_the_others_alone_and_the_ledger_names_it():
    matrix = [[0, 2, 4], [1, 0, 1], [1, 1, 0]]
    found = contributions([*recorded([matrix]), failing(matrix, "b")])
    assert [one.gave.value for one in found] == [2 + 4 + 4, 1 + 1 + 1 + 1, 1 + 1 + 1]
    assert [one.received for one in found] == [4, 3, 10]
    lines = list(csv.DictReader(io.StringIO(ledger_csv(found).decode())))
    assert [line["left_out"] for line in lines] == ["b (1)"] * 3


def test_nobody_is_accused_where_no_receiver_was_evaluated():
    a, b = contributions([failing([[0, 1], [1, 0]], "b")] * 3)
    assert math.isnan(a.gave.value)
    assert not a.gave_nothing
    assert math.isnan(b.received)
    assert b.gave.value == 3
    assert math.isnan(a.share_of_costs)
    assert math.isnan(b.share_of_costs)
    assert a.left_out == (("b", 3),)

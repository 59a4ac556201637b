"""The study of larger consortia: partitions, shared coalitions, a small run and its page."""

import statistics

import numpy as np

from fedegoists.graphs import BenefitGraph, CompetitionGraph, CurveValues
from reproduction import RESULTS
from reproduction.larger_consortia import (
    CHOICES,
    LargerSettings,
    MemberGain,
    agreeing_pairs,
    chosen_partitions,
    consortia,
    larger_page,
    mean_gains,
    member_gains,
    members_csv,
    read_members,
    shared_coalitions,
)
from reproduction.real_data_commands import origins

NAMES = ("a", "b", "c", "d")


def gain(choice, gained, **changes):
    about = {"participants": 20, "repetition": 0, "participant": "a", "coalition": 1}
    about |= {"members": 2, "expected": 1.0, "error": 0.5, "train": 100, "test": 20}
    return MemberGain(choice=choice, gain=gained, **{**about, **changes})


def test_each_choice_goes_by_its_own_numbers():
    # By the graph a belongs with b; by the values with c; d competes with everybody.
    graph = np.zeros((4, 4))
    graph[0, 1] = graph[1, 0] = 1.0
    rates = np.zeros((4, 4))
    rates[0, 2] = rates[2, 0] = 1.0
    rates[0, 1] = rates[1, 0] = -0.2
    rivals = CompetitionGraph([("a", "d"), ("b", "d"), ("c", "d")], NAMES)
    values = CurveValues([10] * 4, [0.1] * 4, rates, NAMES)
    found = chosen_partitions(BenefitGraph(graph, NAMES), values, rivals)
    together = {
        choice: {frozenset(group) for group in groups if len(group) > 1}
        for choice, groups in found.items()
    }
    assert together["published"] == together["additive"] == {frozenset("ab")}
    assert together["curves"] == {frozenset("ac")}
    assert together["everybody"] == {frozenset("abc")}


def test_a_coalition_is_trained_once():
    same = {(0, "x"): (("a", "b"),), (0, "y"): (("b", "a"),), (1, "x"): (("a", "b"),)}
    assert len(shared_coalitions(same)) == 2


def test_rows_come_back_and_make_a_page(tmp_path):
    rows = [
        gain(choice, gained, repetition=k)
        for choice, gained in zip(CHOICES, (1.0, 2.0, 3.0, 3.0), strict=True)
        for k in (0, 1)
    ]
    path = tmp_path / "rows.csv"
    path.write_bytes(members_csv(rows))
    assert read_members(path) == rows
    page = larger_page(rows, "Written by hand.")
    assert "| published | 1.0 | 2.0 | 0.0 | +1.00 | +1.00 (+1.00 to +1.00) | +2.00" in page


def test_the_committed_page_and_the_readme_are_those_of_the_rows():
    folder = RESULTS / "larger"
    rows = read_members(folder / "larger.csv")
    page = (folder / "larger.md").read_text(encoding="utf-8")
    assert page == larger_page(rows, "\n\n".join(origins(page)))
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    right, pairs = agreeing_pairs(rows)
    assert f"Of {pairs} pairs of different partitions" in readme
    assert f"had the higher gain in {right};" in readme
    for count in (20, 40):
        own = [one for one in rows if one.participants == count]
        means = [
            statistics.fmean(mean_gains([one for one in own if one.choice == choice]).values())
            for choice in CHOICES
        ]
        assert " | ".join(f"{mean:+.2f}" for mean in means) in readme


def test_order_counts_pairs_that_are_expected_to_differ():
    rows = [gain("published", 1.0, expected=1.0), gain("additive", 2.0, expected=2.0)]
    assert agreeing_pairs(rows) == (1, 1)
    assert agreeing_pairs([rows[0], gain("additive", 0.5, expected=2.0)]) == (0, 1)
    assert agreeing_pairs([rows[0], gain("additive", 2.0, expected=1.0)]) == (0, 0)


def test_a_small_study_values_each_partition(data):
    settings = LargerSettings(steps=4, graph_steps=2, data_dir=data)
    gains = member_gains(consortia(4, settings, 1), settings)
    assert [one.choice for one in gains] == [choice for choice in CHOICES for _ in range(4)]
    alone = [one for one in gains if one.members == 1]
    assert all(one.gain == one.error == one.expected == 0 for one in alone)
    widest = [one for one in gains if one.choice == "everybody" and one.members > 1]
    assert widest
    same = {one.participant: one.gain for one in gains if one.choice == "curves"}
    groups = {
        choice: {(one.participant, one.members) for one in gains if one.choice == choice}
        for choice in CHOICES
    }
    if groups["curves"] == groups["everybody"]:  # trained once, so nothing differs
        assert same == {one.participant: one.gain for one in gains if one.choice == "everybody"}

"""Moves between two partitions are the fewest possible."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.coalitions.rearranging import moved_between


def test_moves_are_the_fewest():
    assert moved_between([("a", "b"), ("c", "d")], [("a", "b"), ("c", "d")]) == ()
    assert moved_between([("a", "b", "c")], [("a",), ("b", "c")]) == ("a",)
    assert len(moved_between([("a", "b"), ("c", "d")], [("a", "c"), ("b", "d")])) == 2
    assert moved_between([("a", "gone")], [("a", "new")]) == ()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
@settings(max_examples=100, deadline=None)
def test_moves_against_trying_every_pairing_of_coalitions(before, data):
    after = data.draw(st.lists(st.integers(0, 3), min_size=len(before), max_size=len(before)))
    groups = [
        [tuple(f"p{i}" for i, label in enumerate(labels) if label == k) for k in range(4)]
        for labels in (before, after)
    ]
    staying = max(
        sum(len(set(groups[0][i]) & set(groups[1][j])) for i, j in enumerate(pairing))
        for pairing in itertools.permutations(range(4))
    )
    old, new = ([group for group in side if group] for side in groups)
    assert len(moved_between(old, new)) == len(before) - staying

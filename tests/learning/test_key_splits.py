"""Splits by a hash: what never moves a row, and what does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.learning.key_splits import row_keys, split_by_key

PATIENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=60)


def keys(names: list[int]) -> list[bytes]:
    return [str(name).encode() for name in names]


def none(count: int) -> np.ndarray:
    return np.zeros(count, dtype=np.int64)


def test_shares_over_many_keys() -> None:
    found = split_by_key(keys(list(range(20_000))), none(20_000), 3)
    shares = np.bincount(found.split) / 20_000
    assert shares == pytest.approx([0.7, 0.15, 0.15], abs=0.015)  # five standard errors
    assert found.moved == 0


def test_the_class_mix_is_alike() -> None:
    classes = (np.arange(20_000) % 50 == 0).astype(np.int64)  # one in fifty
    found = split_by_key(keys(list(range(20_000))), classes, 0)
    for k in range(3):
        assert classes[found.split == k].mean() == pytest.approx(0.02, abs=0.01)


def test_another_seed_is_another_division() -> None:
    one, other = (split_by_key(keys(list(range(1000))), none(1000), seed).split for seed in (0, 1))
    # Two independent divisions agree on 0.7² + 2 · 0.15² = 0.535 of the rows.
    assert np.mean(one == other) == pytest.approx(0.535, abs=0.08)


@settings(max_examples=100, deadline=None)
@given(PATIENTS, PATIENTS, st.integers(0, 5), st.randoms())
def test_new_rows_and_their_order_move_nothing(
    old: list[tuple[int, int]], new: list[tuple[int, int]], seed: int, random
) -> None:
    before = split_by_key(keys([key for key, _ in old]), np.array([c for _, c in old]), seed)
    rows = old + [(key + 100, c) for key, c in new]
    random.shuffle(rows)
    after = split_by_key(keys([key for key, _ in rows]), np.array([c for _, c in rows]), seed)
    was = dict(zip((key for key, _ in old), before.split.tolist(), strict=True))
    now = {key: k for (key, _), k in zip(rows, after.split.tolist(), strict=True) if key in was}
    changed = sum(was[key] != now[key] for key in was)
    # Only what was moved for the sake of a class, or is now, can differ.
    assert changed <= before.moved + after.moved


@settings(max_examples=200, deadline=None)
@given(PATIENTS, st.integers(0, 5))
def test_a_patient_is_in_one_split(rows: list[tuple[int, int]], seed: int) -> None:
    found = split_by_key(keys([key for key, _ in rows]), np.array([c for _, c in rows]), seed)
    places: dict[int, set[int]] = {}
    for (key, _), k in zip(rows, found.split.tolist(), strict=True):
        places.setdefault(key, set()).add(k)
    assert all(len(splits) == 1 for splits in places.values())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=3, max_size=40), st.integers(0, 5))
def test_a_class_of_three_keys_is_in_every_split(classes: list[int], seed: int) -> None:
    found = split_by_key(keys(list(range(len(classes)))), np.array(classes), seed)
    for c in set(classes):
        splits = {k for k, own in zip(found.split.tolist(), classes, strict=True) if own == c}
        assert len(splits) == 3 or classes.count(c) < 3


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0, 0, 0, 0, 1]), min_size=3, max_size=200), st.integers(0, 5))
def test_every_split_has_half_of_its_share_of_a_rare_class(classes: list[int], seed: int) -> None:
    found = split_by_key(keys(list(range(len(classes)))), np.array(classes), seed)
    for c in set(classes):
        count = classes.count(c)
        for k, share in enumerate((0.7, 0.15, 0.15)):
            own = sum(s == k and one == c for s, one in zip(found.split, classes, strict=True))
            assert own >= int(share * count / 2) or count < 3


def test_one_in_fifty_of_200_rows_is_in_every_split_whoever_else_is_there() -> None:
    """Only keys of the rare class that the hash puts elsewhere move, at most one for each split."""
    classes = np.zeros(200, dtype=np.int64)
    classes[:4] = 1
    for seed in range(30):
        found = split_by_key(keys(list(range(200))), classes, seed)
        assert {*found.split[:4].tolist()} == {0, 1, 2}
        assert found.moved <= 2
        order = np.random.default_rng(seed).permutation(200)
        again = split_by_key(keys(order.tolist()), classes[order], seed)
        assert again.split.tolist() == found.split[order].tolist()


def test_keys_that_have_several_classes() -> None:
    for seed in range(50):
        rows = [(key, c) for key in range(3) for c in (0, 1)] + [(3, 0), (4, 1)]
        found = split_by_key(keys([key for key, _ in rows]), np.array([c for _, c in rows]), seed)
        for c in (0, 1):
            assert {
                k for k, (_, own) in zip(found.split.tolist(), rows, strict=True) if own == c
            } == {
                0,
                1,
                2,
            }


def test_copies_have_one_key_and_zeros_have_no_sign() -> None:
    values = np.array([[0.0, np.nan], [-0.0, -np.nan], [0.0, 1.0]])
    first, second, third = row_keys(values)
    assert first == second != third


def test_keys_do_not_depend_on_the_machine() -> None:
    found = split_by_key([*keys(list(range(12))), row_keys(np.array([[1.5, 2.0]]))[0]], none(13), 0)
    assert found.split.tolist() == [0, 0, 2, 1, 2, 0, 0, 0, 0, 0, 0, 1, 1]


def test_other_shares_move_only_the_borders_between_splits():
    keys = [str(k).encode() for k in range(4000)]
    classes = np.zeros(len(keys), dtype=np.int64)
    usual = split_by_key(keys, classes, seed=3).split
    other = split_by_key(keys, classes, seed=3, shares=(0.5, 0.2, 0.3)).split
    for k, share in enumerate((0.5, 0.2, 0.3)):
        assert abs(np.mean(other == k) - share) < 0.03
    # Both divide the same hashes: what was for test with fewer is for test with more.
    assert (other[usual == 2] == 2).all()
    assert (usual[other == 0] == 0).all()

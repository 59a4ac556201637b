"""Dividing samples among silos: nothing lost, nothing twice, nobody empty, always an end."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedegoists.errors import SettingsError
from fedegoists.learning import partitioners as partition
from fedegoists.learning.data import DataError

quick = settings(max_examples=60, deadline=None)
Labels = npt.NDArray[np.int64]

label_arrays = hnp.arrays(np.int64, st.integers(1, 300), elements=st.integers(0, 7))
seeds = st.integers(0, 2**32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(classes: int, each: int, seed: int = 0) -> Labels:
    return rng(seed).permutation(np.repeat(np.arange(classes), each))


def is_partition(parts: tuple[Labels, ...], size: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(size))


class TestPathological:
    @pytest.mark.parametrize(
        ("classes", "each", "held", "size"), [(10, 5000, 2, 5000), (100, 500, 20, 5000)]
    )
    def test_ten_participants_use_everything(
        self, classes: int, each: int, held: int, size: int
    ) -> None:
        labels = balanced(classes, each)
        blocks = partition.consecutive_blocks(classes, 5)
        parts = partition.pathological(labels, 10, blocks, rng())
        assert [len(part) for part in parts] == [size] * 10
        assert is_partition(parts, len(labels))
        for part in parts:
            found, counts = np.unique(labels[part], return_counts=True)
            assert (found // 5).tolist() == list(range(held))  # one from each block
            assert set(counts) == {size // held}
        # Every class is shared by two, not some by many and others by none.
        holders = np.sum([np.isin(np.arange(classes), labels[part]) for part in parts], axis=0)
        assert set(holders) == {2}

    @quick
    @given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 4), st.integers(40, 60), seeds)
    def test_any_number_of_participants(
        self, participants: int, block: int, blocks: int, each: int, seed: int
    ) -> None:
        classes = block * blocks
        labels = balanced(classes, each, seed)
        dealt = partition.consecutive_blocks(classes, block)
        parts = partition.pathological(labels, participants, dealt, rng(seed))
        everything = np.concatenate(parts)
        assert len(np.unique(everything)) == len(everything)
        sharers = -(-participants // block)
        assert {len(part) for part in parts} == {blocks * (each // sharers)}
        for part in parts:
            assert np.unique(labels[part] // block).tolist() == list(range(blocks))
            assert len(np.unique(labels[part])) == blocks
            assert np.all(np.diff(part) > 0)

    def test_seven_share_five_classes_by_hand(self) -> None:
        # Two classes are held by two participants each, so all get half of a class: 50 of 100.
        labels = np.repeat(np.arange(5), 100)
        parts = partition.pathological(labels, 7, [range(5)], rng())
        assert [len(part) for part in parts] == [50] * 7
        counts = np.bincount([labels[part[0]] for part in parts])
        assert sorted(counts) == [1, 1, 1, 2, 2]

    def test_any_class_may_go_to_anybody(self) -> None:
        labels = np.repeat(np.arange(5), 10)
        drawn = [
            [labels[part[0]] for part in partition.pathological(labels, 6, [range(5)], rng(seed))]
            for seed in range(60)
        ]
        for participant in range(6):
            assert {classes[participant] for classes in drawn} == set(range(5))
        # Any two may be those who share a class.
        shared = {
            (i, j)
            for classes in drawn
            for i in range(6)
            for j in range(i)
            if classes[i] == classes[j]
        }
        assert len(shared) == 15

    def test_unequal_classes_still_give_equal_sizes(self) -> None:
        labels = np.repeat([0, 1, 2], [30, 7, 90])
        parts = partition.pathological(labels, 3, [[0, 1, 2]], rng())
        assert [len(part) for part in parts] == [7, 7, 7]

    def test_the_seed_decides(self) -> None:
        labels = balanced(10, 50)
        blocks = partition.consecutive_blocks(10, 5)
        one, same, other = (
            partition.pathological(labels, 10, blocks, rng(seed)) for seed in (1, 1, 2)
        )
        assert all(map(np.array_equal, one, same))
        assert not all(map(np.array_equal, one, other))

    @pytest.mark.parametrize(
        ("blocks", "error", "message"),
        [
            ([], SettingsError, "give at least one block"),
            ([[0], []], SettingsError, "at least one class in each"),
            ([[0, 1], [1]], SettingsError, "class 1 is there twice; blocks must not overlap"),
            ([[0, 2]], DataError, "class 2 has no samples; leave it out"),
        ],
    )
    def test_blocks_that_cannot_be_dealt(
        self, blocks: Any, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=f"^blocks: .*{message}"):
            partition.pathological([0, 1], 1, blocks, rng())

    def test_more_participants_than_samples(self) -> None:
        with pytest.raises(DataError, match=r"^class 0 has 3 samples for 4 participants; take few"):
            partition.pathological([0, 0, 0], 4, [[0]], rng())

    def test_blocks_of_five(self) -> None:
        assert partition.consecutive_blocks(12, 5) == (
            (0, 1, 2, 3, 4),
            (5, 6, 7, 8, 9),
            (10, 11),
        )


class TestDirichlet:
    @quick
    @given(
        label_arrays,
        st.integers(1, 30),
        st.floats(1e-320, 1e308, exclude_min=True) | st.sampled_from([0.01, 0.1, 0.5]),
        st.integers(1, 10),
        seeds,
    )
    def test_a_partition_with_the_least_size_for_any_beta(
        self, labels: Labels, participants: int, beta: float, min_size: int, seed: int
    ) -> None:
        if participants * min_size > len(labels):
            with pytest.raises(SettingsError, match=r"samples are not enough for"):
                partition.dirichlet(labels, participants, beta, rng(seed), min_size)
            return
        parts = partition.dirichlet(labels, participants, beta, rng(seed), min_size)
        assert len(parts) == participants
        assert is_partition(parts, len(labels))
        assert min(map(len, parts)) >= min_size
        assert all(np.all(np.diff(part) > 0) for part in parts)

    @pytest.mark.parametrize(
        ("participants", "beta", "min_size"),
        [(100, 0.01, 10), (100, 1e-9, 10), (1000, 0.01, 50), (10, 0.01, 5000), (3, 1e308, 10)],
    )
    def test_extreme_settings_end(self, participants: int, beta: float, min_size: int) -> None:
        labels = balanced(10, 5000)
        parts = partition.dirichlet(labels, participants, beta, rng(), min_size)
        assert is_partition(parts, len(labels))
        assert min(map(len, parts)) >= min_size

    def test_the_draw_is_kept_where_nobody_has_too_little(self) -> None:
        # The shares of a class come from Dir(beta): E q = 1/n, Var q = (n-1) / (n² (nβ+1)).
        n, beta, each = 4, 0.5, 400
        labels = np.repeat(np.arange(50), each)
        shares = []
        for seed in range(20):
            parts = partition.dirichlet(labels, n, beta, rng(seed), 1)
            shares.append([np.bincount(labels[part], minlength=50) / each for part in parts])
        found = np.array(shares)
        assert found.mean() == pytest.approx(1 / n)
        assert found.var() == pytest.approx((n - 1) / (n**2 * (n * beta + 1)), rel=0.06)

    def test_it_draws_again_before_it_moves_samples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        labels = balanced(3, 40)
        sizes = []
        monkeypatch.setattr(
            partition, "_fill_up", lambda parts, *_: sizes.append(min(map(len, parts)))
        )
        for seed in range(30):
            partition.dirichlet(labels, 3, 0.5, rng(seed), 15)
        assert min(sizes) >= 15

    @pytest.mark.parametrize("beta", [1e15, 1e300, 1.7e308])
    def test_large_beta_divides_evenly(self, beta: float) -> None:
        labels = balanced(10, 1000)
        for part in partition.dirichlet(labels, 10, beta, rng()):
            assert np.bincount(labels[part], minlength=10) == pytest.approx(100, abs=1)

    def test_small_beta_gives_a_class_to_one(self) -> None:
        labels = balanced(10, 1000)
        parts = partition.dirichlet(labels, 3, 1e-300, rng(), 1)
        assert all(set(np.bincount(labels[part], minlength=10)) <= {0, 1000} for part in parts)

    def test_repair_moves_no_more_than_needed_and_from_one_donor(self) -> None:
        parts = [np.arange(0, 90), np.arange(90, 92), np.arange(92, 92), np.arange(92, 100)]
        partition._fill_up(parts, 8, rng())
        assert [len(part) for part in parts] == [76, 8, 8, 8]
        assert {90, 91} < set(parts[1])
        assert parts[3].tolist() == list(range(92, 100))
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(100))

    def test_repair_where_all_must_give(self) -> None:
        parts = [np.arange(0, 6), np.arange(6, 12), np.arange(12, 12)]
        partition._fill_up(parts, 4, rng())
        assert [len(part) for part in parts] == [4, 4, 4]

    def test_the_seed_decides(self) -> None:
        labels = balanced(10, 50)
        one, same, other = (partition.dirichlet(labels, 5, 0.5, rng(seed)) for seed in (1, 1, 2))
        assert all(map(np.array_equal, one, same))
        assert not all(map(np.array_equal, one, other))

    @pytest.mark.parametrize("beta", [0, -1, float("nan"), float("inf"), "0.5"])
    def test_what_is_no_beta(self, beta: Any) -> None:
        with pytest.raises(SettingsError, match=r"^beta is .*; give a number above 0$"):
            partition.dirichlet([0, 1], 1, beta, rng())

    def test_too_many_participants_by_hand(self) -> None:
        with pytest.raises(
            SettingsError,
            match=r"^19 samples are not enough for 2 participants with at least 10 each; lower one",
        ):
            partition.dirichlet([0] * 19, 2, 0.5, rng())


class TestNatural:
    @quick
    @given(st.lists(st.sampled_from(["b", "a", "v10", "v9"])))
    def test_every_sample_under_its_own_name(self, groups: list[str]) -> None:
        found = partition.natural(groups)
        assert set(found) == set(groups)
        for name, positions in found.items():
            assert [groups[k] for k in positions] == [name] * len(positions)
        assert sum(map(len, found.values())) == len(groups)

    def test_names_in_natural_order(self) -> None:
        assert list(partition.natural(["v10", "v9", "v9"])) == ["v9", "v10"]


class TestMatchedTest:
    @quick
    @given(
        hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.just(5)), elements=st.integers(0, 40)),
        seeds,
    )
    def test_each_silo_has_its_own_mix(self, counts: Labels, seed: int) -> None:
        counts[:, 0] += 1  # nobody without any sample
        labels = balanced(5, 60, seed)
        for mix, found in zip(
            counts, partition.matched_test(counts, labels, rng(seed)), strict=True
        ):
            assert len(np.unique(found)) == len(found)
            drawn = np.bincount(labels[found], minlength=5)
            # Rounded, and one more sample would need a class that is used up.
            assert np.abs(drawn - len(found) * mix / mix.sum()).max() < 1
            assert ((len(found) + 1) * mix / mix.sum()).max() > 60

    def test_two_classes_of_cifar_are_tested_on_all_their_images(self) -> None:
        labels = balanced(10, 1000)
        counts = np.zeros((1, 10), dtype=np.int64)
        counts[0, [2, 7]] = 2500
        (found,) = partition.matched_test(counts, labels, rng())
        assert np.array_equal(found, np.flatnonzero(np.isin(labels, [2, 7])))

    def test_silos_may_share_samples(self) -> None:
        one, other = partition.matched_test([[1, 1], [1, 1]], [0, 1], rng())
        assert one.tolist() == other.tolist() == [0, 1]

    def test_silos_of_one_mix_get_different_samples(self) -> None:
        # Three of four samples are of the first class, so not all of the second are used.
        one, other = partition.matched_test([[3, 1], [3, 1]], balanced(2, 50), rng())
        assert one.tolist() != other.tolist()

    @pytest.mark.parametrize(
        ("counts", "message"),
        [
            ([[1, 0], [0, 0]], "^silo 1: it has no training samples"),
            ([[3, 1]], "^silo 0: 25 % of its samples are of class 1, of which there are 0 test"),
            ([1, 0], r"^expected counts as silos × classes, not the shape \(2,\)$"),
        ],
    )
    def test_mixes_that_cannot_be_met(self, counts: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            partition.matched_test(counts, [0, 0, 0, 0], rng())


class TestTrainValidation:
    @quick
    @given(label_arrays, st.floats(0.01, 0.99), seeds)
    def test_all_samples_once_and_every_class_trained_on(
        self, labels: Labels, fraction: float, seed: int
    ) -> None:
        own = np.flatnonzero(rng(seed).random(len(labels)) < 0.7)
        train, validation = partition.train_validation(own, labels, fraction, rng(seed))
        assert np.array_equal(np.sort(np.concatenate([train, validation])), own)
        assert len(own) < 2 or (len(train) and len(validation))
        classes = len(np.unique(labels[own]))
        # Off by one for rounding, and by those classes that have but one sample.
        assert abs(len(validation) - fraction * len(own)) <= 1 + classes
        if len(validation) > 1:
            assert set(labels[train]) == set(labels[own])

    def test_ninety_to_ten_by_class(self) -> None:
        labels = np.repeat(np.arange(10), 500)
        train, validation = partition.train_validation(np.arange(5000), labels, 0.1, rng())
        assert set(np.bincount(labels[train])) == {450}
        assert set(np.bincount(labels[validation])) == {50}

    def test_many_small_classes_still_make_ten_percent(self) -> None:
        # 100 classes of 3: each alone would be rounded to none.
        labels = np.repeat(np.arange(100), 3)
        train, validation = partition.train_validation(np.arange(300), labels, 0.1, rng())
        assert (len(train), len(validation)) == (270, 30)
        assert np.bincount(labels[validation]).max() == 1

    def test_without_labels(self) -> None:
        train, validation = partition.train_validation([5, 6, 7, 8, 9], None, 0.2, rng())
        assert len(validation) == 1
        assert sorted([*train, *validation]) == [5, 6, 7, 8, 9]

    def test_single_samples_of_ten_classes(self) -> None:
        train, validation = partition.train_validation(np.arange(10), np.arange(10), 0.1, rng())
        assert (len(train), len(validation)) == (9, 1)

    def test_one_sample_is_trained_on(self) -> None:
        train, validation = partition.train_validation([3], np.zeros(4, int), 0.5, rng())
        assert (train.tolist(), validation.tolist()) == ([3], [])

    @pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan")])
    def test_what_is_no_fraction(self, fraction: float) -> None:
        with pytest.raises(SettingsError, match=r"^fraction is .*; give a number between 0 and 1"):
            partition.train_validation([0, 1], None, fraction, rng())


class TestStratified:
    @quick
    @given(label_arrays, st.booleans(), seeds)
    def test_parts_have_their_shares_of_every_class(
        self, labels: Labels, everywhere: bool, seed: int
    ) -> None:
        shares = (0.7, 0.15, 0.15)
        parts = partition.stratified(labels, shares, rng(seed), everywhere=everywhere)
        assert is_partition(parts, len(labels))
        counts = np.array([np.bincount(labels[part], minlength=8) for part in parts])
        total = counts.sum(axis=0)
        assert np.all(np.abs(counts - np.outer(shares, total)) < 1 + 1e-9 + everywhere)
        assert np.all(counts[0][total > 0] > 0)
        if everywhere:
            assert np.all(counts[:, total >= 3] > 0)

    def test_three_positives_reach_every_part_only_if_asked(self) -> None:
        labels = np.repeat([0, 1], [97, 3])
        counts = [
            [
                int(labels[part].sum())
                for part in partition.stratified(labels, (0.7, 0.15, 0.15), rng(), everywhere=ask)
            ]
            for ask in (False, True)
        ]
        assert sorted(counts[0]) == [0, 1, 2]
        assert counts[1] == [1, 1, 1]

    def test_order_of_the_samples_in_a_class_is_random(self) -> None:
        first = {
            int(partition.stratified([0] * 10, (0.9, 0.1), rng(seed))[1][0]) for seed in range(40)
        }
        assert len(first) > 5

    @pytest.mark.parametrize("shares", [(), (0.5, 0.4), (1.5, -0.5), (float("nan"), 1.0)])
    def test_what_are_no_shares(self, shares: tuple[float, ...]) -> None:
        with pytest.raises(SettingsError, match=r"^shares are .* sum to 1$"):
            partition.stratified([0, 1], shares, rng())

    @pytest.mark.parametrize("labels", [[0.5], [[0]], ["a"]])
    def test_what_are_no_labels(self, labels: Any) -> None:
        with pytest.raises(DataError, match=r"^labels must be a list of whole numbers, not"):
            partition.stratified(labels, (1.0,), rng())

    def test_nobody(self) -> None:
        assert [len(part) for part in partition.stratified([], (0.5, 0.5), rng())] == [0, 0]

"""The values that say which samples belong to whom, and what they refuse."""

from typing import Any

import numpy as np
import pytest

from fedegoists.errors import FedEgoistsError, GraphError, SettingsError
from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices, SplitSizes
from fedegoists.learning.preparation import Preparation

NOTHING = np.array([], dtype=np.int64)


def silo(name: str, train: list[int], validation: Any = NOTHING, test: Any = NOTHING) -> Any:
    return SiloIndices(name, np.array(train), np.array(validation), np.array(test))


def samples(targets: list[Any]) -> Samples:
    return Samples((np.arange(2.0 * len(targets)).reshape(-1, 2),), np.array(targets))


def data(*silos: SiloIndices, **changes: Any) -> SiloedData:
    settings: dict[str, Any] = {
        "name": "tiny",
        "task": "classification",
        "samples": samples([0, 1, 2, 0, 1, 2]),
        "silos": silos,
        "classes": 3,
        "description": "",
        "notes": (),
    }
    return SiloedData(**(settings | changes))


class TestSamples:
    def test_arrays_are_not_copied_and_cannot_be_changed(self) -> None:
        pixels = np.zeros((3, 32, 32, 3), np.uint8)
        found = Samples((pixels,), np.array([0, 1, 1]))
        assert np.shares_memory(found.inputs[0], pixels)
        with pytest.raises(ValueError, match=r"read-only"):
            found.inputs[0][0] = 1
        pixels[0] = 1  # the owner's own array stays as it was

    @pytest.mark.parametrize(
        ("given", "dtype"),
        [
            (np.array([1, 0], np.uint8), np.int64),
            (np.array([True, False]), np.int64),
            (np.array([1.5, 0.0]), np.float32),
        ],
    )
    def test_targets_have_one_of_two_types(self, given: Any, dtype: Any) -> None:
        assert Samples((np.zeros((2, 1)),), given).targets.dtype == dtype

    def test_several_inputs_and_a_part_of_them(self) -> None:
        both = Samples((np.arange(6).reshape(3, 2), np.zeros((3, 4, 5))), np.array([7, 8, 9]))
        part = both.take(np.array([2, 0]))
        assert len(both) == 3
        assert part.targets.tolist() == [9, 7]
        assert part.inputs[0].tolist() == [[4, 5], [0, 1]]
        assert part.inputs[1].shape == (2, 4, 5)

    @pytest.mark.parametrize(
        ("inputs", "targets", "message"),
        [
            ((), [0], "no inputs; give at least one array"),
            ((np.zeros((2, 1)),), [0], r"input 0 has the shape \(2, 1\); expected \(1, …\)"),
            ((np.zeros((1, 1)), np.zeros((3, 1))), [0], r"input 1 has the shape \(3, 1\)"),
            ((np.zeros(1),), [0], r"input 0 has the shape \(1,\)"),
            ((np.array([["a"]]),), [0], "input 0 holds <U1, not numbers"),
            ((np.zeros((1, 1)),), [[0]], r"targets must be one-dimensional, not \(1, 1\)"),
            ((np.zeros((1, 1)),), ["a"], "targets hold <U1, not numbers"),
        ],
    )
    def test_what_does_not_fit(self, inputs: Any, targets: Any, message: str) -> None:
        with pytest.raises(DataError, match=f"^samples: {message}"):
            Samples(inputs, np.array(targets))


class TestSiloIndices:
    def test_positions_become_read_only_int64(self) -> None:
        found = SiloIndices("a", np.array([2, 1], np.uint8), np.array([]), np.array([0]))
        assert found.train.dtype == found.validation.dtype == np.int64
        assert found.all.tolist() == [2, 1, 0]
        assert found.sizes == SplitSizes(2, 0, 1)
        with pytest.raises(ValueError, match=r"read-only"):
            found.train[0] = 5

    def test_a_later_change_of_the_given_array_changes_nothing(self) -> None:
        train = np.array([0, 1])
        found = SiloIndices("a", train, NOTHING, NOTHING)
        train[0] = 1
        assert found.train.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("parts", "where"),
        [
            (([1, 2, 1], [], []), "in train"),
            (([1], [1], []), "in train and validation"),
            (([1], [2], [2]), "in validation and test"),
            (([1], [], [1]), "in train and test"),
        ],
    )
    def test_a_sample_twice(self, parts: tuple[list[int], ...], where: str) -> None:
        with pytest.raises(DataError, match=rf"^silo 'North': sample \d is there twice, {where};"):
            silo("North", *parts)

    def test_what_is_no_list_of_positions(self) -> None:
        with pytest.raises(DataError, match=r"^silo 'a': the train samples must be a list of pos"):
            silo("a", [0.5])  # type: ignore[list-item]
        with pytest.raises(DataError, match=r"not int64 of the shape \(1, 1\)$"):
            silo("a", [0], [[1]])

    def test_a_name_that_is_none(self) -> None:
        with pytest.raises(GraphError, match=r"silos: a participant's name is empty"):
            silo(" ", [0])

    def test_unknown_split(self) -> None:
        with pytest.raises(SettingsError, match=r"^unknown split 'dev'; splits are train, valid"):
            silo("a", [0]).of("dev")


class TestSiloedData:
    def test_sizes_counts_and_parts_by_hand(self) -> None:
        found = data(silo("North", [0, 3], [1], [5]), silo("South", [2], [4], [5]))
        assert found.participants == ("North", "South")
        assert found.sizes() == {"North": (2, 1, 1), "South": (1, 1, 1)}
        assert found.label_counts().tolist() == [[2, 0, 0], [0, 0, 1]]
        assert found.label_counts("test").tolist() == [[0, 0, 1], [0, 0, 1]]
        assert found.part("South", "validation").inputs[0].tolist() == [[8.0, 9.0]]
        assert found.silo(0).name == "North"

    @pytest.mark.parametrize(
        ("silos", "message"),
        [
            ([], "^tiny: no silos"),
            ([("a", [6])], "^tiny, silo 'a': there is no sample 6; positions are 0 to 5$"),
            ([("a", [0], [-1])], "^tiny, silo 'a': there is no sample -1"),
            ([("a", [], [1])], "^tiny, silo 'a': no training samples; give it some, or leave"),
            (
                [("a", [0, 1]), ("b", [2, 1])],
                "^tiny: sample 1 belongs to the silos 'a' and 'b'; only test samples may be shared",
            ),
            (
                [("a", [0], [1]), ("b", [2], [1])],
                "^tiny: sample 1 belongs to the silos 'a' and 'b'",
            ),
            ([("a", [0]), ("b", [2], [0])], "^tiny: sample 0 belongs to the silos 'a' and 'b'"),
            (
                [("a", [0], [], [2]), ("b", [2])],
                "^tiny: silo 'a' tests on sample 2, which silo 'b' trains or validates on$",
            ),
        ],
    )
    def test_who_may_not_have_what(self, silos: list[Any], message: str) -> None:
        with pytest.raises(DataError, match=message):
            data(*(silo(*given) for given in silos))

    def test_two_silos_of_one_name(self) -> None:
        with pytest.raises(GraphError, match=r"silos of tiny: the name 'a' is listed twice"):
            data(silo("a", [0]), silo("a", [1]))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"task": "ranking"}, "^tiny: unknown task 'ranking'; tasks are classification, bin"),
            (
                {"classes": None},
                "a task of the kind classification has 2 or more classes, not None",
            ),
            ({"classes": 1}, "a task of the kind classification has 2 or more classes, not 1"),
            ({"task": "binary"}, "^tiny: a task of the kind binary has 2 classes, not 3$"),
            ({"classes": 2}, "^tiny: sample 2 has the class 2; classes are 0 to 1$"),
            ({"task": "regression"}, "^tiny: a regression task has no classes; give None$"),
            (
                {"task": "regression", "classes": None},
                "the targets of a regression task are finite floating-point numbers, not int64",
            ),
            (
                {"task": "regression", "classes": None, "samples": samples([0.0, np.nan])},
                "not float32; sample 1 has nan",
            ),
            (
                {"task": "survival", "classes": None, "samples": samples([0.0, -1.5])},
                "a time of 0 tells nothing; times are above 0",
            ),
            ({"samples": samples([0.0, 1.0])}, "^tiny: classes are whole numbers, not float32$"),
        ],
    )
    def test_targets_that_do_not_fit_the_task(self, changes: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            data(silo("a", [0]), **changes)

    def test_a_regression_has_no_labels_to_count(self) -> None:
        found = data(
            silo("a", [0]), task="regression", classes=None, samples=samples([0.5, 1.0, 2.0])
        )
        with pytest.raises(DataError, match=r"a regression has no classes to count"):
            found.label_counts()

    def test_competition_between_silos_it_has(self) -> None:
        found = data(silo("a", [0]), silo("b", [1]), competition_pairs=[["a", "b"]])
        assert found.competition_pairs == (("a", "b"),)
        with pytest.raises(FedEgoistsError, match=r"tiny, competition pair 0: unknown participant"):
            data(silo("a", [0]), competition_pairs=[("a", "c")])

    def test_unknown_silo(self) -> None:
        with pytest.raises(FedEgoistsError, match=r"silos of tiny: unknown participant 'Nord'"):
            data(silo("North", [0])).silo("Nord")


def test_some_silos_alone_keep_their_samples_and_preparation() -> None:
    scale = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    prepared = Preparation("features", ("x", "y"), scale, scale + 10, scale + 20)
    whole = data(
        silo("a", [0]),
        silo("b", [1]),
        silo("c", [2]),
        competition_pairs=(("a", "b"),),
        preparation=(prepared,),
    )
    some = whole.restricted_to(["c", "a"])
    assert some.participants == ("c", "a")
    assert some.silo("c").train.tolist() == [2]
    assert some.preparation[0].center.tolist() == [[5.0, 6.0], [1.0, 2.0]]
    assert some.preparation[0].missing.tolist() == [[25.0, 26.0], [21.0, 22.0]]
    assert some.competition_pairs == ()
    assert whole.restricted_to(["b", "a"]).competition_pairs == (("a", "b"),)

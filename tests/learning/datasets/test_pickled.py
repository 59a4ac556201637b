"""Pickles from outside: official ones are read, all others refused before they can do anything."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.pickled import read_batch
from tests.learning.datasets.fake_cifar import images, python2_batch


class Runs:
    """What is pickled as a call of any function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def test_a_batch_of_python_2() -> None:
    pixels = images(3, 0)
    found = read_batch(python2_batch(pixels, [3, 1, 2]), "batch")
    assert found[b"labels"] == [3, 1, 2]
    assert found[b"batch_label"] == b"one"
    # Row 0 of an image is 1,024 red values, then green, then blue.
    assert found[b"data"].shape == (3, 3072)
    assert found[b"data"][1, 1024 + 32 * 5 + 7] == pixels[1, 5, 7, 1]


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_batch_of_this_numpy(protocol: int, order: Any) -> None:
    array = np.asarray(np.arange(6, dtype=np.uint8).reshape(2, 3), order=order)
    found = read_batch(pickle.dumps({b"data": array}, protocol=protocol), "batch")
    assert found[b"data"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_of_the_system_is_refused_and_not_made(tmp_path: Path, protocol: int) -> None:
    victim = tmp_path / "made"
    hostile = pickle.dumps([Runs(os.mkdir, str(victim))], protocol=protocol)
    with pytest.raises(DataError, match=r"^batch: not a CIFAR batch \(it asks to run \w+\.mkdir\)"):
        read_batch(hostile, "batch")
    assert not victim.exists()
    pickle.loads(hostile)  # what an ordinary reader would have done
    assert victim.exists()


@pytest.mark.parametrize(
    "function", [eval, getattr, np.load, np.frombuffer, Path], ids=lambda f: f.__name__
)
def test_no_other_function_either(function: Any) -> None:
    with pytest.raises(DataError, match=r"it asks to run"):
        read_batch(pickle.dumps(Runs(function, "1")), "batch")


def test_a_name_with_dots_does_not_reach_further() -> None:
    hostile = b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93."
    with pytest.raises(DataError, match=r"it asks to run numpy\.ndarray\.dumps"):
        read_batch(hostile, "batch")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Ran out of input"),
        (b"not a pickle", "not a CIFAR batch"),
        (python2_batch(images(1, 0), [1])[:-100], "not a CIFAR batch"),
        (pickle.dumps([1, 2]), "it holds list, not a dict"),
        (pickle.dumps({b"data": np.zeros(2)}, protocol=2), "asks to run _codecs.encode|other numb"),
        (pickle.dumps({b"data": np.zeros(2)}, protocol=4), "other numbers than uint8"),
        (pickle.dumps({b"data": np.array([None])}, protocol=4), "other numbers than uint8"),
        (b"\x80\x02}Pname\n.", "persistent"),
    ],
    ids=str,
)
def test_damaged_and_foreign_files(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_batch(content, "batch")


def test_a_shape_that_does_not_fit_the_bytes() -> None:
    content = python2_batch(images(1, 0), [1]).replace(b"M\x01\x00", b"M\x02\x00", 1)
    with pytest.raises(DataError, match=r"cannot reshape array of size 3072"):
        read_batch(content, "batch")

"""Gains on images by label counts."""

import numpy as np
import pytest

from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from reproduction.image_gains import ImageGain, counted_labels, fitted, image_gains, label_values

NAMES = ("a", "b", "c")


def divided():
    """Three silos with four samples of class 0, four of class 0, and four of class 1."""
    targets = np.array([0] * 10 + [1] * 5, dtype=np.int64)
    samples = Samples((np.zeros((15, 2), np.float32),), targets)
    rows = np.split(np.arange(15), 3)
    silos = tuple(
        SiloIndices(name, own[:3], own[3:4], own[4:]) for name, own in zip(NAMES, rows, strict=True)
    )
    return SiloedData("toy", "classification", samples, silos, 2, "", ())


def cell(variant, test, *, validation=0.5, **more):
    return {
        "data": "toy",
        "options": {"partition": "dirichlet", "beta": 0.5},
        "budget": "converged",
        "length": 1,
        "variant": variant,
        "competition": "0.2",
        "repetition": 0,
        "test": dict(zip(NAMES, test, strict=True)),
        "validation": dict.fromkeys(NAMES, validation),
        "coalitions": [["a", "b", "c"]],
        **more,
    }


def test_samples_of_other_classes_tell_nothing():
    labels = counted_labels(divided())
    assert labels.tolist() == [[3, 0], [3, 0], [0, 3]]
    gains = label_values(labels, NAMES).gains(np.ones((1, 3), bool))[0]
    # One doubling with power −0.3: (2^−0.3 − 1) / (−0.3 · ln 2).
    assert gains[:2] == pytest.approx([(2**-0.3 - 1) / (-0.3 * np.log(2))] * 2)
    assert gains[2] == 0


def test_realised_gains_are_over_local_at_the_rate_that_validation_prefers():
    cells = [
        cell("local", (0.5, 0.5, 0.5)),
        cell("egomix-wide", (0.6, 0.7, 0.5)),
        cell("egomix-wide", (0.9, 0.9, 0.9), validation=0.4),
        cell("egomix-wide", (0.1, 0.1, 0.1), validation=0.9, budget="published"),
    ]
    found = image_gains(cells, {("toy", "dirichlet", 0): divided()})
    assert [one.realised for one in found] == pytest.approx([10, 20, 0])
    assert [one.told > 0 for one in found] == [True, True, False]


def test_the_slope_is_that_of_other_repetitions():
    def gain(repetition, told, realised):
        return ImageGain("toy", "dirichlet", "0.2", repetition, "a", 2, told, realised)

    predicted = fitted([gain(0, 1, 2.0), gain(0, 2, 4.0), gain(1, 1, 3.0)])
    assert predicted.tolist() == [3.0, 6.0, 2.0]

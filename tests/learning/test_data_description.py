"""Descriptions say of data what the data says of itself, without samples."""

import numpy as np
import pytest

from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices, SplitSizes
from fedegoists.learning.data_description import DataDescription, published_competition
from fedegoists.learning.model_registry import model_options
from fedegoists.training.defaults import defaults_for, learn_settings


def siloed(*shapes, classes=2, pairs=()):
    inputs = tuple(np.zeros((6, *shape), np.float32) for shape in shapes)
    samples = Samples(inputs, np.array([0, 1, 0, 1, 0, 1]))
    north = SiloIndices("North", np.array([0, 1]), np.array([2]), np.array([5]))
    south = SiloIndices("South", np.array([3]), np.array([4]), np.array([5]))
    task = "binary" if classes == 2 else "classification"
    return SiloedData("tiny", task, samples, (north, south), classes, "", (), pairs)


@pytest.mark.parametrize(
    ("shapes", "classes"),
    [([(3,)], 2), ([(3,)], 5), ([(24, 4), (2,)], 2), ([(32, 32, 3)], 10), ([(32, 32, 3)], 100)],
)
def test_networks_and_settings_follow_from_a_description_as_from_the_data(shapes, classes):
    data = siloed(*shapes, classes=classes)
    description = DataDescription.of(data, "digest")
    assert description.participants == data.participants
    assert description.sizes == {"North": SplitSizes(2, 1, 1), "South": SplitSizes(1, 1, 1)}
    assert set(description.kinds) == {"f4"}
    assert model_options(description) == model_options(data)
    assert defaults_for(description) == defaults_for(data)
    assert learn_settings(description) == learn_settings(data)


def test_no_published_competition_is_an_error_and_not_an_empty_graph():
    pairs = (("North", "South"),)
    assert published_competition(DataDescription.of(siloed((3,), pairs=pairs), "")) == pairs
    with pytest.raises(DataError, match="no published competition"):
        published_competition(siloed((3,)))

"""What a silo tells of its classes inside a masked sum: no more than outside of it."""

import pytest

from fedegoists.federation import Describe
from fedegoists.federation.flare.silo_masking import class_fractions
from fedegoists.federation.flare.silo_settings import SiloSettings
from tests.silos import federation


def settings(level="none", **limits):
    return SiloSettings.model_validate(
        {
            "participant": "s0",
            "data": {"source": "x"},
            "privacy": {"level": level},
            "limits": limits,
        }
    )


@pytest.fixture(scope="module")
def silos():
    return federation("cifar10-cnn")


@pytest.mark.parametrize(("level", "noise"), [("none", 0.0), ("strict", 8.0)])
def test_fractions_are_those_of_the_counts_that_the_silo_tells(silos, level, noise):
    name = silos.participants[0]
    labels = silos.call({name: Describe(noise=noise)})[name].labels
    told = class_fractions(silos, name, settings(level))
    assert told == [count / sum(labels) for count in labels]
    assert told == class_fractions(silos, name, settings(level))  # noise does not wear off
    exact = silos.call({name: Describe()})[name].labels
    assert (labels == exact) == (noise == 0)


def test_a_silo_that_does_not_describe_its_data_tells_no_fractions(silos):
    own = settings(operations=["train"])
    assert class_fractions(silos, silos.participants[0], own) == [0.1] * 10

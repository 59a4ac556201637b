"""Values of options: what is accepted, and what the error says."""

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning.options import generator, one_of, positive_number, whole_number


def test_words() -> None:
    assert one_of("impute", "mean", ("mean", "none")) == "mean"
    with pytest.raises(SettingsError, match=r"^impute is 'median'; choose one of mean, none$"):
        one_of("impute", "median", ("mean", "none"))
    with pytest.raises(SettingsError, match=r"^impute is None"):
        one_of("impute", None, ("mean",))


@pytest.mark.parametrize("value", [True, -1, 2.0, "2", None, 8, np.int64(-3)])
def test_what_is_no_whole_number_between_0_and_7(value: object) -> None:
    with pytest.raises(SettingsError, match=r"^n is .*; give a whole number from 0 to 7$"):
        whole_number("n", value, 0, 7)


def test_whole_numbers_of_numpy() -> None:
    assert whole_number("n", np.uint8(7), 0, 7) == 7
    with pytest.raises(SettingsError, match=r"give a whole number of at least 3"):
        whole_number("n", 2, 3)


@pytest.mark.parametrize("value", [0, -0.5, True, np.True_, float("nan"), float("inf"), "1", None])
def test_what_is_no_positive_number(value: object) -> None:
    with pytest.raises(SettingsError, match=r"^beta is .*; give a number above 0$"):
        positive_number("beta", value)


def test_positive_numbers() -> None:
    assert positive_number("beta", 5e-324) == 5e-324
    assert positive_number("beta", np.float32(0.5)) == 0.5


def test_a_seed_gives_the_same_numbers() -> None:
    assert generator(3).integers(10**9) == generator(3).integers(10**9)
    with pytest.raises(SettingsError, match=r"^seed is -1; give a whole number of at least 0$"):
        generator(-1)

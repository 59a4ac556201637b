"""Errors of settings: the key, its value, and what is allowed, in one sentence."""

import pytest
from pydantic import Field

from fedegoists.errors import SettingsError
from fedegoists.learning.typed_settings import TypedSettings, validated


class Inner(TypedSettings):
    """A table of settings."""

    rate: float = Field(default=0.1, gt=0)
    """The rate."""


class Outer(TypedSettings):
    """All settings."""

    name: str
    inner: Inner = Inner()
    values: dict[str, str | int] = Field(default={})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "name is missing"),
        ({"nmae": "x"}, "unknown key 'nmae'; keys are name, inner, values"),
        ({"name": "x", "inner": {"rat": 1}}, "unknown key 'inner.rat'; keys of inner are rate"),
        ({"name": "x", "inner": {"rate": 0}}, "inner.rate is 0: input should be greater than 0"),
        ({"name": "x", "inner": {"rate": float("inf")}}, "inner.rate is inf: input should be a"),
        ({"name": 3}, "name is 3: input should be a valid string"),
        ({"name": "x", "values": {"a": [1]}}, r"values is \[1\]: input should be a valid"),
    ],
)
def test_the_first_problem_is_named(given, message):
    with pytest.raises(SettingsError, match=f"^here: {message}"):
        validated(Outer, given, "here")


def test_a_docstring_is_the_description():
    assert Inner.model_fields["rate"].description == "The rate."
    assert validated(Inner, {"rate": 1}, "here").rate == 1.0

"""Requests are checked when they are made."""

import math

import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Gradient, Keep, LocalTerms, Personal, Train
from fedegoists.federation import TrainSettings as Settings
from fedegoists.federation.requests import check_size

VECTOR = torch.zeros(3)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Settings(steps=0), "steps is 0; expected a whole number, 1 to 1e"),
        (lambda: Settings(steps=2.5), "steps is 2.5; expected a whole number"),
        (lambda: Settings(learning_rate=math.nan), "learning_rate is nan; expected a"),
        (lambda: Settings(momentum=-0.1), "momentum is -0.1; expected a number, at least 0"),
        (lambda: Settings(speed=1), "TrainSettings has no speed"),
        (lambda: Train(parameters=VECTOR), "no settings in Train"),
        (lambda: Train(parameters=torch.zeros(2, 3), settings=Settings()), "not one vector"),
        (lambda: Evaluate(parameters=[0.0], split="test"), "a list where numbers belong"),
        (lambda: Evaluate(parameters=VECTOR, split="holdout"), "split is holdout"),
        (lambda: Gradient(parameters=VECTOR, noise=1.0), "set clip"),
        (lambda: Gradient(parameters=VECTOR, share=1.5), "share"),
        (lambda: Personal(prefixes=(), slot="x"), "prefixes"),
        (lambda: Keep(slot="../x"), "slot"),
    ],
)
def test_what_does_not_fit_is_named(make, complaint):
    with pytest.raises(SettingsError, match=complaint):
        make()


def test_requests_are_alike_whatever_their_tensors():
    def train(value, **fields):
        terms = LocalTerms(anchor=torch.full((3,), value), pull=value)
        request = Train(parameters=VECTOR + value, settings=Settings(), terms=terms)
        return request.changed(**fields)

    assert train(1.0).alike == train(2.0).alike
    assert train(1.0).alike != train(1.0, seed=5).alike
    assert train(1.0).alike != train(1.0, terms=None).alike
    assert train(1.0).alike != train(1.0, settings=Settings(steps=3)).alike


def test_every_vector_of_a_request_is_as_long_as_the_model():
    short = LocalTerms(correction=torch.zeros(2))
    with pytest.raises(SettingsError, match=r"\(2,\) parameters where \(3,\) are expected"):
        check_size(Train(parameters=VECTOR, settings=Settings(), terms=short), 3)


def test_a_request_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Keep(slot="x").slot = "y"

"""The range test of learning rates."""

import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import Trained
from fedegoists.learning.datasets import load
from fedegoists.training.rate_search import FACTORS, with_searched_rate
from fedegoists.training.repetitions import Repetitions
from tests.silos import simulated


def repetitions():
    return Repetitions.simulated({0: load("synthetic-weak")}, steps=40, device="cpu", model="mlp")


def test_the_rate_is_one_of_those_tried_and_is_said():
    said, before = [], repetitions()
    after = with_searched_rate(before, said.append)
    rates = [before.defaults.train.learning_rate * factor for factor in FACTORS]
    assert after.defaults.train.learning_rate in rates
    assert after.defaults.tune.learning_rate == after.defaults.train.learning_rate / 2
    assert "learning rate" in said[0]
    assert with_searched_rate(repetitions()).defaults == after.defaults  # nothing is left behind


def test_losses_that_silos_do_not_tell_are_asked_for_in_vain():
    before = repetitions()

    def private(request, reply):
        return reply.model_copy(update={"loss": 0.0}) if isinstance(reply, Trained) else reply

    data = {0: load("synthetic-weak")}
    silent = simulated(data, torch.nn.Linear(20, 1))
    silent = simulated(data, torch.nn.Linear(20, 1), dict.fromkeys(silent.participants, private))
    start = torch.zeros(len(silent.participants), 21)
    with pytest.raises(SettingsError, match="needs losses, which silos with privacy do not tell"):
        with_searched_rate(Repetitions(silent, start, before.defaults, {}))

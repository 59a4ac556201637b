"""How long participants train and fine-tune where nothing else is said."""

import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning.datasets import load
from fedegoists.training.defaults import defaults_for, schedule_for


@pytest.fixture(scope="module")
def data():
    return load("synthetic-weak")


def tuned(defaults):
    return defaults.tune.steps * defaults.tune_rounds


def test_a_short_training_is_fine_tuned_no_longer_than_it_took(data):
    usual = schedule_for(data)
    assert tuned(defaults_for(data)) == usual.tuning_steps
    for steps in (1, 7, 60, usual.tuning_steps - 1):
        short = defaults_for(data, steps)
        assert 0 < tuned(short) <= short.rounds * short.train.steps
        assert short.tune.total_steps == min(usual.tuning_steps, short.rounds * short.train.steps)
    assert tuned(defaults_for(data, 60)) == 60


def test_longer_training_has_the_usual_fine_tuning(data):
    usual = schedule_for(data)
    assert tuned(defaults_for(data, 4 * usual.steps)) == usual.tuning_steps


def test_no_steps_are_refused(data):
    with pytest.raises(SettingsError, match="0 training steps; expected at least 1"):
        defaults_for(data, 0)

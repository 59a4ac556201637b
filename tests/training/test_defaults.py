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


def test_fine_tuning_is_as_much_shorter_as_training(data):
    usual = schedule_for(data)
    assert tuned(defaults_for(data)) == usual.tuning_steps
    tenth = defaults_for(data, usual.steps // 10)
    assert 0 < tuned(tenth) <= -(-usual.tuning_steps // 10)
    assert tenth.tune.total_steps == pytest.approx(usual.tuning_steps / 10, abs=1)
    assert tuned(defaults_for(data, 1)) == 1


def test_longer_training_has_the_usual_fine_tuning(data):
    usual = schedule_for(data)
    assert tuned(defaults_for(data, 4 * usual.steps)) == usual.tuning_steps


def test_no_steps_are_refused(data):
    with pytest.raises(SettingsError, match="0 training steps; expected at least 1"):
        defaults_for(data, 0)

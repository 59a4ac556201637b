"""The registry of estimators: what it says of each is so."""

import pytest

from fedegoists.benefit import ESTIMATOR_ENTRIES, LearnSettings, learn
from fedegoists.errors import SettingsError
from tests.benefit.consortia import OTHER, TASK, federation, regressions
from tests.benefit.test_decoys import Recorder
from tests.benefit.test_learning_benefit import quick


@pytest.mark.parametrize("name", ESTIMATOR_ENTRIES)
def test_its_settings_are_settings(name):
    assert set(ESTIMATOR_ENTRIES[name].settings) <= LearnSettings.model_fields.keys()


@pytest.mark.parametrize("name", ESTIMATOR_ENTRIES)
def test_clipping_is_refused_where_it_would_not_protect_or_not_work(name):
    entry = ESTIMATOR_ENTRIES[name]
    if entry.sends == "models" or entry.needs_losses:
        with pytest.raises(SettingsError, match="use 'hypernetwork'"):
            LearnSettings(estimator=name, clip=1.0)
    else:
        assert LearnSettings(estimator=name, clip=1.0).clip == 1.0


def allowed(name):
    return quick(name, steps=4, preference_steps=2, mingling=True)


@pytest.mark.parametrize("name", ESTIMATOR_ENTRIES)
def test_estimators_that_mingle_are_refused_where_there_is_competition_unless_allowed(name):
    silos = Recorder(federation(regressions({"a": TASK, "b": TASK, "c": OTHER}, train=40)), "a")
    if not ESTIMATOR_ENTRIES[name].mingles:
        learn(silos, quick(name), apart=[("a", "b")], secret="")
        return
    with pytest.raises(SettingsError, match=r"competitors included; use .*curves.*mingling = true"):
        learn(silos, quick(name), apart=[("a", "b")], secret="")
    assert not silos.calls  # before anything was shown to anybody
    learn(silos, quick(name, steps=4, preference_steps=2), secret="")  # there is no competition


@pytest.mark.parametrize("name", ESTIMATOR_ENTRIES)
def test_only_estimators_that_mingle_show_a_silo_anything_of_its_competitor(name):
    """Change a competitor's data: is what the other silo is asked about still the same?"""
    seen = []
    for task in (TASK, [5.0, 5.0, 5.0, 5.0]):
        data = regressions({"a": TASK, "b": task, "c": OTHER}, train=40)
        silos = Recorder(federation(data), "a")
        learn(silos, allowed(name), apart=[("a", "b")], secret="")
        seen.append([rows for _, rows, _ in silos.calls])
    same = all((one == other).all() for one, other in zip(*seen, strict=True))
    assert same != ESTIMATOR_ENTRIES[name].mingles


@pytest.mark.parametrize("name", ESTIMATOR_ENTRIES)
def test_competitors_matter_only_where_their_models_have_to_be_hidden(name):
    data = regressions({"a": TASK, "b": TASK, "c": OTHER}, train=40)
    settings = allowed(name)
    free, apart = (
        learn(federation(data), settings, apart=pairs, secret="").runs
        for pairs in ([], [("a", "b")])
    )
    assert (free != apart).any() == ESTIMATOR_ENTRIES[name].hides

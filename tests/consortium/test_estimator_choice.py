"""Which estimator a run uses, and the reason that it gives."""

from types import SimpleNamespace

import pytest

from fedegoists.benefit import LearnSettings
from fedegoists.consortium.consortium_settings import (
    BenefitSection,
    ConsortiumSettings,
    DataSection,
    FormationSection,
)
from fedegoists.consortium.estimator_choice import check_answers, chosen_estimator
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.errors import SettingsError


class Silos:
    """An engine whose silos have a hindrance, which depends on what they are asked for."""

    local = False

    def __init__(self, data, *, consent=True, noisy=False, most=None):
        self.data, self._consent, self._noisy, self._most = data, consent, noisy, most

    def hindrance(self, answers, *, models=True):
        if models and not self._consent:
            return "s1 lets no model leave"
        if self._noisy:
            return "s1 adds noise"
        return "s1 answers rarely" if self._most is not None and answers > self._most else ""


def settings_of(source="synthetic-weak", **sections):
    return ConsortiumSettings(name="c", data=DataSection(source=source), **sections)


def chosen(engine=None, model="auto", kind="network", *, competition=False, **sections):
    settings = settings_of(**sections)
    engine = SimulatedEngine(settings) if engine is None else engine
    return chosen_estimator(settings, engine, model, kind, competition=competition)


@pytest.fixture(scope="module")
def data():
    return SimulatedEngine(settings_of()).data


def test_expected_gains_decide_by_default():
    assert chosen().name == "curves"


@pytest.mark.parametrize(
    ("sections", "name", "reason"),
    [
        ({"benefit": BenefitSection(threshold=0.1)}, "transfer", "benefit.threshold is about"),
        ({"benefit": BenefitSection(confidence=0.8)}, "transfer", "benefit.confidence is about"),
        ({"formation": FormationSection(method="stable")}, "transfer", "needs a benefit graph"),
        ({"benefit": BenefitSection(estimator="alignment")}, "alignment", "as set"),
        ({"benefit": BenefitSection(estimator="everybody")}, None, "as set"),
    ],
)
def test_what_is_set_decides_otherwise(sections, name, reason):
    found = chosen(**sections)
    assert found.name == name
    assert reason in found.reason


IMAGES = SimpleNamespace(
    name="scans",
    task="classification",
    classes=10,
    shapes=((3, 32, 32),),
    participants=("North", "South"),
)


class HereSilos(Silos):
    """The same on this machine, without a hindrance."""

    local = True


@pytest.mark.parametrize("competition", [False, True])
def test_expected_gains_decide_for_images_on_this_machine(competition):
    assert chosen(HereSilos(IMAGES), competition=competition).name == "curves"


def test_images_at_organisations_are_compared_by_transfer():
    assert chosen(Silos(IMAGES)).name == "transfer"


def test_benefits_of_pairs_of_images_keep_competitors_apart():
    images, section = HereSilos(IMAGES), BenefitSection(threshold=0.1)
    assert chosen(images, benefit=section).name == "hypernetwork"
    found = chosen(images, benefit=section, competition=True)
    assert found.name == "transfer"
    assert "hypernetwork would not keep competitors apart" in found.reason


def test_clipping_is_for_the_estimator_with_gradients():
    clipped = BenefitSection(clip=1.0, noise=2.0)
    for engine in (HereSilos(IMAGES), None):
        assert chosen(engine, benefit=clipped).name == "hypernetwork"
    with pytest.raises(SettingsError, match="sends trained models"):
        chosen(HereSilos(IMAGES), benefit=clipped, competition=True)


def test_models_without_gradients_are_compared_by_transfer():
    assert chosen(kind="trees").name == "transfer"


@pytest.mark.parametrize(
    ("limits", "name", "reason"),
    [
        ({}, "curves", "units of the metric"),
        ({"consent": False}, "transfer", "lets no model leave"),
        ({"noisy": True}, "transfer", "adds noise"),
        ({"most": 10}, "transfer", "answers rarely"),
        ({"most": 10_000}, "curves", "units of the metric"),
    ],
)
def test_silos_limits_decide_over_a_deployment(data, limits, name, reason):
    found = chosen(Silos(data, **limits))
    assert found.name == name
    assert reason in found.reason


def test_without_transfers_no_model_has_to_leave(data):
    section = BenefitSection(transfers=False)
    assert chosen(Silos(data, consent=False), benefit=section).name == "curves"
    assert chosen(Silos(data, noisy=True), benefit=section).name == "transfer"


def test_curves_are_refused_before_silos_with_noise_are_asked(data):
    own = LearnSettings(estimator="curves")
    check_answers(own, Silos(data, consent=False))  # consent is another question
    with pytest.raises(SettingsError, match="curves cannot be used here, since s1 adds noise"):
        check_answers(own, Silos(data, noisy=True))
    check_answers(LearnSettings(estimator="transfer"), Silos(data, noisy=True))


def test_transfers_are_for_curves():
    with pytest.raises(ValueError, match="transfers is for curves, not for alignment"):
        BenefitSection(estimator="alignment", transfers=False)

"""When silos try several weight decays."""

import pytest

from fedegoists.consortium.consortium_settings import TrainingSection
from fedegoists.consortium.model_choice import searches_decay
from fedegoists.learning.model_registry import model_named


@pytest.mark.parametrize(
    ("given", "model", "simulated", "searched"),
    [
        (None, "logistic", True, True),
        (None, "cox", True, True),
        (None, "linear", False, False),  # it would cost rounds of the silos' daily limits
        ("auto", "linear", False, True),
        (0.1, "linear", True, False),
        (0, "logistic", True, False),
        (None, "mlp", True, False),
        ("auto", "mlp(hidden=5)", True, True),
    ],
)
def test_who_searches(given, model, simulated, searched):
    training = TrainingSection(weight_decay=given)
    assert searches_decay(training, model_named(model), simulated=simulated) == searched
    assert ("weight_decay" in training.changes) == (given in (0.1, 0) and given is not None)

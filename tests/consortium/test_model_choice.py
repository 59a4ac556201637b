"""Settings of training that suit a model, and those that mean nothing to it."""

import numpy as np
import pytest

from fedegoists.benefit import BenefitEstimate
from fedegoists.consortium.consortium_settings import TrainingSection
from fedegoists.consortium.model_choice import fitting_methods, remarks_on, searches_decay
from fedegoists.errors import SettingsError
from fedegoists.learning.model_registry import model_named
from tests.consortium.reports import circle, make


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


@pytest.mark.parametrize(
    ("kind", "given", "refused"),
    [
        ("trees", {"weight_decay": "auto"}, "training.weight_decay: trees are not trained by grad"),
        ("trees", {"weight_decay": 0.1}, "training.weight_decay: trees are not trained by grad"),
        ("trees", {"learning_rate": "auto"}, "training.learning_rate: trees need a number"),
        ("trees", {"class_weights": "balanced"}, ""),
        ("arrays", {"accumulate": 2}, "training.accumulate: this model is trained by its own fu"),
        ("arrays", {"precision": "bf16"}, "training.precision: this model is trained by its own"),
        ("arrays", {"sam_radius": 0.1}, "training.sam_radius: this model is trained by its own"),
        ("arrays", {"weight_decay": "auto"}, ""),
        ("network", {"accumulate": 2, "precision": "bf16", "weight_decay": "auto"}, ""),
        ("network", {"sam_radius": 0.1}, ""),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(kind, given, refused):
    training = TrainingSection(**given)
    if refused:
        with pytest.raises(SettingsError, match=refused):
            fitting_methods(training, kind)
    else:
        assert fitting_methods(training, kind).changes == training.changes


def test_the_log_says_where_gradients_ignore_precision(tmp_path):
    names = ["North", "South"]
    own = {"methods": ("local", "fedegoists"), "seeds": 1, "precision": "bf16", "sam_radius": 0.1}
    run = make(tmp_path, names, circle(names), **own)
    log = (run.folder / "log.txt").read_text()
    assert "fedegoists: its gradients are of whole batches with 32 bits" in log
    assert "local: its gradients" not in log
    assert "fedegoists: counts on plain steps of gradient descent; trained without sam_radi" in log
    assert "local: counts on plain" not in log
    zero = np.zeros((1, 1, 2, 2))
    for estimator, told in (("hypernetwork", True), ("transfer", False)):
        estimate = BenefitEstimate(("North", "South"), estimator, zero, zero, zero[0, 0])
        remarks = " ".join(remarks_on(run.repetitions, ("local",), estimate))
        assert (f"the estimator {estimator}: its gradients are of whole" in remarks) == told
        assert (f"the estimator {estimator}: its gradients are of models as" in remarks) == told

"""Models on arrays: three functions are enough, and what they cannot do is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation, TrainSettings
from fedegoists.learning.array_models import ArrayModel, ArrayNetwork
from fedegoists.learning.own_models import model_parts
from fedegoists.methods import METHODS, RunSettings, run
from fedegoists.methods.failed_rounds import FailedRunError
from tests.docs.pages import HowTo
from tests.trees import FEATURES, planted

STEPS = TrainSettings(steps=7)


class Mean(ArrayModel):
    """Predicts the mean of the training targets, towards which it goes half-way."""

    def start(self, seed):
        return {"mean": np.array([float(seed)])}

    def fit(self, parameters, x, y, settings, seed):
        return {"mean": (parameters["mean"] + y.mean()) / 2}

    def predict(self, parameters, x):
        return np.full((len(x), 1), parameters["mean"])


def averaged(model, data, method="fedavg", rounds=1):
    network = ArrayNetwork(model, seed=0)
    federation = SimulatedFederation(data, network)
    start = federation.schema.flatten(dict(network.named_parameters()))
    rows = start.expand(len(data.participants), -1).clone()
    over = RunSettings(rounds=rounds, seed=0)
    return run(METHODS[method](STEPS), federation, [federation.participants], rows, over)


def test_the_mean_of_means_by_hand():
    data = planted((40, 80), task="regression")
    own = [data.samples.targets[silo.train].mean() / 2 for silo in data.silos]
    expected = (28 * own[0] + 56 * own[1]) / 84
    outcome = averaged(Mean(), data)
    np.testing.assert_allclose(outcome.state.parameters.ravel(), [expected] * 2, rtol=1e-5)
    local = averaged(Mean(), data, "local").state.parameters.ravel()
    np.testing.assert_allclose(local, own, rtol=1e-5)


def test_fedavg_of_scikit_learn_is_the_average_of_its_coefficients():
    linear = pytest.importorskip("sklearn.linear_model")
    names: dict = {}
    code = HowTo("how-to-own-model").block_with("SGDClassifier")
    exec(compile(code, "how-to-own-model.md", "exec"), names)
    data = planted((60, 120))
    model = names["build"](SimpleNamespace(shapes=[(FEATURES,)]))
    rows, seeds = [], []
    fit = model.fit
    model.fit = lambda *given: seeds.append(given[4]) or fit(*given)
    outcome = averaged(model, data)
    for silo, seed in zip(data.silos, seeds, strict=True):
        x, y = data.samples.inputs[0][silo.train], data.samples.targets[silo.train]
        found = linear.SGDClassifier(
            loss="log_loss",
            alpha=0.01,
            max_iter=7,
            tol=None,
            random_state=seed,
            learning_rate="constant",
            eta0=STEPS.learning_rate,
        ).fit(x, y)
        rows.append(np.concatenate([found.coef_[0], found.intercept_]))
    expected = (42 * rows[0] + 84 * rows[1]) / 126
    np.testing.assert_allclose(outcome.state.parameters[0], expected, rtol=1e-5)
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("method", ["fedavgm", "feddisco", "egomix", "pfedhn"])
def test_methods_that_need_only_models_work(method):
    outcome = averaged(Mean(), planted((40, 80)), method, rounds=3)
    assert not outcome.failures
    assert outcome.state.parameters.isfinite().all()


@pytest.mark.parametrize("method", ["fedprox", "scaffold", "pfedme", "fedegoists"])
def test_methods_that_need_gradients_fail_with_the_reason(method):
    with pytest.raises(FailedRunError, match="trained by its own function fit"):
        averaged(Mean(), planted((40, 80)), method)


class Wrong(Mean):
    """Returns something else at one place."""

    def __init__(self, place, value):
        self.place, self.value = place, value

    def start(self, seed):
        return self.value if self.place == "start" else super().start(seed)

    def fit(self, *given):
        return self.value if self.place == "fit" else super().fit(*given)


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        ("start", None, "start returned None; expected a dictionary"),
        ("start", {"a.b": [1.0]}, "start names a parameter 'a.b'"),
        ("start", {"a": "text"}, "start, a: expected an array of numbers"),
        ("fit", {"other": [1.0]}, "fit returned other; expected mean"),
        ("fit", {"mean": [1.0, 2.0]}, r"fit returned mean of the shape \(2,\); it started with"),
    ],
)
def test_what_a_model_returns_is_checked(place, value, complaint):
    with pytest.raises((SettingsError, FailedRunError), match=complaint):
        averaged(Wrong(place, value), planted((40, 40)))


OWN_TRAINER = """
import torch
from fedegoists.federation.array_trainer import ArrayTrainer
from fedegoists.learning.array_models import ArrayNetwork
from fedegoists.learning.network import Network
from fedegoists.learning.task import TASKS
from tests.federation.test_array_trainer import Mean

class Own(ArrayTrainer):
    def initial(self, seed):
        return torch.full((1,), 5.0)

def build(data):
    return Own(Network(ArrayNetwork(Mean(), 0), TASKS[data.task]))
"""


def test_a_whole_trainer_may_come_from_a_file(tmp_path):
    (tmp_path / "model.py").write_text(OWN_TRAINER)
    data = planted((40, 80), task="regression")
    parts = model_parts(data, f"{tmp_path / 'model.py'}:build")
    federation = SimulatedFederation(data, parts)
    rows = federation.schema.drawn(0).expand(2, -1).clone()  # as its function initial says
    assert rows.tolist() == [[5.0], [5.0]]
    over = RunSettings(rounds=1, seed=0)
    outcome = run(METHODS["local"](STEPS), federation, [federation.participants], rows, over)
    own = [(5 + data.samples.targets[silo.train].mean()) / 2 for silo in data.silos]
    np.testing.assert_allclose(outcome.state.parameters.ravel(), own, rtol=1e-5)
    (tmp_path / "other.py").write_text("def build(data):\n    return 3\n")
    with pytest.raises(SettingsError, match=r"returned a int; expected a torch.nn.Module, an Arr"):
        model_parts(data, f"{tmp_path / 'other.py'}:build")


def test_outputs_are_as_the_model_predicts_them():
    network = ArrayNetwork(Mean(), seed=3)
    assert network(torch.zeros(2, FEATURES)).tolist() == [[3.0], [3.0]]
    assert network.current()["mean"].dtype == np.float64

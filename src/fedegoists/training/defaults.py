"""Models and settings that suit each data set; the same for every method."""

from dataclasses import dataclass
from typing import Any

from fedegoists.benefit import LearnSettings
from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.data import SiloedData
from fedegoists.learning.models import model_options

__all__ = ["Defaults", "defaults_for", "learn_settings", "model_options"]


@dataclass(frozen=True)
class Defaults:
    """A model's name, how silos train in each round, for how long, and how they are fine-tuned."""

    model: str
    train: TrainSettings
    rounds: int
    tune: TrainSettings
    tune_rounds: int
    evaluate_every: int


def defaults_for(data: SiloedData, steps: int | None = None) -> Defaults:
    """Return settings for a data set; `steps`, rounded up to whole rounds, is before tuning."""
    images = data.samples.inputs[0].ndim == 4
    hourly = data.samples.inputs[0].ndim == 3
    if images:
        model = "cifar100-cnn" if data.classes == 100 else "cifar10-cnn"
        total, rate, decay, tune = 4000, 0.02, 5e-4, 400
    elif hourly:
        model, total, rate, decay, tune = "icu-transformer", 400, 0.01, 1e-4, 100
    else:
        model, total, rate, decay, tune = "mlp", 2000, 0.01, 0.0, 200
    # The momentum starts anew in every round of an averaging method, so rounds must not be short.
    each = 50 if images else 20
    if steps is not None:
        if steps < 1:
            raise SettingsError(f"{steps} training steps; expected at least 1")
        total = steps
    tuning = each
    each = min(each, total)
    rounds = -(-total // each)
    return Defaults(
        model=model,
        train=TrainSettings(
            steps=each,
            learning_rate=rate,
            weight_decay=decay,
            total_steps=rounds * each,
            augment=images,
        ),
        rounds=rounds,
        tune=TrainSettings(
            steps=tuning,
            learning_rate=rate / 2,
            weight_decay=decay,
            total_steps=tune,
            augment=images,
        ),
        tune_rounds=tune // tuning,
        evaluate_every=max(1, rounds // 20),
    )


def learn_settings(data: SiloedData, estimator: str | None = None, **changes: Any) -> LearnSettings:
    """Return how to learn the benefit graph of a data set.

    Without an estimator, the one that agreed best with the measured truth on data of this kind: a
    hypernetwork for images, transfer for tables and stays (``reproduction/benefit``).
    """
    inputs = data.samples.inputs[0].ndim
    steps, batch = {4: (500, 64), 3: (60, 32)}.get(inputs, (300, 64))
    local = TrainSettings(
        steps=steps,
        total_steps=steps,
        batch_size=batch,
        learning_rate=0.02,
        weight_decay=defaults_for(data).train.weight_decay,
    )
    images = inputs == 4
    chosen: Any = estimator or ("hypernetwork" if images else "transfer")
    layers = {"layers": 2} if images else {}
    return LearnSettings(estimator=chosen, local=local, **{**layers, **changes})

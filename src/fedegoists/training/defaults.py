"""Training settings that suit each kind of data; the same for every method."""

from dataclasses import dataclass
from typing import Any

from fedegoists.benefit import LearnSettings
from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.model_registry import (
    AUTO,
    DataShape,
    InputKind,
    model_for,
    model_options,
)

__all__ = ["Defaults", "defaults_for", "learn_settings", "model_options"]


@dataclass(frozen=True)
class Defaults:
    """A network's name, and how and how long silos train and fine-tune it."""

    model: str
    train: TrainSettings
    rounds: int
    tune: TrainSettings
    tune_rounds: int
    evaluate_every: int


@dataclass(frozen=True)
class _Schedule:
    """Training of one kind of data: for comparing methods, and for learning the benefit graph."""

    steps: int
    steps_per_round: int
    rate: float
    decay: float
    tuning_steps: int
    augment: bool
    benefit_steps: int
    benefit_batch: int


# The momentum is reset in every round of an averaging method, so rounds must not be short.
SCHEDULES: dict[InputKind, _Schedule] = {
    "table": _Schedule(2000, 20, 0.01, 0.0, 200, False, benefit_steps=300, benefit_batch=64),
    "hourly": _Schedule(400, 20, 0.01, 1e-4, 100, False, benefit_steps=60, benefit_batch=32),
    "images": _Schedule(4000, 50, 0.02, 5e-4, 400, True, benefit_steps=500, benefit_batch=64),
}


def defaults_for(data: DataShape, steps: int | None = None, model: str = AUTO) -> Defaults:
    """Return the training settings for a data set.

    Parameters
    ----------
    steps : int, optional
        Training steps before fine-tuning, rounded up to whole rounds.
    model : str
        A name of `fedegoists.learning.model_registry.MODELS`, or ``auto``.

    Raises
    ------
    SettingsError
        If the model does not suit the data.
    """
    entry = model_for(data, model)
    schedule = SCHEDULES[entry.inputs]
    if steps is not None and steps < 1:
        raise SettingsError(f"{steps} training steps; expected at least 1")
    total = schedule.steps if steps is None else steps
    each = min(schedule.steps_per_round, total)
    rounds = -(-total // each)
    train = TrainSettings(
        steps=each,
        learning_rate=schedule.rate,
        weight_decay=schedule.decay,
        total_steps=rounds * each,
        augment=schedule.augment,
    )
    return Defaults(
        model=entry.name,
        train=train,
        rounds=rounds,
        tune=train.changed(
            steps=schedule.steps_per_round,
            learning_rate=schedule.rate / 2,
            total_steps=schedule.tuning_steps,
        ),
        tune_rounds=schedule.tuning_steps // schedule.steps_per_round,
        evaluate_every=max(1, rounds // 20),
    )


def learn_settings(data: DataShape, estimator: str | None = None, **changes: Any) -> LearnSettings:
    """Return the settings for learning the benefit graph of a data set.

    The default estimator is the one that agreed best with the measured benefits on this kind of
    data: ``hypernetwork`` for images, ``transfer`` for others; see ``reproduction/results``.
    """
    entry = model_for(data)
    schedule = SCHEDULES[entry.inputs]
    local = TrainSettings(
        steps=schedule.benefit_steps,
        total_steps=schedule.benefit_steps,
        batch_size=schedule.benefit_batch,
        learning_rate=0.02,
        weight_decay=defaults_for(data).train.weight_decay,
    )
    images = entry.inputs == "images"
    given: dict[str, Any] = {"estimator": estimator or ("hypernetwork" if images else "transfer")}
    if images:
        given["layers"] = 2
    return LearnSettings(local=local, **given | changes)

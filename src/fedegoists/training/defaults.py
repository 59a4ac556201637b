"""Training settings that suit each kind of data; the same for every method."""

from dataclasses import dataclass
from typing import Any

from fedegoists.benefit import LearnSettings
from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.model_registry import AUTO, DataShape, InputKind, model_for


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
class Schedule:
    """Steps of training and of fine-tuning, a round, and steps and batch for learning benefits."""

    steps: int
    tuning_steps: int
    round: TrainSettings
    benefit_steps: int
    benefit_batch: int


# The momentum is reset in every round of an averaging method, so rounds must not be short.
_TABLE = TrainSettings(steps=20, learning_rate=0.01)
_IMAGES = TrainSettings(steps=50, learning_rate=0.02, weight_decay=5e-4, augment=True)
SCHEDULES: dict[InputKind, Schedule] = {
    "table": Schedule(2000, 200, _TABLE, 300, 64),
    "hourly": Schedule(400, 100, _TABLE.changed(weight_decay=1e-4), 60, 32),
    "images": Schedule(4000, 400, _IMAGES, 500, 64),
}


def defaults_for(data: DataShape, steps: int | None = None, model: str = AUTO) -> Defaults:
    """Return the training settings for a data set.

    Parameters
    ----------
    steps : int, optional
        Training steps before fine-tuning, rounded up to whole rounds.
    model : str
        A name of `fedegoists.learning.model_registry.MODELS`, or ``auto``.
    """
    entry = model_for(data, model)
    schedule = SCHEDULES[entry.inputs]
    if steps is not None and steps < 1:
        raise SettingsError(f"{steps} training steps; expected at least 1")
    one, total = schedule.round, schedule.steps if steps is None else steps
    each = min(one.steps, total)
    rounds = -(-total // each)
    return Defaults(
        model=entry.name,
        train=one.changed(steps=each, total_steps=rounds * each),
        rounds=rounds,
        tune=one.changed(learning_rate=one.learning_rate / 2, total_steps=schedule.tuning_steps),
        tune_rounds=schedule.tuning_steps // one.steps,
        evaluate_every=max(1, rounds // 20),
    )


def learn_settings(data: DataShape, estimator: str | None = None, **changes: Any) -> LearnSettings:
    """Return the settings for learning the benefit graph of a data set.

    The default estimator is the one that agreed best with the measured benefits on this kind of
    data: ``hypernetwork`` for images, ``transfer`` for others; see ``reproduction/results``.
    """
    kind = model_for(data).inputs
    schedule = SCHEDULES[kind]
    local = schedule.round.changed(
        steps=schedule.benefit_steps,
        total_steps=schedule.benefit_steps,
        batch_size=schedule.benefit_batch,
        learning_rate=0.02,
        augment=False,
    )
    given: dict[str, Any] = {"estimator": "transfer"}
    if kind == "images":
        given = {"estimator": "hypernetwork", "layers": 2}
    if estimator:
        given["estimator"] = estimator
    return LearnSettings(local=local, **given | changes)

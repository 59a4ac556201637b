"""Training settings that suit each kind of data; the same for every method."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedegoists.benefit import LearnSettings
from fedegoists.benefit.estimator_registry import CURVES
from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.model_registry import AUTO, DataShape, InputKind, Recipe, model_for
from fedegoists.learning.own_models import is_own


@dataclass(frozen=True)
class Defaults:
    """A network's name, and how and how long silos train and fine-tune it.

    Attributes
    ----------
    plain_rate : float
        The learning rate of gradient descent, for methods that count on it where others use Adam.
    together_decay : float, optional
        The weight decay in coalitions, where it is another one than alone.
    """

    model: str
    train: TrainSettings
    rounds: int
    tune: TrainSettings
    tune_rounds: int
    evaluate_every: int
    plain_rate: float = 0.01
    together_decay: float | None = None

    @property
    def together(self) -> TrainSettings:
        """The settings for methods that train in coalitions."""
        if self.together_decay is None:
            return self.train
        return self.train.changed(weight_decay=self.together_decay)

    def plain(self, settings: TrainSettings) -> TrainSettings:
        """Return settings for methods that count on plain gradient descent."""
        settings = settings.changed(sam_radius=0.0)
        if settings.optimiser == "sgd":
            return settings
        return settings.changed(optimiser="sgd", learning_rate=self.plain_rate, momentum=0.9)


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
# All samples in a step, as few as there are: a linear model needs no luck to be trained.
_LINEAR = TrainSettings(steps=20, batch_size=256, learning_rate=0.05, weight_decay=0.1)
# A step is a tree, which all samples take part in.
_TREES = TrainSettings(steps=20, batch_size=1_000_000, learning_rate=0.1, halve=False)
SCHEDULES: dict[Recipe, Schedule] = {
    "table": Schedule(2000, 200, _TABLE, 300, 64),
    "linear": Schedule(2000, 200, _LINEAR, 300, 256),
    "trees": Schedule(200, 20, _TREES, 50, 1_000_000),
    "hourly": Schedule(400, 100, _TABLE.changed(weight_decay=1e-4), 60, 32),
    "images": Schedule(4000, 400, _IMAGES, 500, 64),
}


def schedule_for(data: DataShape, model: str = AUTO) -> Schedule:
    """Return the steps and settings that suit some data and a network."""
    entry = model_for(data, model)
    return SCHEDULES[kind_of(data) if is_own(model) else entry.recipe or entry.inputs]


def kind_of(data: DataShape) -> InputKind:
    """Return the kind of inputs that some data has, by the shape of a sample."""
    if len(data.shapes[0]) == 3:
        return "images"
    return "table" if [len(shape) for shape in data.shapes] == [1] else "hourly"


ADAPTED_RATE = 1e-3
"""The usual learning rate of Adam and AdamW."""


def defaults_for(
    data: DataShape,
    steps: int | None = None,
    model: str = AUTO,
    changes: Mapping[str, Any] | None = None,
) -> Defaults:
    """Return the training settings for a data set.

    Parameters
    ----------
    steps : int, optional
        Training steps before fine-tuning, rounded up to whole rounds.
    model : str
        A name of `fedegoists.learning.model_registry.MODELS`, or ``auto``.
    changes : mapping, optional
        Settings of local training other than the defaults, see `TrainSettings`; its ``steps`` are
        those of a round. With ``schedule``: ``cosine`` or ``constant``. With ``accumulate``: see
        `changed_round`.
    """
    entry = model_for(data, model)
    schedule = schedule_for(data, model)
    if steps is not None and steps < 1:
        raise SettingsError(f"{steps} training steps; expected at least 1")
    given = dict(changes or {})
    usual = "constant" if entry.kind == "trees" else "cosine"
    falling = given.pop("schedule", usual) == "cosine"
    one, total = changed_round(schedule.round, given), schedule.steps if steps is None else steps
    if is_own(model):  # flips and shifts may be wrong for a user's own images
        one = one.changed(augment=bool(given.get("augment", False)))
    each = min(one.steps, total)
    rounds = -(-total // each)
    # A short training is fine-tuned no longer than it took. Otherwise a gain over training alone
    # would be that of more steps.
    tuned = min(schedule.tuning_steps, rounds * each)
    tuning = min(one.steps, tuned)
    return Defaults(
        model=entry.name,
        train=one.changed(steps=each, total_steps=rounds * each if falling else None),
        rounds=rounds,
        tune=one.changed(
            steps=tuning,
            learning_rate=one.learning_rate / 2,
            total_steps=tuned if falling else None,
        ),
        tune_rounds=tuned // tuning,
        evaluate_every=max(1, rounds // 20),
        plain_rate=schedule.round.learning_rate,
    )


def changed_round(settings: TrainSettings, changes: Mapping[str, Any]) -> TrainSettings:
    """Return the settings of a round with changes; another optimiser brings its usual rate.

    With ``accumulate``, a step has this many times the samples, in as many passes.
    """
    given = dict(changes)
    passes = given.pop("accumulate", 1)
    if given.get("optimiser", "sgd") != "sgd":
        given = {"learning_rate": ADAPTED_RATE, **given}
    if passes > 1:
        batch = given.get("batch_size", settings.batch_size)
        given |= {"batch_size": passes * batch, "passes": passes}
    return settings.changed(**given)


LINEAR_REPEATS = 8
"""Repeats of ``curves`` for linear models, which are at the end of training after few steps."""


def learn_settings(
    data: DataShape,
    estimator: str | None = None,
    *,
    model: str = AUTO,
    training: Mapping[str, Any] | None = None,
    **changes: Any,
) -> LearnSettings:
    """Return the settings for learning the benefit graph of a data set.

    The default estimator of single benefits is the one that agreed best with the measured ones on
    this kind of data: ``hypernetwork`` for images, ``transfer`` for others; see
    ``reproduction/results``.

    Parameters
    ----------
    model : str
        The network that is trained.
    training : mapping, optional
        Settings of local training other than the defaults, as for `defaults_for`.
    """
    schedule = schedule_for(data, model)
    given_training = {k: v for k, v in (training or {}).items() if k not in ("schedule", "steps")}
    local = schedule.round.changed(
        steps=schedule.benefit_steps,
        total_steps=schedule.benefit_steps,
        batch_size=schedule.benefit_batch,
        learning_rate=max(0.02, schedule.round.learning_rate),
        augment=False,
    )
    given: dict[str, Any] = {"estimator": "transfer"}
    if kind_of(data) == "images":
        given = {"estimator": "hypernetwork", "layers": 2}
    if estimator:
        given["estimator"] = estimator
    if estimator == CURVES:
        # At the end of training gains are about a lack of data, on the way about speed. Linear
        # models are there early. Of images with many classes, which silos have unequal shares of,
        # others' models mislead, and label counts tell more.
        entry = model_for(data, model)
        linear = entry.recipe == "linear"
        steps = 2 * schedule.benefit_steps if linear else schedule.steps
        local = schedule.round.changed(steps=steps, total_steps=steps)
        repeats = LINEAR_REPEATS if linear else 1
        by_labels = kind_of(data) == "images" and data.task == "classification"
        given |= {"repeats": repeats, "transfers": not by_labels}
    return LearnSettings(local=changed_round(local, given_training), **given | changes)

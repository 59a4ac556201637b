"""The model of a consortium and how it is trained, from the section ``training`` of its file."""

import math
from collections.abc import Sequence

from fedegoists.consortium.consortium_settings import TrainingSection
from fedegoists.federation import SimulatedFederation
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.model_registry import (
    AUTO,
    ModelEntry,
    middle_rows,
    model_for,
    model_reason,
    suggested_model,
)
from fedegoists.learning.own_models import is_own, model_parts, own_entry
from fedegoists.methods.method_registry import METHOD_ENTRIES
from fedegoists.training.defaults import schedule_for
from fedegoists.training.repetitions import Repetitions


def chosen_model(training: TrainingSection, data: DataDescription) -> tuple[ModelEntry, str]:
    """Return the model, and a line that says why it was chosen."""
    if is_own(training.model):
        own = own_entry(training.model)
        return own, f"{own.name}: as set; its file has the SHA-256 {own.digest}"
    if training.model == AUTO:
        found, reason = suggested_model(data), model_reason(data)
    else:
        found, reason = model_for(data, training.model), "as set"
    found = found.set_to(training.model_settings)
    return found, f"{found.name}: {reason}"


def training_changes(
    training: TrainingSection, data: DataDescription, model: str
) -> dict[str, object]:
    """Return settings of local training; the file's come before those of a user's own model."""
    own = model_parts(data, model).settings if is_own(model) else {}
    return {**own, **training.changes}


def searches_decay(training: TrainingSection, model: ModelEntry, *, simulated: bool) -> bool:
    """Return whether silos try several weight decays.

    Silos at their organisations do so only if asked: it costs rounds of their daily limits.
    """
    if training.weight_decay is None:
        return simulated and model.recipe == "linear"
    return training.weight_decay == "auto"


def training_steps(training: TrainingSection, data: DataDescription, model: str) -> int | None:
    """Return the training steps, if the file says how many."""
    if training.epochs is None:
        return training.steps
    batch = training.batch_size or schedule_for(data, model).round.batch_size
    return max(1, round(training.epochs * math.ceil(middle_rows(data) / batch)))


def remarks_on(repetitions: Repetitions, methods: Sequence[str]) -> list[str]:
    """Return what a run has to say about how its silos were trained."""
    federation, train = repetitions.federation, repetitions.defaults.train
    optimiser = train.optimiser
    remarks = [f"learning rate {train.learning_rate:g}, weight decay {train.weight_decay:g}"]
    remarks += [
        f"{name}: counts on steps of gradient descent; trained with sgd, not with {optimiser}"
        for name in methods
        if METHOD_ENTRIES[name].plain_steps and optimiser != "sgd"
    ]
    if isinstance(federation, SimulatedFederation):
        remarks.append(f"silos were trained {federation.engine}")
        remarks += [
            f"{name}: training diverged; its learning rate was halved {count} times in a round"
            for name, count in sorted(federation.halved.items())
        ]
    return remarks

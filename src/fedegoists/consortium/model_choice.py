"""The model of a consortium and how it is trained, from the section ``training`` of its file."""

import math
from collections.abc import Sequence

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.benefit.estimator_registry import ESTIMATOR_ENTRIES
from fedegoists.consortium.consortium_settings import TrainingSection
from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.model_registry import (
    AUTO,
    ModelEntry,
    ModelKind,
    middle_rows,
    model_for,
    model_reason,
    suggested_model,
)
from fedegoists.learning.own_models import is_own, model_parts, own_entry, weights_in
from fedegoists.methods.method_registry import METHOD_ENTRIES, check_suits
from fedegoists.training.defaults import schedule_for
from fedegoists.training.repetitions import Repetitions


def chosen_model(
    training: TrainingSection, data: DataDescription, benefit_steps: int | None = None
) -> tuple[ModelEntry, str]:
    """Return the model, and a line that says why it was chosen.

    Trees have room for those from which benefits are learned, in `benefit_steps` or as usual.
    """
    if is_own(training.model):
        own = own_entry(training.model)
        weights = weights_in(own.options(data))
        more = f", its weights {weights[0]} have {weights[1]}" if weights else ""
        return own, f"{own.name}: as set; its file has the SHA-256 {own.digest}{more}"
    if training.model == AUTO:
        found, reason = suggested_model(data), model_reason(data)
    else:
        found, reason = model_for(data, training.model), "as set"
    found = found.set_to(training.model_settings)
    if found.kind == "trees":
        found = _with_room(found, training, data, benefit_steps)
    return found, f"{found.name}: {reason}"


def _with_room(
    model: ModelEntry, training: TrainingSection, data: DataDescription, benefit_steps: int | None
) -> ModelEntry:
    """Return trees with a slot for every participant, and room for all their trees."""
    schedule = schedule_for(data, model.name)
    each = training.round_steps or schedule.round.steps
    total = training_steps(training, data, model.name) or schedule.steps
    wanted = {
        "members": max(2, len(data.participants)),
        # Whole rounds, and the trees from which benefits are learned.
        "trees": max(-(-total // each) * each, benefit_steps or schedule.benefit_steps),
    }
    return model.set_to({key: own for key, own in wanted.items() if key not in model.given})


def fitting_methods(training: TrainingSection, kind: ModelKind) -> TrainingSection:
    """Return the section with methods that suit the model, where none were named.

    Raises
    ------
    SettingsError
        If methods were named that do not, or settings that mean nothing to the model.
    """
    if "methods" not in training.model_fields_set and kind in DEFAULT_METHODS:
        training = training.model_copy(update={"methods": DEFAULT_METHODS[kind]})
    try:
        check_suits(training.methods, kind)
    except SettingsError as error:
        raise SettingsError(f"training.methods: {error}") from None
    given = set(training.changes)
    if training.weight_decay == "auto":
        given.add("weight_decay")
    unused = sorted(given & UNUSED.get(kind, frozenset()))
    if unused:
        raise SettingsError(f"training.{unused[0]}: {NO_DESCENT[kind]}; remove it")
    if kind == "trees" and training.learning_rate == "auto":
        raise SettingsError("training.learning_rate: trees need a number, such as 0.1")
    return training


UNUSED: dict[ModelKind, frozenset[str]] = {
    "arrays": frozenset({"accumulate", "precision", "class_weights", "sam_radius"}),
    "trees": frozenset(
        {"accumulate", "batch_size", "momentum", "optimiser", "precision", "schedule"}
        | {"sam_radius", "weight_decay"}
    ),
}
"""Settings of training that mean nothing to some kinds of models."""
NO_DESCENT: dict[ModelKind, str] = {
    "arrays": "this model is trained by its own function fit, which does not use it",
    "trees": "trees are not trained by gradient descent",
}


DEFAULT_METHODS: dict[ModelKind, tuple[str, ...]] = {
    "arrays": ("local", "fedavg+ft", "egomix"),
    "trees": ("local", "bagging"),
}
"""The methods that are compared where none are named, and the usual ones do not suit the model."""


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
    batch *= training.accumulate
    return max(1, round(training.epochs * math.ceil(middle_rows(data) / batch)))


def remarks_on(
    repetitions: Repetitions, methods: Sequence[str], estimate: BenefitEstimate | None = None
) -> list[str]:
    """Return what a run has to say about how its silos were trained.

    Parameters
    ----------
    estimate : BenefitEstimate, optional
        The estimate of benefits, if they were learned.
    """
    federation, train = repetitions.federation, repetitions.defaults.train
    optimiser = train.optimiser
    remarks = [f"learning rate {train.learning_rate:g}, weight decay {train.weight_decay:g}"]
    if repetitions.defaults.together_decay is not None:
        remarks[0] += f" alone and {repetitions.defaults.together_decay:g} in coalitions"
    remarks += [
        f"{name}: counts on steps of gradient descent; trained with sgd, not with {optimiser}"
        for name in methods
        if METHOD_ENTRIES[name].plain_steps and optimiser != "sgd"
    ]
    remarks += [
        f"{name}: counts on plain steps of gradient descent; trained without sam_radius"
        for name in methods
        if METHOD_ENTRIES[name].plain_steps and train.sam_radius
    ]
    of_gradients = [name for name in methods if METHOD_ENTRIES[name].server_sees == "gradients"]
    if estimate is not None and "local" not in ESTIMATOR_ENTRIES[estimate.estimator].settings:
        of_gradients.append(f"the estimator {estimate.estimator}")
    remarks += [
        f"{name}: its gradients are of whole batches with 32 bits, without accumulate and precision"
        for name in of_gradients
        if train.passes > 1 or train.precision != "float32"
    ]
    remarks += [
        f"{name}: its gradients are of models as they are, without sam_radius"
        for name in of_gradients
        if train.sam_radius and name not in methods
    ]
    schema = federation.schema
    if schema.frozen:
        remarks.append(
            f"{schema.size:,} of {schema.size + schema.frozen:,} parameters are trained and "
            "travel; the others are frozen and stay at home"
        )
    if isinstance(federation, SimulatedFederation):
        remarks.append(f"silos were trained {federation.engine}")
        remarks += [
            f"{name}: training diverged; its learning rate was halved {count} times in a round"
            for name, count in sorted(federation.halved.items())
        ]
    return remarks

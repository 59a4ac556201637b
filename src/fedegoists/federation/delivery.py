"""The choice of the model that a silo keeps, made at home from its own validation data.

The same function chooses in simulated and in deployed silos. Candidates are the silo's own model,
trained alone; the models of each method that trains together, as they are and fine-tuned at home;
and mixtures of these with the own model, where parameters can be mixed. The rule is
`fedegoists.learning.safe_choice`.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Delivered
from fedegoists.federation.requests import DELIVERED, Deliver, owner_of
from fedegoists.federation.seam import MemoryKey
from fedegoists.learning.estimates import Groups
from fedegoists.learning.forest import is_forest
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.safe_choice import (
    SURE,
    ChooseBy,
    Numbers,
    Positions,
    pseudo_values,
    safe_choice,
)
from fedegoists.learning.sample_scores import counted
from fedegoists.learning.task import Task

if TYPE_CHECKING:
    from fedegoists.federation.simulated_federation import SimulatedFederation

OWN = "local"
"""The method whose model is the silo's own."""
SHARES = (0.25, 0.5, 0.75)
"""The parts of a coalition's model in mixtures with the own one."""
ROUNDING = 1e-6
"""The relative difference of results below which the machine's rounding may have made it."""


class ModelName(NamedTuple):
    """A method, and the part of its model in a mixture with the own one; 1 for the model itself."""

    method: str
    share: float = 1.0


@dataclass(frozen=True)
class HomeChoice:
    """The model that a silo keeps.

    Attributes
    ----------
    name : ModelName
        Which one it is.
    trained : Participant
        The participant in the repetition in which it was trained.
    parameters : Tensor
        The whole model.
    replies : dict of Participant to Delivered
        What the silo tells of its choice.
    dropped : tuple of str
        Candidates that cannot be used, and why.
    """

    name: ModelName
    trained: Participant
    parameters: Tensor
    replies: dict[Participant, Delivered]
    dropped: tuple[str, ...]


class _Measured(NamedTuple):
    """A model on validation data; higher is better.

    Attributes
    ----------
    score, negative_loss : float
        The metric and the loss.
    values : array
        The contribution of each sample to the metric.
    informative : int, optional
        Samples that the metric rests on, if these are fewer than all.
    """

    score: float
    negative_loss: float
    values: Numbers
    informative: int | None


def mixture_shares(schema: ParameterSchema) -> tuple[float, ...]:
    """Return the mixtures that silos can make: none of trees, which have nothing to average."""
    return () if is_forest(schema) else SHARES


def choose_at_home(
    federation: "SimulatedFederation",
    requests: Mapping[Participant, Deliver],
    *,
    sure: float = SURE,
) -> HomeChoice:
    """Choose one of the models that were sent to a silo, and keep it in its memory.

    Candidates are compared over all repetitions together; of these, the silo keeps the model with
    the best validation result. Without an own model among the candidates, the best result decides,
    and of equal ones the first.

    Parameters
    ----------
    federation : SimulatedFederation
        Has the silo, in all repetitions.
    requests : mapping of Participant to Deliver
        The candidates of each repetition; all of one silo.
    sure : float
        See `safe_choice`.

    Raises
    ------
    SettingsError
        If no candidate can be used.
    """
    dropped: dict[str, None] = {}
    models = {one: _whole_models(federation, one, requests[one], dropped) for one in requests}
    names = [
        name
        for name in next(iter(models.values()))
        if all(name in candidates for candidates in models.values())
    ]
    found: dict[ModelName, dict[Participant, _Measured]] = {}
    by = next(iter(requests.values())).choose_by
    for name in names:
        try:
            found[name] = {
                one: _measured(federation, one, candidates[name], by)
                for one, candidates in models.items()
            }
        except SettingsError as error:  # such as trees that are none
            dropped[f"{name.method}: {error}"] = None
    if not found:
        raise SettingsError("; ".join(dropped) or "no model was sent in all repetitions")
    name = _chosen(found, sure)
    trained = max(found[name], key=lambda one: found[name][one][:2])
    parameters = models[trained][name]
    for one in requests:
        federation.silo_memory(one).slots.pop(DELIVERED, None)
    federation.silo_memory(trained).slots[DELIVERED] = parameters
    replies = {
        one: Delivered(kept=True, method=name.method, share=name.share)
        if one == trained
        else Delivered(kept=False)
        for one in requests
    }
    return HomeChoice(name, trained, parameters, replies, tuple(dropped))


def _whole_models(
    federation: "SimulatedFederation",
    one: Participant,
    request: Deliver,
    dropped: dict[str, None],
) -> dict[ModelName, Tensor]:
    """Return the candidates of a repetition by name, completed at home, and their mixtures."""
    if len(request.rows) != len(request.candidates) or request.parameters.ndim != 2:
        raise SettingsError(
            f"{tuple(request.parameters.shape)} parameters for {len(request.candidates)} "
            "candidates; expected a row for each"
        )
    if request.rows.shape[1] != federation.schema.size:
        raise SettingsError("these models have another number of parameters than the one here")
    models: dict[ModelName, Tensor] = {}
    for row, candidate in zip(request.rows, request.candidates, strict=True):
        whole, personal = row.to(federation.device, torch.float32), candidate.personal
        if personal is not None:
            kept = federation.memory(owner_of(personal.slot))
            if MemoryKey(one, personal.slot) not in kept:
                dropped[f"{candidate.method}: the layers that this silo keeps are not here"] = None
                continue
            whole = federation.personal_model(one, whole, personal)
        if not whole.isfinite().all():
            dropped[f"{candidate.method}: it has parameters that are no numbers"] = None
            continue
        models[ModelName(candidate.method)] = whole
    own = models.get(ModelName(OWN))
    if request.shares and is_forest(federation.schema):
        raise SettingsError("trees have no parameters to mix; deliver them without shares")
    if own is not None:
        for (method, _), whole in list(models.items()):
            if method != OWN and not method.endswith("+ft"):
                for share in request.shares:
                    models[ModelName(method, share)] = torch.lerp(own, whole, share)
    return models


def _measured(
    federation: "SimulatedFederation", one: Participant, parameters: Tensor, by: ChooseBy
) -> _Measured:
    """Measure a model on a silo's validation samples."""
    task = federation.task
    outputs, targets = federation.outputs(one, parameters, "validation")
    sign = 1.0 if task.higher_is_better else -1.0
    groups = federation.groups(one, "validation")

    def metric(rows: Positions) -> float:
        places = torch.from_numpy(rows).to(targets.device)
        if by == "loss":
            return -task.loss(outputs[places], targets[places]).item()
        return sign * task.score(outputs[places], targets[places])

    score = sign * task.score(outputs, targets) if by == "metric" else 0.0
    return _Measured(
        # A metric is not defined with one class only; then the loss tells candidates apart.
        score if math.isfinite(score) else 0.0,
        -task.loss(outputs, targets).item(),
        pseudo_values(metric, len(targets), groups),
        _informative(task, targets.cpu().numpy(), groups, by),
    )


def _informative(task: Task, targets: Numbers, groups: Groups | None, by: ChooseBy) -> int | None:
    """Return how many samples, or groups, the choice rests on: events, or of the rarer class."""
    if task.name == "survival":
        return counted(targets > 0, groups)
    if task.name == "binary" and by == "metric":
        return min(counted(targets > 0.5, groups), counted(targets <= 0.5, groups))
    return None


def _chosen(found: Mapping[ModelName, Mapping[Participant, _Measured]], sure: float) -> ModelName:
    """Return the name of the model to keep."""
    values = {name: [one.values for one in own.values()] for name, own in found.items()}
    own = values.pop(ModelName(OWN), None)
    if own is not None:
        informative = next(iter(found[ModelName(OWN)].values())).informative
        return safe_choice(own, values, informative, sure=sure) or ModelName(OWN)

    best = list(found)
    for result in (lambda one: one.score, lambda one: one.negative_loss):
        results = {name: statistics.fmean(map(result, found[name].values())) for name in best}
        highest = max(results.values())
        best = [name for name in best if math.isclose(results[name], highest, rel_tol=ROUNDING)]
    # Of models that are equal but for rounding, as those of a silo without company, the first.
    return best[0]

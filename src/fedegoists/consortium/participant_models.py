"""The participants' models: the candidates of each, its choice, and the file of its model."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedegoists.consortium.file_names import file_names
from fedegoists.federation import (
    Candidate,
    Deliver,
    Delivered,
    Evaluate,
    Failure,
    Federation,
    Participant,
    Personal,
    SimulatedFederation,
    sorted_out,
)
from fedegoists.federation.delivery import OWN, mixture_shares
from fedegoists.federation.requests import DELIVERED, EVERYTHING
from fedegoists.learning.data_description import DataFacts
from fedegoists.learning.model_files import ModelCard, delivered_words, model_bytes
from fedegoists.learning.safe_choice import ChooseBy
from fedegoists.learning.sealed_models import run_models
from fedegoists.methods import Outcome
from fedegoists.training.repetitions import Repetitions
from fedegoists.training.summary import chosen_test_values


@dataclass(frozen=True)
class ChosenModel:
    """The model that a participant keeps; its own silo has chosen it.

    Attributes
    ----------
    tensors : mapping of str to Tensor
        Its parameters, without those that only the silo has.
    card : ModelCard
        The card of its file.
    trained : Participant
        The participant in the repetition in which it was trained.
    tested : float
        Its metric on the participant's test data; NaN where it is not known here.
    parameters : Tensor, optional
        The whole model, where all silos are in this process.
    """

    tensors: Mapping[str, Tensor]
    card: ModelCard
    trained: Participant
    tested: float = math.nan
    parameters: Tensor | None = None

    @property
    def words(self) -> str:
        """The origin of the model, as the report tells it."""
        return self.card.delivered


def trained_participants(outcomes: Mapping[str, Outcome], federation: Federation) -> set[str]:
    """Return the participants that have a model by some method."""
    return {
        one.name
        for outcome in outcomes.values()
        for one, score in zip(federation.participants, outcome.best_score, strict=True)
        if score[0] > -math.inf
    }


def personal_part(
    outcome: Outcome, method: str, prefixes: tuple[str, ...], name: Participant
) -> Personal | None:
    """Return where the personal parameters of a participant's chosen model are, if it has any."""
    if name in outcome.at_home:
        prefixes = EVERYTHING
    return Personal(prefixes=prefixes, slot=f"{method}/best") if prefixes else None


def deliveries(
    outcomes: Mapping[str, Outcome],
    personal: Mapping[str, tuple[str, ...]],
    federation: Federation,
    alone: Collection[str] = (),
    choose_by: ChooseBy = "metric",
) -> dict[Participant, Deliver]:
    """Return the candidates among which each participant chooses its model.

    These are the models of all methods, the own one (`local`) and those before fine-tuning
    included, each of the round that the participant's validation data preferred.

    Parameters
    ----------
    personal : mapping of str to tuple of str
        Prefixes of the parameters that each method kept in the silos.
    alone : collection of str
        Participants without a coalition: their only candidate is the own model, if it was trained.
    """
    found = {}
    for k, one in enumerate(federation.participants):
        rows, candidates = [], []
        for method, outcome in outcomes.items():
            if outcome.best_score[k][0] == -math.inf:
                continue  # never validated
            if one.name in alone and OWN in outcomes and method != OWN:
                continue
            own = personal_part(outcome, method, personal[method], one)
            rows.append(outcome.best[k])
            candidates.append(Candidate(method=method, round=outcome.best_round[k], personal=own))
        if candidates:
            found[one] = Deliver(
                parameters=torch.stack(rows),
                candidates=tuple(candidates),
                shares=mixture_shares(federation.schema),
                choose_by=choose_by,
            )
    return found


def deliver_models(
    data: DataFacts,
    outcomes: Mapping[str, Outcome],
    personal: Mapping[str, tuple[str, ...]],
    repetitions: Repetitions,
    alone: Collection[str] = (),
    choose_by: ChooseBy = "metric",
) -> tuple[list[ChosenModel], dict[str, Failure]]:
    """Have all participants choose their models; return these, and the failures by participant.

    Parameters
    ----------
    data : DataFacts
        The data they were trained on, with the preparation of the inputs.
    personal : mapping of str to tuple of str
        Prefixes of the parameters that each method kept in the silos.
    """
    federation = repetitions.federation
    requests = deliveries(outcomes, personal, federation, alone, choose_by)
    replies, failures = sorted_out(federation.deliver(requests))
    kept = {one: reply for one, reply in replies.items() if reply.kept}
    tested = _tested(kept, outcomes, federation)
    models = []
    for one, reply in kept.items():
        request = requests[one]
        place = next(
            (k for k, c in enumerate(request.candidates) if c.method == reply.method), None
        )
        whole = _whole_model(federation, one, request, reply, place)
        card = ModelCard.of(
            data,
            one.name,
            method=reply.method,
            seed=int(one.repetition or 0),
            chosen_round=0 if place is None else request.candidates[place].round,
            model=repetitions.defaults.model,
            options=repetitions.options,
            kept=whole.kept,
            share=reply.share,
        )
        models.append(
            ChosenModel(whole.tensors, card, one, tested.get(one, math.nan), whole.parameters)
        )
    return models, {one.participant.name: one for one in failures}


@dataclass(frozen=True)
class _WholeModel:
    """The parameters of a delivered model as far as they are known here."""

    tensors: dict[str, Tensor]
    kept: tuple[str, ...]
    parameters: Tensor | None


def _whole_model(
    federation: Federation,
    one: Participant,
    request: Deliver,
    reply: Delivered,
    place: int | None,
) -> _WholeModel:
    """Return what is known here of the model that a participant keeps."""
    if isinstance(federation, SimulatedFederation):
        vector = federation.personal_model(
            one, request.rows[0], Personal(prefixes=EVERYTHING, slot=DELIVERED)
        )
        # Frozen parameters and batch statistics complete a model, where its silo is in reach.
        state = federation.whole_state(one, vector)
        return _WholeModel({key: value.clone() for key, value in state.items()}, (), vector)
    # Parameters that only the silo knows are left out of the file, not made up.
    kept: tuple[str, ...] = EVERYTHING
    if place is not None and reply.share == 1:
        own = request.candidates[place].personal
        kept = () if own is None else own.prefixes
    state = federation.schema.unflatten(request.rows[place or 0])
    tensors = {
        key: value.clone() for key, value in state.items() if not (kept and key.startswith(kept))
    }
    return _WholeModel(tensors, kept, None)


def _tested(
    kept: Mapping[Participant, Delivered], outcomes: Mapping[str, Outcome], federation: Federation
) -> dict[Participant, float]:
    """Return the test metric of the models that participants keep.

    That of a method's model was measured in training. A mixture is measured now, at home.
    """
    found: dict[Participant, float] = {}
    known = {method: chosen_test_values(own, federation) for method, own in outcomes.items()}
    for one, reply in kept.items():
        if reply.share == 1 and one in known.get(reply.method, {}):
            found[one] = known[reply.method][one]
    nothing = torch.zeros(federation.schema.size, device=federation.device)
    request = Evaluate(
        parameters=nothing,
        split="test",
        personal=Personal(prefixes=EVERYTHING, slot=DELIVERED),
    )
    mixed = [one for one, reply in kept.items() if reply.share < 1]
    replies, _ = sorted_out(federation.call(dict.fromkeys(mixed, request)))
    return found | {one: reply.scores[0] for one, reply in replies.items()}


def told_choices(models: Sequence[ChosenModel]) -> dict[str, str]:
    """Return what each participant has chosen, in words."""
    return {one.card.participant: one.words for one in models}


def candidate_words(methods: Collection[str], federation: Federation) -> str:
    """Return the models among which participants choose, in words."""
    names = [delivered_words(method) for method in methods]
    shares = mixture_shares(federation.schema)
    if OWN not in methods:
        return f"{', '.join(names)}; no own model was trained: add {OWN} to training.methods"
    if not shares:
        return f"{', '.join(names)}; no mixtures, because trees have no parameters to mix"
    mixed = ", ".join(f"{share:.0%}".replace("%", " %") for share in shares)
    return f"{', '.join(names)}; mixtures with the own model, {mixed} of the coalition's"


def write_models(run: Path, models: Sequence[ChosenModel], participants: Sequence[str]) -> None:
    """Write the models' files in a run's folder, as far as the models are known here."""
    files = file_names(participants)
    # A card has means and deviations of its participant's data.
    run_models(run).write_all(
        {
            f"{files[model.card.participant]}.safetensors": model_bytes(model.tensors, model.card)
            for model in models
        }
    )

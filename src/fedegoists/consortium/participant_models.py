"""The participants' models: which one each prefers, its file, and its delivery to the silo."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedegoists.consortium.file_names import file_names
from fedegoists.federation import (
    Deliver,
    Failure,
    Federation,
    Memory,
    Participant,
    Personal,
    SimulatedFederation,
)
from fedegoists.federation.requests import EVERYTHING
from fedegoists.learning.data_description import DataFacts
from fedegoists.learning.model_files import ModelCard, model_bytes
from fedegoists.learning.sealed_models import run_models
from fedegoists.methods import Outcome
from fedegoists.training.repetitions import Repetitions


@dataclass(frozen=True)
class ChosenModel:
    """A participant's best model on its validation data, over all methods and repetitions.

    Attributes
    ----------
    tensors : mapping of str to Tensor
        Its parameters, without those that only the silo has.
    card : ModelCard
        The card of its file.
    trained : Participant
        The participant in the repetition in which it was trained.
    delivery : Deliver
        The request that hands it to its silo, without the silo's personal parameters.
    """

    tensors: Mapping[str, Tensor]
    card: ModelCard
    trained: Participant
    delivery: Deliver


def preferred(
    outcomes: Mapping[str, Outcome], federation: Federation
) -> dict[str, tuple[str, int]]:
    """Return the method and the row of each participant's best model on its validation data.

    Participants that were never validated are left out.
    """
    best: dict[str, tuple[tuple[float, float], str, int]] = {}
    for method, outcome in outcomes.items():
        for k, name in enumerate(federation.participants):
            score = outcome.best_score[k]
            if score[0] > -math.inf and (name.name not in best or score > best[name.name][0]):
                best[name.name] = (score, method, k)
    return {participant: (method, k) for participant, (_, method, k) in best.items()}


def personal_part(
    outcome: Outcome, method: str, prefixes: tuple[str, ...], name: Participant
) -> Personal | None:
    """Return where the personal parameters of a participant's chosen model are, if it has any."""
    if name in outcome.at_home:
        prefixes = EVERYTHING
    return Personal(prefixes=prefixes, slot=f"{method}/best") if prefixes else None


def chosen_models(
    data: DataFacts,
    outcomes: Mapping[str, Outcome],
    personal: Mapping[str, tuple[str, ...]],
    repetitions: Repetitions,
) -> list[ChosenModel]:
    """Return the participants' preferred models, see `preferred`.

    Parameters
    ----------
    data : DataFacts
        The data they were trained on, with the preparation of the inputs.
    personal : mapping of str to tuple of str
        Prefixes of the parameters that each method kept in the silos.
    """
    federation = repetitions.federation
    models = []
    for participant, (method, k) in preferred(outcomes, federation).items():
        name, outcome = federation.participants[k], outcomes[method]
        vector = outcome.best[k]
        kept: tuple[str, ...] = ()
        own = personal_part(outcome, method, personal[method], name)
        # The delivery leaves out the silo's own layers, wherever these are: it has them.
        delivery = Deliver(
            parameters=vector, method=method, round=outcome.best_round[k], personal=own
        )
        if own is not None:
            whole = federation.personal_model(name, vector, own)
            # Parameters that only the silo knows are left out of the file, not made up.
            vector, kept = (vector, own.prefixes) if whole is None else (whole, ())
        card = ModelCard.of(
            data,
            participant,
            method=method,
            seed=int(name.repetition or 0),
            chosen_round=outcome.best_round[k],
            model=repetitions.defaults.model,
            options=repetitions.options,
            kept=kept,
        )
        # Frozen parameters and batch statistics complete a model, where its silo is in reach.
        state = (
            federation.whole_state(name, vector)
            if isinstance(federation, SimulatedFederation)
            else federation.schema.unflatten(vector)
        )
        tensors = {
            key: value.clone()
            for key, value in state.items()
            if not (kept and key.startswith(kept))
        }
        models.append(ChosenModel(tensors, card, name, delivery))
    return models


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


def delivered(models: Sequence[ChosenModel], federation: Memory) -> dict[str, Failure]:
    """Send every model to its silo; return the failures by participant."""
    lost = federation.deliver({model.trained: model.delivery for model in models})
    return {one.name: failure for one, failure in lost.items()}

"""The participants' models: which one each prefers, its file, and its delivery to the silo."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedegoists.consortium.file_names import file_names
from fedegoists.federation import Failure, Federation, Payload
from fedegoists.files import write_all
from fedegoists.learning.data_description import DataFacts
from fedegoists.learning.model_files import ModelCard, model_bytes
from fedegoists.methods import Outcome
from fedegoists.training.trials import Trials

__all__ = ["ChosenModel", "chosen_models", "delivered", "preferred", "write_models"]


@dataclass(frozen=True)
class ChosenModel:
    """A participant's best model on its validation data, over all methods and repetitions.

    Attributes
    ----------
    tensors : mapping of str to Tensor
        Its parameters, without those that only the silo has.
    card : ModelCard
        The card of its file.
    delivery : mapping
        The request that completes the model in its silo, see `Federation.deliver`.
    """

    tensors: Mapping[str, Tensor]
    card: ModelCard
    delivery: Payload


def preferred(
    outcomes: Mapping[str, Outcome], federation: Federation
) -> dict[str, tuple[str, int]]:
    """Return the method and the row of each participant's best model on its validation data.

    Participants that were never validated are left out.
    """
    best: dict[str, tuple[tuple[float, float], str, int]] = {}
    for method, outcome in outcomes.items():
        for k, name in enumerate(federation.participants):
            participant = name.split("/", 1)[1]
            score = outcome.best_score[k]
            if score[0] > -math.inf and (participant not in best or score > best[participant][0]):
                best[participant] = (score, method, k)
    return {participant: (method, k) for participant, (_, method, k) in best.items()}


def chosen_models(
    data: DataFacts,
    outcomes: Mapping[str, Outcome],
    personal: Mapping[str, tuple[str, ...]],
    trials: Trials,
) -> list[ChosenModel]:
    """Return the participants' preferred models, see `preferred`.

    Parameters
    ----------
    data : DataFacts
        The data they were trained on, with the preparation of the inputs.
    personal : mapping of str to tuple of str
        Prefixes of the parameters that each method kept in the silos.
    """
    federation = trials.federation
    models = []
    for participant, (method, k) in preferred(outcomes, federation).items():
        name, outcome, own = federation.participants[k], outcomes[method], personal[method]
        vector = outcome.best[k]
        kept: tuple[str, ...] = ()
        delivery = {"parameters": vector, "method": method, "round": outcome.best_round[k]}
        if own:
            # The delivery leaves out the silo's own layers, wherever these are: it has them.
            delivery |= {"personal": own, "slot": f"{method}/best"}
            whole = federation.personal_model(name, vector, own, f"{method}/best")
            # Parameters that only the silo knows are left out of the file, not made up.
            vector, kept = (vector, own) if whole is None else (whole, ())
        card = ModelCard.of(
            data,
            participant,
            method=method,
            seed=int(name.split("/", 1)[0]),
            chosen_round=outcome.best_round[k],
            model=trials.defaults.model,
            options=trials.options,
            kept=kept,
        )
        tensors = {
            key: value.clone()
            for key, value in federation.schema.unflatten(vector).items()
            if not (kept and key.startswith(kept))
        }
        models.append(ChosenModel(tensors, card, delivery))
    return models


def write_models(folder: Path, models: Sequence[ChosenModel], participants: Sequence[str]) -> None:
    """Write the models' files, as far as the models are known here."""
    files = file_names(participants)
    # A card has means and deviations of its participant's data.
    write_all(
        [
            (
                folder / f"{files[model.card.participant]}.safetensors",
                model_bytes(model.tensors, model.card),
            )
            for model in models
        ],
        private=True,
    )


def delivered(models: Sequence[ChosenModel], federation: Federation) -> dict[str, Failure]:
    """Send every model to its silo; return the failures by participant."""
    named = {f"{model.card.seed}/{model.card.participant}": model.delivery for model in models}
    lost = federation.deliver(named)
    return {name.split("/", 1)[1]: failure for name, failure in lost.items()}

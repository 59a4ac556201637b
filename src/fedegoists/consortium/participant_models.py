"""The participants' models as files that can be used elsewhere."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedegoists.consortium.file_names import file_names
from fedegoists.federation import (
    Deliver,
    Failure,
    Federation,
    Memory,
    Participant,
    Personal,
)
from fedegoists.files import write_all
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_files import model_about, model_bytes
from fedegoists.methods import Outcome
from fedegoists.training.repetitions import Repetitions

__all__ = ["ChosenModel", "chosen_models", "delivered", "preferred", "write_models"]


@dataclass(frozen=True)
class ChosenModel:
    """The model that a participant's validation data prefers over all methods and seeds.

    Attributes
    ----------
    tensors : mapping of str to Tensor
        As far as they are known here.
    trained : Participant
        The participant in the repetition in which it was trained.
    delivery : Deliver
        The request that hands it to its silo, without the silo's personal parameters.
    """

    participant: str
    method: str
    trained: Participant
    round: int
    tensors: Mapping[str, Tensor]
    about: Mapping[str, Any]
    delivery: Deliver

    def safetensors(self) -> bytes:
        """Return the model as a file."""
        return model_bytes(self.tensors, self.about)


def preferred(
    outcomes: Mapping[str, Outcome], federation: Federation
) -> dict[str, tuple[str, int]]:
    """Return by which method, and in which row, each participant's validation data is served best.

    Who was never validated is left out.
    """
    best: dict[str, tuple[tuple[float, float], str, int]] = {}
    for method, outcome in outcomes.items():
        for k, name in enumerate(federation.participants):
            score = outcome.best_score[k]
            if score[0] > -math.inf and (name.name not in best or score > best[name.name][0]):
                best[name.name] = (score, method, k)
    return {participant: (method, k) for participant, (_, method, k) in best.items()}


def chosen_models(
    data: SiloedData,
    outcomes: Mapping[str, Outcome],
    personal: Mapping[str, tuple[str, ...]],
    trials: Repetitions,
) -> list[ChosenModel]:
    """Return everybody's preferred model; who was never validated has none.

    Parameters
    ----------
    data : SiloedData
        What they were trained on: a model needs its inputs as it had them then.
    personal : mapping of str to tuple of str
        Which parameters each method kept in the silos.
    """
    federation = trials.federation
    models = []
    for participant, (method, k) in preferred(outcomes, federation).items():
        name = federation.participants[k]
        vector = outcomes[method].best[k]
        # What only the silo knows is left out of the file, not filled with something else.
        left_out: tuple[str, ...] = ()
        own = None
        if personal[method]:
            own = Personal(prefixes=personal[method], slot=f"{method}/best")
            whole = federation.personal_model(name, vector, own)
            vector, left_out = (vector, personal[method]) if whole is None else (whole, ())
        about = model_about(
            data,
            participant,
            method=method,
            seed=int(name.repetition or 0),
            chosen_round=outcomes[method].best_round[k],
            model=trials.defaults.model,
            options=trials.options,
        )
        if left_out:
            about["kept by the silo"] = list(left_out)
        tensors = {
            key: value.clone()
            for key, value in federation.schema.unflatten(vector).items()
            if not (left_out and key.startswith(left_out))
        }
        # Sent without the silo's own layers, wherever these are: it has them.
        chosen_round = outcomes[method].best_round[k]
        delivery = Deliver(
            parameters=outcomes[method].best[k], method=method, round=chosen_round, personal=own
        )
        models.append(
            ChosenModel(participant, method, name, chosen_round, tensors, about, delivery)
        )
    return models


def write_models(folder: Path, models: Sequence[ChosenModel], participants: Sequence[str]) -> None:
    """Write everybody's model, as far as it is known here."""
    files = file_names(participants)
    # A model comes with means and deviations of its participant's data.
    write_all(
        [
            (folder / f"{files[model.participant]}.safetensors", model.safetensors())
            for model in models
        ],
        private=True,
    )


def delivered(models: Sequence[ChosenModel], federation: Memory) -> dict[str, Failure]:
    """Hand everybody its model; return whose silo has not got it."""
    lost = federation.deliver({model.trained: model.delivery for model in models})
    return {one.name: failure for one, failure in lost.items()}

"""Model files: the weights, and a card with all that is needed to use them."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from torch import Tensor

from fedegoists.files import file_name, name_digest, private_folder, write_bytes
from fedegoists.learning.data import TaskName
from fedegoists.learning.data_description import DataFacts
from fedegoists.learning.preparation import InputPreparation

MODELS_FOLDER = "models"
"""The folder of models, in a run and in a silo's kit."""
MOST_MODELS = 20
"""Runs of which a silo keeps its model; models of older runs are removed."""
CARD_KEY = "fedegoists"
"""The key of the card in the metadata of a file."""


class ModelCard(BaseModel):
    """The origin of a model, its network, and how its inputs are prepared."""

    model_config = ConfigDict(frozen=True)

    participant: str
    method: str
    seed: int = 0
    round: int = 0
    model: str
    options: dict[str, int]
    task: TaskName
    description: str
    inputs: tuple[InputPreparation, ...]
    classes: tuple[str, ...]
    kept: tuple[str, ...] = Field(
        default=(),
        validation_alias=AliasChoices("kept", "kept by the silo"),
        serialization_alias="kept by the silo",
    )
    """Prefixes of parameters that are not in the file."""

    @classmethod
    def of(
        cls,
        data: DataFacts,
        participant: str,
        *,
        method: str,
        seed: int,
        chosen_round: int,
        model: str,
        options: Mapping[str, int],
        kept: tuple[str, ...] = (),
    ) -> "ModelCard":
        """Return the card of a participant's model that was trained on some data."""
        silo = data.participants.index(participant)
        return cls(
            participant=participant,
            method=method,
            seed=seed,
            round=chosen_round,
            model=model,
            options=dict(options),
            task=data.task,
            description=data.description,
            inputs=tuple(one.of(silo) for one in data.preparation),
            classes=data.class_names,
            kept=kept,
        )

    def json_text(self, indent: int | None = None) -> str:
        """Return the card as JSON with sorted keys."""
        left_out = None if self.kept else {"kept"}
        content = self.model_dump(mode="json", by_alias=True, exclude=left_out)
        return json.dumps(content, sort_keys=True, indent=indent)


def model_bytes(tensors: Mapping[str, Tensor], card: ModelCard) -> bytes:
    """Return a model as a safetensors file."""
    from safetensors.torch import save

    own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content: bytes = save(own, {CARD_KEY: card.json_text()})
    return content


def keep_model(folder: Path, run: str, tensors: Mapping[str, Tensor], card: ModelCard) -> Path:
    """Write the model that a run gave an organisation; only its owner can read it."""
    private_folder(folder)
    plain = file_name(run)
    path = folder / f"{plain if plain == run else f'{plain}-{name_digest(run)}'}.safetensors"
    write_bytes(path, model_bytes(tensors, card), private=True)
    known = sorted(folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    for file in known[:-MOST_MODELS]:
        file.unlink()
    return path

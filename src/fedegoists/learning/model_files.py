"""Model files: the weights, and a card with all that is needed to use them."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from torch import Tensor

from fedegoists.files import file_name, name_digest, private_folder
from fedegoists.learning.data import TaskName
from fedegoists.learning.data_description import DataFacts
from fedegoists.learning.datasets.image_schema import ImageSchema
from fedegoists.learning.datasets.schema import Schema
from fedegoists.learning.model_registry import Value
from fedegoists.learning.preparation import InputPreparation, TargetScale
from fedegoists.sealed_files import SealedFolder

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
    options: dict[str, Value]
    task: TaskName
    description: str
    inputs: tuple[InputPreparation, ...]
    classes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    """The shape of one sample in each input; files of earlier versions do not have it."""
    target: TargetScale | None = None
    table: Schema | ImageSchema | None = None
    """How the columns of a table, or files of images, become the inputs, where they do."""
    kept: tuple[str, ...] = Field(
        default=(),
        validation_alias=AliasChoices("kept", "kept by the silo"),
        serialization_alias="kept by the silo",
    )
    """Prefixes of parameters that are not in the file."""
    share: float = 1.0
    """The part of the method's model in a mixture with the participant's own one."""

    @property
    def delivered(self) -> str:
        """The origin of the model in words."""
        return delivered_words(self.method, self.share)

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
        options: Mapping[str, Value],
        kept: tuple[str, ...] = (),
        share: float = 1.0,
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
            shapes=tuple(data.shapes) if data.preparation else (),
            target=data.target_scales[silo] if data.target_scales else None,
            table=data.schema,
            kept=kept,
            share=share,
        )

    def json_text(self, indent: int | None = None) -> str:
        """Return the card as JSON with sorted keys."""
        left_out = {key for key in ("kept", "shapes", "target", "table") if not getattr(self, key)}
        if self.share == 1:
            left_out.add("share")
        content = self.model_dump(mode="json", by_alias=True, exclude=left_out)
        return json.dumps(content, sort_keys=True, indent=indent)


def delivered_words(method: str, share: float = 1.0) -> str:
    """Return the origin of a model that was delivered, in words; a silo may not tell the method.

    Examples
    --------
    >>> delivered_words("local"), delivered_words("fedavg+ft")
    ('own model', "coalition's model, tuned (fedavg+ft)")
    >>> delivered_words("egomix", 0.25)
    "25 % coalition's model (egomix), 75 % own"
    """
    if not method:
        return "chosen at home, not told"
    if method == "local":
        return "own model"
    if share < 1:
        return f"{share:.0%} coalition's model ({method}), {1 - share:.0%} own".replace("%", " %")
    return f"coalition's model{', tuned' if method.endswith('+ft') else ''} ({method})"


def model_bytes(tensors: Mapping[str, Tensor], card: ModelCard) -> bytes:
    """Return a model as a safetensors file."""
    from safetensors.torch import save

    own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content: bytes = save(own, {CARD_KEY: card.json_text()})
    return content


def keep_model(
    folder: Path, sealed: SealedFolder, run: str, tensors: Mapping[str, Tensor], card: ModelCard
) -> Path:
    """Write the model that a run gave an organisation; only its owner can read it."""
    private_folder(folder)
    plain = file_name(run)
    path = folder / f"{plain if plain == run else f'{plain}-{name_digest(run)}'}.safetensors"
    sealed.write(path.name, model_bytes(tensors, card))
    known = sorted(folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    for file in known[:-MOST_MODELS]:
        file.unlink()
    return path

"""Export of a participant's model: its weights, its card, and an example that runs."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.loader_script import loading_example
from fedegoists.consortium.model_cards import (
    CARD_FILE,
    CARDS_FOLDER,
    NOT_RECORDED,
    CardFacts,
    card_text,
    with_files,
)
from fedegoists.consortium.onnx_files import onnx_bytes
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import read_text, write_all
from fedegoists.learning.array_models import ArrayNetwork
from fedegoists.learning.model_files import CARD_KEY, ModelCard
from fedegoists.learning.model_registry import MODELS
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import OwnTrainerError, is_own, travelling_name
from fedegoists.learning.sealed_models import MODELS_FOLDER, check_run_model


class PreparedModel(nn.Module):
    """A model that takes raw values and returns probabilities, or the value to predict.

    Parameters
    ----------
    model : nn.Module
        The network as it was trained.
    card : ModelCard
        The card of its file.
    """

    def __init__(self, model: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.model = model
        self.task = card.task
        self.names = [one.name for one in card.inputs]
        self.target = card.target
        self.clips = [one.clip for one in card.inputs]
        self.kinds = ["images" if one.name == "pixels" else one.kind for one in card.inputs]
        for one in card.inputs:
            parts = {"center": one.center, "factor": one.factor, "missing": one.missing}
            for part, values in parts.items():
                numbers = [float("nan") if value is None else value for value in values]
                self.register_buffer(f"{one.name}_{part}", torch.tensor(numbers))

    def forward(self, *raw: Tensor) -> Tensor:
        """Return (batch, outputs) for raw values in the columns of each input."""
        prepared = map(self._prepared, raw, self.names, self.clips, self.kinds)
        outputs: Tensor = self.model(*prepared)
        if self.task == "binary":
            return outputs.sigmoid()
        if self.task == "classification":
            return outputs.softmax(-1)
        if self.target is not None:
            return self.target.center + self.target.spread * outputs
        return outputs

    def _prepared(self, values: Tensor, name: str, clip: float | None, kind: str) -> Tensor:
        if kind == "whole":
            return values
        center, factor, missing = (
            self.get_buffer(f"{name}_{part}") for part in ("center", "factor", "missing")
        )
        values = values.float()
        prepared = (torch.where(values.isnan(), missing, values) - center) * factor
        if clip is not None:
            prepared = prepared.clamp(-clip, clip)
        return prepared.movedim(-1, -3) if kind == "images" else prepared


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], ModelCard]:
    """Return the tensors of a model from the file of a run, and its card.

    Raises
    ------
    FileError
        If the file cannot be read, is not a model of a run, or needs a network of another version.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            card = ModelCard.model_validate_json((file.metadata() or {})[CARD_KEY])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if not card.inputs:
            raise FileError(
                f"{path}: only the silo knows how its inputs are prepared and has all layers; "
                "there, use `fedegoists deploy model KIT`"
            )
        if not is_own(card.model) and card.model.partition("(")[0] not in MODELS:
            raise FileError(
                f"{path}: its network {card.model!r} is not in this version; install the version "
                "that trained it"
            )
        return tensors, card
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except FileError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise _foreign(path, error) from None


def read_model(path: str | os.PathLike[str]) -> tuple[nn.Module, ModelCard]:
    """Return a model from the file of a run, and its card.

    Raises
    ------
    FileError
        As `read_file`.
    OwnTrainerError
        If it has no module, because it was trained by a user's own trainer.
    """
    tensors, card = read_file(path)
    try:
        model = build_model(card.model, 0, **card.options)
        model.load_state_dict(tensors)
    except (OwnTrainerError, FileError):
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _foreign(path, error) from None
    return model.eval(), card


def _foreign(path: str | os.PathLike[str], error: Exception) -> FileError:
    return FileError(f"{path}: not a model that a run of this version left ({error})")


def export(
    run: str | os.PathLike[str],
    participant: str,
    out: str | os.PathLike[str] | None = None,
    *,
    onnx: bool = False,
) -> list[Path]:
    """Write a participant's model for use elsewhere; return the files.

    Parameters
    ----------
    run : path
        A run's folder.
    participant : str
        The participant's name.
    out : path, optional
        Where to write; by default the folder ``export`` of the run, with one for the participant.
    onnx : bool
        Whether to write ONNX too, with preparation and probabilities built in.

    Raises
    ------
    FileError
        If there is no such run or model.
    MissingDependencyError
        If ONNX is wanted without the extra.
    """
    run = Path(run)
    file, source = _found(run, participant)
    folder = run / "export" / file if out is None else Path(out)
    about = run / CARDS_FOLDER / f"{file}.md"

    def text(card: ModelCard) -> str:
        return read_text(about) if about.is_file() else card_text(card, _unknown(run.name))

    return export_file(source, file, folder, text, onnx=onnx)


def _unknown(run: str) -> CardFacts:
    """Return the facts about a model of an earlier version, which recorded none."""
    return CardFacts(run, NOT_RECORDED, None, NOT_RECORDED, None, NOT_RECORDED)


def export_file(
    source: Path,
    file: str,
    folder: Path,
    text: Callable[[ModelCard], str],
    *,
    onnx: bool = False,
) -> list[Path]:
    """Write one model's file for use elsewhere, under the name `file`; return the files.

    Parameters
    ----------
    text : function from a ModelCard to str
        Returns the model card for people.
    """
    card = read_file(source)[1]
    contents = [
        (folder / f"{file}.safetensors", source.read_bytes()),
        (folder / f"{file}.json", (card.json_text(indent=2) + "\n").encode()),
    ]
    shapes = sample_shapes(card)
    model: nn.Module | None = None
    with contextlib.suppress(OwnTrainerError):  # only its own code can use the parameters
        model, _ = read_model(source)
        contents.append((folder / "example.py", loading_example(file, card, shapes).encode()))
    if onnx and (model is None or isinstance(model, ArrayNetwork)):
        raise SettingsError(
            f"{travelling_name(card.model)} is no PyTorch module, so it cannot be written as ONNX; "
            "export it without --onnx"
        )
    if onnx:
        assert model is not None
        content = onnx_bytes(PreparedModel(model, card).eval(), card, shapes)
        contents.append((folder / f"{file}.onnx", content))
    hashed = {path.name: content for path, content in contents}
    contents.append((folder / CARD_FILE, with_files(text(card), hashed).encode()))
    write_all(contents, private=True)
    return [path for path, _ in contents]


def _found(run: Path, participant: str) -> tuple[str, Path]:
    """Return the base name of a participant's files, and its model's file."""
    try:
        decision = json.loads((run / "certificate.json").read_text(encoding="utf-8"))
        names = [name for group in decision["coalitions"] for name in group]
    except (OSError, ValueError, KeyError, TypeError):
        raise FileError(f"{run}: not the folder of a run, which has a certificate.json") from None
    if participant not in names:
        raise SettingsError(f"no participant {participant!r}; there are {', '.join(names)}")
    file = file_names(names)[participant]
    source = run / MODELS_FOLDER / f"{file}.safetensors"
    if not source.is_file():
        raise FileError(f"{source}: no such file; the run is not finished, or left no model for it")
    check_run_model(run, source.name)
    return file, source


def sample_shapes(card: ModelCard) -> dict[str, tuple[int, ...]]:
    """Return the shape of one sample in each input, by its name."""
    if card.shapes:
        return {one.name: own for one, own in zip(card.inputs, card.shapes, strict=True)}
    # A file of an earlier version, in which images had one size.
    hours = int(card.options.get("hours", 1))
    leading: dict[str, tuple[int, ...]] = {"hourly": (hours,), "pixels": (32, 32)}
    return {one.name: (*leading.get(one.name, ()), len(one.columns)) for one in card.inputs}

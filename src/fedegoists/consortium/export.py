"""Export of a participant's model: its weights, its card, and an example that runs."""

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.loader_script import loading_example
from fedegoists.errors import FileError, MissingDependencyError, SettingsError
from fedegoists.files import write_all
from fedegoists.learning.model_files import CARD_KEY, MODELS_FOLDER, ModelCard
from fedegoists.learning.model_registry import MODELS
from fedegoists.learning.models import build_model

OUTPUTS = {
    "binary": "probability",
    "classification": "probabilities",
    "regression": "value",
}
"""The name of an exported model's output, by the kind of task."""


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
        self.clips = [one.clip for one in card.inputs]
        for one in card.inputs:
            parts = {"center": one.center, "factor": one.factor, "missing": one.missing}
            for part, values in parts.items():
                numbers = [float("nan") if value is None else value for value in values]
                self.register_buffer(f"{one.name}_{part}", torch.tensor(numbers))

    def forward(self, *raw: Tensor) -> Tensor:
        """Return (batch, outputs) for raw values in the columns of each input."""
        outputs: Tensor = self.model(*map(self._prepared, raw, self.names, self.clips))
        if self.task == "binary":
            return outputs.sigmoid()
        return outputs.softmax(-1) if self.task == "classification" else outputs

    def _prepared(self, values: Tensor, name: str, clip: float | None) -> Tensor:
        center, factor, missing = (
            self.get_buffer(f"{name}_{part}") for part in ("center", "factor", "missing")
        )
        values = values.float()
        prepared = (torch.where(values.isnan(), missing, values) - center) * factor
        if clip is not None:
            prepared = prepared.clamp(-clip, clip)
        return prepared.movedim(-1, -3) if name == "pixels" else prepared


def read_model(path: str | os.PathLike[str]) -> tuple[nn.Module, ModelCard]:
    """Return a model from the file of a run, and its card.

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
        if card.model not in MODELS:
            raise FileError(
                f"{path}: its network {card.model!r} is not in this version; install the version "
                "that trained it"
            )
        model = build_model(card.model, 0, **card.options)
        model.load_state_dict(tensors)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except FileError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path}: not a model that a run of this version left ({error})") from None
    return model.eval(), card


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
    return export_file(source, file, run / "export" / file if out is None else Path(out), onnx=onnx)


def export_file(source: Path, file: str, folder: Path, *, onnx: bool = False) -> list[Path]:
    """Write one model's file for use elsewhere, under the name `file`; return the files."""
    model, card = read_model(source)
    shapes = _shapes(card)
    contents = [
        (folder / f"{file}.safetensors", source.read_bytes()),
        (folder / f"{file}.json", (card.json_text(indent=2) + "\n").encode()),
        (folder / "example.py", loading_example(file, card, shapes).encode()),
    ]
    if onnx:
        content = _onnx(PreparedModel(model, card).eval(), card, shapes)
        contents.append((folder / f"{file}.onnx", content))
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
    return file, source


def _onnx(model: PreparedModel, card: ModelCard, shapes: dict[str, tuple[int, ...]]) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"ONNX needs {error.name}: pip install 'fedegoists[onnx]'"
        ) from None
    # Two samples: from one the exporter would conclude that the batch is always one.
    example = tuple(torch.zeros(2, *shape) for shape in shapes.values())
    batch = torch.export.Dim("batch")
    with _quiet_exporter():
        program = torch.onnx.export(
            model,
            example,
            input_names=list(shapes),
            output_names=[OUTPUTS[card.task]],
            dynamic_shapes=(tuple({0: batch} for _ in shapes),),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    proto.metadata_props.add(key=CARD_KEY, value=card.json_text())
    content: bytes = proto.SerializeToString()
    return content


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Context manager that hides the exporter's remarks about itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _shapes(card: ModelCard) -> dict[str, tuple[int, ...]]:
    """Return the shape of one sample in each input, by its name."""
    leading = {"hourly": (card.options.get("hours", 1),), "pixels": (32, 32)}
    return {one.name: (*leading.get(one.name, ()), len(one.columns)) for one in card.inputs}

"""A participant's model for use elsewhere: weights, what they need, and an example that runs."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.loader_script import loading_example
from fedegoists.errors import FileError, MissingDependencyError, SettingsError
from fedegoists.files import write_all
from fedegoists.learning.models import build_model

__all__ = ["PreparedModel", "export", "export_file", "read_model"]

OUTPUTS = {
    "binary": "probability",
    "classification": "probabilities",
    "regression": "value",
}
"""What an exported model says, by the kind of task."""


class PreparedModel(nn.Module):
    """A model that takes raw values and says probabilities, or the value to predict.

    Parameters
    ----------
    model : nn.Module
        The network as it was trained.
    about : mapping
        What its file says of it.
    """

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.task = about["task"]
        self.names = [one["name"] for one in about["inputs"]]
        self.clips = [one["clip"] for one in about["inputs"]]
        for one in about["inputs"]:
            for part in ("center", "factor", "missing"):
                numbers = [float("nan") if value is None else value for value in one[part]]
                self.register_buffer(f"{one['name']}_{part}", torch.tensor(numbers))

    def forward(self, *raw: Tensor) -> Tensor:
        """Return (batch, outputs) for raw values as the columns of each input have them."""
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


def read_model(path: str | os.PathLike[str]) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model that a run left, and what its file says of it.

    Raises
    ------
    FileError
        If it cannot be read, or is no model of a run.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["fedegoists"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if not about["inputs"]:
            raise FileError(
                f"{path}: only the silo knows how its inputs are prepared and has all layers; "
                "there, use `fedegoists deploy model KIT`"
            )
        model = build_model(about["model"], 0, **about["options"])
        model.load_state_dict(tensors)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except FileError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path}: not a model that a run of this version left ({error})") from None
    return model.eval(), about


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
        Whose model.
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
    """Write one model's file for use elsewhere, under the name `file`; return what was written."""
    model, about = read_model(source)
    contents = [
        (folder / f"{file}.safetensors", source.read_bytes()),
        (folder / f"{file}.json", (json.dumps(about, indent=2) + "\n").encode()),
        (folder / "example.py", loading_example(file, about, _shapes(about)).encode()),
    ]
    if onnx:
        contents.append((folder / f"{file}.onnx", _onnx(PreparedModel(model, about).eval(), about)))
    write_all(contents, private=True)
    return [path for path, _ in contents]


def _found(run: Path, participant: str) -> tuple[str, Path]:
    """Return what a participant's files are called, and its model's file."""
    try:
        decision = json.loads((run / "certificate.json").read_text(encoding="utf-8"))
        names = [name for group in decision["coalitions"] for name in group]
    except (OSError, ValueError, KeyError, TypeError):
        raise FileError(f"{run}: not the folder of a run, which has a certificate.json") from None
    if participant not in names:
        raise SettingsError(f"no participant {participant!r}; there are {', '.join(names)}")
    file = file_names(names)[participant]
    source = run / "models" / f"{file}.safetensors"
    if not source.is_file():
        raise FileError(f"{source}: no such file; the run is not finished, or left no model for it")
    return file, source


def _onnx(model: PreparedModel, about: Mapping[str, Any]) -> bytes:
    import contextlib
    import io
    import logging
    import warnings

    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"ONNX needs {error.name}: pip install 'fedegoists[onnx]'"
        ) from None
    # Two samples: of one the exporter would take that there is always one.
    example = tuple(torch.zeros(2, *shape) for shape in _shapes(about).values())
    batch = torch.export.Dim("batch")
    names = [one["name"] for one in about["inputs"]]
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # of the exporter about itself
            program = torch.onnx.export(
                model,
                example,
                input_names=names,
                output_names=[OUTPUTS[about["task"]]],
                dynamic_shapes=(tuple({0: batch} for _ in names),),
                dynamo=True,
                verbose=False,
            )
    finally:
        quiet.setLevel(level)
    assert program is not None
    proto = program.model_proto
    proto.metadata_props.add(key="fedegoists", value=json.dumps(dict(about), sort_keys=True))
    content: bytes = proto.SerializeToString()
    return content


def _shapes(about: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of one sample in each input."""
    leading = {"hourly": (about["options"].get("hours", 1),), "pixels": (32, 32)}
    return {
        one["name"]: (*leading.get(one["name"], ()), len(one["columns"])) for one in about["inputs"]
    }

"""Exported models in ONNX files: writing them, and reading them with a check of their content.

The metadata of a file names the columns, so that a program can put its own in order without this
package: ``columns`` and ``classes`` as JSON, the whole card under ``fedegoists``, and ``sha256``.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from torch import nn

from fedegoists.errors import FileError, MissingDependencyError
from fedegoists.install_hints import install_command
from fedegoists.learning.model_files import CARD_KEY, ModelCard

OUTPUTS = {
    "binary": "probability",
    "classification": "probabilities",
    "regression": "value",
    "survival": "log risk",
}
"""The name of an exported model's output, by the kind of task."""
DIGEST_KEY = "sha256"
"""The key of the digest over the card and the graph with all weights."""

Values = npt.NDArray[np.float32]
RawInputs = tuple[npt.NDArray[Any], ...]
"""Values as measured, one array for each input of a model; the first axis counts samples."""
Predictor = Callable[[RawInputs], Values]
"""From raw values to outputs, samples × outputs."""


def onnx_bytes(model: nn.Module, card: ModelCard, shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return a model that prepares its inputs itself as an ONNX file with its card.

    Parameters
    ----------
    shapes : mapping of str to tuple of int
        The shape of one sample in each input.

    Raises
    ------
    MissingDependencyError
        If the extra is not installed.
    """
    _require("onnx", "onnxscript")
    # Two samples: from one the exporter would conclude that the batch is always one.
    kinds = {one.name: one.kind for one in card.inputs}
    example = tuple(
        torch.zeros(2, *shape, dtype=torch.int64 if kinds[name] == "whole" else torch.float32)
        for name, shape in shapes.items()
    )
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
    text = card.json_text()
    for key, value in {
        CARD_KEY: text,
        "columns": json.dumps({one.name: one.columns for one in card.inputs}),
        "classes": json.dumps(card.classes),
        DIGEST_KEY: _digest(proto, text),
    }.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content


def read_onnx(path: str | os.PathLike[str]) -> tuple[Predictor, ModelCard]:
    """Return an exported model as a function, and its card.

    Raises
    ------
    FileError
        If it is not an exported model, or its weights, graph or card were changed since.
    MissingDependencyError
        If ONNX Runtime is not installed.
    """
    _require("onnx", "onnxruntime")
    import onnx
    import onnxruntime

    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        proto = onnx.load(path)
        about = {one.key: one.value for one in proto.metadata_props}
        card = ModelCard.model_validate_json(about[CARD_KEY])
        digest = about[DIGEST_KEY]
    except (KeyError, ValidationError):
        raise FileError(
            f"{path}: it does not say which columns it takes; use a file that `fedegoists export "
            "--onnx` of this version wrote"
        ) from None
    except Exception as error:  # protobuf's errors are of several kinds
        raise FileError(f"{path}: not an ONNX file that can be read ({error})") from None
    if digest != _digest(proto, about[CARD_KEY]):
        raise FileError(
            f"{path}: changed after its export: its digest does not fit its weights and columns; "
            "do not use it, and export the model again"
        )
    session = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])

    def predicted(raw: RawInputs) -> Values:
        given = {one.name: values for one, values in zip(card.inputs, raw, strict=True)}
        (outputs,) = session.run([OUTPUTS[card.task]], given)
        return np.asarray(outputs)

    return predicted, card


def _digest(proto: Any, card: str) -> str:
    """Return a digest of a card and of the graph with all weights."""
    content = hashlib.sha256(card.encode())
    content.update(b"\0")
    content.update(proto.graph.SerializeToString(deterministic=True))
    return content.hexdigest()


def _require(*packages: str) -> None:
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            raise MissingDependencyError(
                f"ONNX needs {error.name}: {install_command('onnx')}"
            ) from None


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

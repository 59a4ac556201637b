"""Predictions of a model for new samples, after a check that they fit the model."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedegoists.consortium.export import PreparedModel, read_model
from fedegoists.consortium.new_samples import NewSamples, new_samples
from fedegoists.consortium.onnx_files import Predictor, RawInputs, Values, read_onnx
from fedegoists.files import csv_bytes
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.image_schema import ImageSchema
from fedegoists.learning.model_files import ModelCard
from fedegoists.learning.sealed_models import MODELS_FOLDER, check_run_model
from fedegoists.notebooks import data_frame

AT_ONCE = 256
"""Samples that a model gets at once."""


@dataclass(frozen=True)
class Prediction:
    """The predictions for some samples.

    Attributes
    ----------
    card : ModelCard
        The card of the model.
    columns : tuple of str
        One for each number that the model predicts, such as ``probability of yes``.
    values : array, samples × columns
        The predictions, in the order of the samples.
    kept : mapping of str to list of str
        What names the samples: paths of images, keys of stays, and columns that were asked for.
    remarks : tuple of str
        What a user should know about the samples: columns that were not used, missing values that
        were filled in, values outside the range of the training data, images that were resized.
    """

    card: ModelCard
    columns: tuple[str, ...]
    values: npt.NDArray[np.float64]
    kept: Mapping[str, list[str]]
    remarks: tuple[str, ...]

    def csv(self) -> bytes:
        """Return the predictions as CSV, with the kept columns in front."""
        rows = (
            (*own, *(f"{value:.7g}" for value in values))
            for *own, values in zip(*self.kept.values(), self.values.tolist(), strict=True)
        )
        return csv_bytes((*self.kept, *self.columns), rows)

    def to_frame(self) -> Any:
        """Return a pandas data frame with the kept columns in front."""
        rows = [
            (*own, *values)
            for *own, values in zip(*self.kept.values(), self.values.tolist(), strict=True)
        ]
        return data_frame((*self.kept, *self.columns), rows)


def predict(
    model: str | os.PathLike[str],
    rows: Any,
    *,
    keep: Sequence[str] = (),
    folder: str | None = None,
) -> Prediction:
    """Predict for new samples, which are read as the training data was, without what to predict.

    Parameters
    ----------
    model : path
        A model of a run, or an exported one: ``.safetensors`` or ``.onnx``.
    rows : path, data frame or arrays
        For a model of tables, a table or data frame, whose columns are found by their names. For
        one of measurements over time, a folder with both tables. For one of images, an image, a
        folder of them, or a table with their paths. For any, arrays as for `load_arrays`, or
        ``data.py:load``: a function that returns arrays, or all that it returns for training.
    keep : sequence of str
        Columns of the table to repeat beside the predictions, such as a patient's number.
    folder : str, optional
        Given to the function, if it has a parameter ``folder``.

    Raises
    ------
    DataError
        If the samples do not fit the model, such as a column that is missing, a cell that is not a
        number, or an image of another size.
    FileError
        If the model or a file cannot be read, or is damaged.
    """
    predicted, card = _model(Path(model))
    samples = new_samples(card, rows, keep=keep, folder=folder)
    outputs = _outputs(predicted, samples)
    names = _names(card, outputs.shape[1])
    return Prediction(card, names, outputs, samples.kept, samples.remarks)


def _outputs(predicted: Predictor, samples: NewSamples) -> npt.NDArray[np.float64]:
    """Return the model's outputs for all samples.

    Raises
    ------
    DataError
        If one is not a number.
    """
    parts = [
        predicted(samples.batch(slice(start, start + AT_ONCE)))
        for start in range(0, samples.count, AT_ONCE)
    ]
    outputs = np.concatenate(parts).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(outputs).all(axis=1))
    if len(bad):
        raise DataError(
            f"{samples.place(int(bad[0]))}: the model predicts no number here ({len(bad)} such "
            "samples); remove it, or fill in what is missing"
        )
    return outputs


def _model(path: Path) -> tuple[Predictor, ModelCard]:
    if path.suffix.casefold() == ".onnx":
        return read_onnx(path)
    if path.parent.name == MODELS_FOLDER and path.is_file():
        check_run_model(path.parent.parent, path.name)
    network, card = read_model(path)
    prepared = PreparedModel(network, card).eval()

    def predicted(raw: RawInputs) -> Values:
        with torch.no_grad():
            outputs: Values = prepared(*map(torch.from_numpy, raw)).numpy()
        return outputs

    return predicted, card


def _names(card: ModelCard, count: int) -> tuple[str, ...]:
    classes = card.classes
    if card.task == "regression":
        if card.table is None:
            return ("value",)
        if isinstance(card.table, ImageSchema):
            return (card.table.images.label,)
        return (card.table.target,)
    if card.task == "survival":
        return ("logarithm of the relative risk",)
    if card.task == "binary":
        return (f"probability of {classes[1] if classes else 1}",)
    return tuple(f"probability of {name}" for name in classes or range(count))

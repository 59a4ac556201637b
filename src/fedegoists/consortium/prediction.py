"""Predictions of a model for new rows, after a check that the rows fit the model."""

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedegoists.consortium.export import PreparedModel, read_model
from fedegoists.consortium.onnx_files import Predictor, Values, read_onnx
from fedegoists.errors import FileError
from fedegoists.files import csv_bytes
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.data_tables import DataTable, WantedColumns
from fedegoists.learning.datasets.feature_encoding import Problems, encoded_features
from fedegoists.learning.datasets.schema import OTHER, Schema
from fedegoists.learning.datasets.table_files import read_table
from fedegoists.learning.model_files import ModelCard
from fedegoists.learning.preparation import HIDDEN, InputPreparation
from fedegoists.learning.sealed_models import MODELS_FOLDER, check_run_model
from fedegoists.notebooks import data_frame

MOST_NAMED = 5
"""Rows that a remark names."""


@dataclass(frozen=True)
class Prediction:
    """The predictions for some rows.

    Attributes
    ----------
    card : ModelCard
        The card of the model.
    columns : tuple of str
        One for each number that the model predicts, such as ``probability of yes``.
    values : array, rows × columns
        The predictions, in the order of the rows.
    kept : mapping of str to list of str
        Columns of the rows that were asked for, such as their keys.
    remarks : tuple of str
        What a user should know about the rows: columns that were not used, missing values that were
        filled in, values outside the range of the training data.
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
    model: str | os.PathLike[str], rows: str | os.PathLike[str], *, keep: Sequence[str] = ()
) -> Prediction:
    """Predict for the rows of a table, whose columns are found by their names.

    Parameters
    ----------
    model : path
        A model of a run, or an exported one: ``.safetensors`` or ``.onnx``.
    rows : path
        A table as for training, without the column to predict.
    keep : sequence of str
        Columns of the table to repeat beside the predictions, such as a patient's number.

    Raises
    ------
    DataError
        If the table lacks a column that the model takes, or a cell is not a number.
    FileError
        If the model cannot be read, is damaged, or takes no table.
    """
    predicted, card = _model(Path(model))
    one = _table_input(card, model)
    schema = card.table or _of_numbers(one.columns, card)
    wanted = schema.wanted_for_prediction(keep)
    table = read_table("rows", Path(rows), wanted)
    problems = Problems()
    raw = encoded_features(table, schema, problems, training=False)
    problems.tell()
    assert raw is not None  # there were no problems
    remarks = (
        *_unused(table, wanted),
        *(
            remark
            for name in schema.features
            for remark in _about_column(table, one, schema, name, raw)
        ),
    )
    outputs = predicted(raw.astype(np.float32)).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(outputs).all(axis=1))
    if len(bad):
        raise DataError(
            f"{table.where}, {table.line_of(int(bad[0]))}: the model predicts no number for this "
            f"row ({len(bad)} such rows); remove it, or fill in what is missing"
        )
    kept = {name: table.texts(name) for name in keep}
    return Prediction(card, _names(card, outputs.shape[1]), outputs, kept, remarks)


def _model(path: Path) -> tuple[Predictor, ModelCard]:
    if path.suffix.casefold() == ".onnx":
        return read_onnx(path)
    if path.parent.name == MODELS_FOLDER and path.is_file():
        check_run_model(path.parent.parent, path.name)
    network, card = read_model(path)
    prepared = PreparedModel(network, card).eval()

    def predicted(raw: Values) -> Values:
        with torch.no_grad():
            outputs: Values = prepared(torch.from_numpy(raw)).numpy()
        return outputs

    return predicted, card


def _table_input(card: ModelCard, path: str | os.PathLike[str]) -> InputPreparation:
    """Return the model's only input; refuse a model for stays or images."""
    names = [one.name for one in card.inputs]
    if len(names) != 1 or names[0] in ("hourly", "pixels"):
        raise FileError(
            f"{path}: this model takes {' and '.join(names)}, not the rows of a table; the "
            "example.py beside an exported model shows how to predict with it"
        )
    return card.inputs[0]


def _of_numbers(columns: Sequence[str], card: ModelCard) -> Schema:
    """Return the schema of a model whose inputs are columns of numbers as they are."""
    free = next(name for name in ("target", "target (unknown)") if name not in columns)
    classes = None if card.task == "regression" else card.classes or ("0", "1")
    return Schema(
        features=tuple(columns), target=free, task=card.task, classes=classes, missing="mean"
    )


def _unused(table: DataTable, wanted: WantedColumns) -> list[str]:
    unused = [name for name in table.names if not wanted.reads(name)]
    return [f"columns not used: {', '.join(map(repr, unused))}"] if unused else []


def _about_column(
    table: DataTable,
    one: InputPreparation,
    schema: Schema,
    name: str,
    raw: npt.NDArray[np.float64],
) -> list[str]:
    """Return the remarks about the values of one column."""
    if name not in table.columns:
        return [f"there is no column {name!r}, which is optional: its values count as missing"]
    k = schema.inputs.index(schema.inputs_of(name)[0])
    kind, values = schema.column(name).kind, raw[:, k]
    missing = np.isnan(values)
    found = []
    if missing.any():
        usual = one.missing[k]
        what = "left to the model" if usual is None else f"the training mean {usual:.6g} is used"
        if kind == "category":
            what = "the training frequencies of its categories are used"
        found.append(f"{name!r}: {_counted(table, missing)} missing; {what}")
    if kind == "category":
        others = raw[:, schema.inputs.index(f"{name}={OTHER}")] == 1
        if others.any():
            found.append(f"{name!r}: {_counted(table, others)} no declared category; see the card")
    known = one.ranges[k] if one.ranges and kind in ("number", "date") else None
    if known is not None:
        outside = (values < known[0]) | (values > known[1])
        if outside.any():
            low, high = (_shown(end, kind) for end in known)
            found.append(
                f"{name!r}: {_counted(table, outside)} outside the range of the training data, "
                f"{low} to {high} (without its {HIDDEN} smallest and largest values); predictions "
                "are less certain there"
            )
    return found


def _shown(value: float, kind: str) -> str:
    """Return a number, or a date of which the days since 1970 are given."""
    if kind != "date":
        return f"{value:.6g}"
    return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=value))


def _counted(table: DataTable, chosen: npt.NDArray[np.bool_]) -> str:
    places = [table.line_of(int(row)) for row in np.flatnonzero(chosen)]
    more = ", …" if len(places) > MOST_NAMED else ""
    verb = "is" if len(places) == 1 else "are"
    return f"{len(places)} of {len(chosen)} values ({', '.join(places[:MOST_NAMED])}{more}) {verb}"


def _names(card: ModelCard, count: int) -> tuple[str, ...]:
    classes = card.classes
    if card.task == "regression":
        return ("value" if card.table is None else card.table.target,)
    if card.task == "survival":
        return ("logarithm of the relative risk",)
    if card.task == "binary":
        return (f"probability of {classes[1] if classes else 1}",)
    return tuple(f"probability of {name}" for name in classes or range(count))

"""New samples to predict for: tables, measurements over time, images and arrays, checked."""

import datetime
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.consortium.export import sample_shapes
from fedegoists.consortium.onnx_files import RawInputs
from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.array_data import checked_input
from fedegoists.learning.datasets.data_tables import DataTable, WantedColumns
from fedegoists.learning.datasets.feature_encoding import Problems, encoded_features
from fedegoists.learning.datasets.image_files import ENDINGS, stored_values
from fedegoists.learning.datasets.image_folders import (
    ImageForm,
    KeptImages,
    images_below,
    is_image,
    listed_paths,
)
from fedegoists.learning.datasets.image_schema import COLOURS, ImageSchema
from fedegoists.learning.datasets.loader_files import own_part, returned_by
from fedegoists.learning.datasets.schema import OTHER, Schema, SequenceSettings
from fedegoists.learning.datasets.step_tables import read_steps, unique_keys
from fedegoists.learning.datasets.table_files import READERS, is_frame, read_table
from fedegoists.learning.model_files import ModelCard
from fedegoists.learning.preparation import HIDDEN, InputPreparation

MOST_NAMED = 5
"""Rows that a remark names."""
LOADER = re.compile(r".+\.py:\w+")
"""A function in a file, such as data.py:load."""


@dataclass(frozen=True, eq=False)
class NewSamples:
    """Samples to predict for, which fit the model.

    Attributes
    ----------
    count : int
        Their number.
    batch : function from a slice to a tuple of arrays
        Returns some of them, as values that were measured, for each input of the model.
    kept : mapping of str to list of str
        What names each of them in the result, such as paths of images, and columns to repeat.
    remarks : tuple of str
        What a user should know about them.
    place : function from int to str
        Where one of them comes from, for messages.
    """

    count: int
    batch: Callable[[slice], RawInputs]
    kept: Mapping[str, list[str]]
    remarks: tuple[str, ...]
    place: Callable[[int], str]


def new_samples(
    card: ModelCard, rows: Any, *, keep: Sequence[str] = (), folder: str | None = None
) -> NewSamples:
    """Read new samples as the model's training data was read; see `predict`."""
    if isinstance(rows, str | os.PathLike) and LOADER.fullmatch(os.fspath(rows)):
        rows = _loaded(card, os.fspath(rows), folder)
    elif folder is not None:
        raise SettingsError(
            f"folder is {folder!r}, which is for a function such as data.py:load; leave it out"
        )
    if isinstance(rows, Mapping | tuple | list | np.ndarray):
        return _arrays(card, rows, keep)
    if isinstance(card.table, ImageSchema):
        return _images(card, card.table, Path(rows), keep)
    names = [one.name for one in card.inputs]
    if card.table is None and names != ["features"]:
        raise FileError(
            f"{rows}: this model takes {' and '.join(names)}, which were given as arrays, so it is "
            "not known how to make them of files; give a function that returns such arrays, as "
            "data.py:load does, or in Python predict(model, {'inputs': …})"
        )
    schema = card.table or _of_numbers(card.inputs[0].columns)
    if schema.sequence is not None:
        return _sequences(card, schema, schema.sequence, Path(rows), keep)
    raw, table, remarks = _rows(card.inputs[0], schema, rows, keep)
    return NewSamples(
        len(table), lambda part: (raw[part],), _kept(table, keep), remarks, _line(table)
    )


def _loaded(card: ModelCard, name: str, folder: str | None) -> Any:
    """Return the samples that a user's function returns for the model's organisation."""
    path = Path(name.rpartition(":")[0])
    if not path.is_file():
        raise FileError(f"{path}: no such file; give the path of the file with the function")
    given = {"folder": folder, "organisation": card.participant}
    where, returned = returned_by(name, given, {})
    if isinstance(returned, Mapping) and "organisations" in returned:
        return own_part(where, returned["organisations"], card.participant)
    return returned


def _kept(table: DataTable, keep: Sequence[str]) -> dict[str, list[str]]:
    return {name: table.texts(name) for name in keep}


def _line(table: DataTable) -> Callable[[int], str]:
    return lambda row: f"{table.where}, {table.line_of(row)}"


# Tables


def _of_numbers(columns: Sequence[str]) -> Schema:
    """Return the schema of a model whose inputs are columns of numbers as they are."""
    free = next(name for name in ("target", "target (unknown)") if name not in columns)
    # Only its features matter.
    return Schema(features=tuple(columns), target=free, task="regression", missing="mean")


def _rows(
    one: InputPreparation, schema: Schema, source: Any, keep: Sequence[str]
) -> tuple[npt.NDArray[np.float32], DataTable, tuple[str, ...]]:
    """Return the inputs of a table's rows, the table, and remarks."""
    wanted = schema.wanted_for_prediction(keep)
    table = read_table("rows", source, wanted)
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
    return raw.astype(np.float32), table, remarks


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


# Measurements over time


def _sequences(
    card: ModelCard, schema: Schema, sequence: SequenceSettings, folder: Path, keep: Sequence[str]
) -> NewSamples:
    """Read the two tables of a folder; each prediction is named by its key."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "no such folder"
        raise FileError(
            f"{folder}: {what}; this model takes a folder with {sequence.table} (without the "
            f"column to predict) and {sequence.steps_file}"
        )
    keep = tuple(dict.fromkeys((sequence.key, *keep)))
    static, table, remarks = _rows(card.inputs[1], schema, folder / sequence.table, keep)
    keys = unique_keys(table, sequence.key)
    steps = read_steps("rows", folder, keys, sequence, training=False)
    measured = steps.values.astype(np.float32)
    return NewSamples(
        len(table),
        lambda part: (measured[part], static[part]),
        _kept(table, keep),
        (*remarks, *steps.notes, *(f"{sequence.steps_file}: {text}" for text in steps.warnings)),
        _line(table),
    )


# Images


def _images(card: ModelCard, schema: ImageSchema, source: Path, keep: Sequence[str]) -> NewSamples:
    """Decode images as for training; each prediction is named by its path."""
    problems = Problems()
    paths, kept = _image_paths(schema, source, keep, problems)
    height, width, *_ = sample_shapes(card)[card.inputs[0].name]
    kind = next(kind for kind, names in COLOURS.items() if names == card.inputs[0].columns)
    way_on = "bring it into this form, as you would all images that the model shall see"
    form = ImageForm("the model's training images are", (height, width), kind, way_on, way_on)
    with tempfile.TemporaryFile(prefix="fedegoists-") as file:  # what is mapped stays
        decoded = KeptImages(schema.images, file, form)
        for path in paths:
            decoded.add("images", path, problems)
        problems.tell()
        values = decoded.array()
    return NewSamples(
        len(paths),
        lambda part: (stored_values(values[part], schema.images),),
        kept,
        tuple(decoded.changes()),
        lambda row: str(paths[row]),
    )


def _image_paths(
    schema: ImageSchema, source: Path, keep: Sequence[str], problems: Problems
) -> tuple[list[Path], dict[str, list[str]]]:
    """Return the images of a folder, of a list or of one file, and what names them."""
    settings = schema.images
    if settings.list is not None and (source / settings.list).is_file():
        source = source / settings.list
    if source.is_file() and source.suffix.casefold() in READERS:
        names = tuple(dict.fromkeys((settings.path, *keep)))
        table = read_table("images", source, WantedColumns(names))
        paths = listed_paths(table, settings.path, source.parent, problems)
        problems.tell()
        return paths, _kept(table, names)
    if keep:
        raise SettingsError(
            f"{source}: there is no column {keep[0]!r} to keep, as this is no table; give a table "
            f"with the columns {settings.path} and {', '.join(keep)}"
        )
    if source.is_dir():
        paths = images_below("images", source, problems)
        names_of = [path.relative_to(source).as_posix() for path in paths]
    elif source.is_file() and is_image(source):
        paths, names_of = [source], [source.name]
    else:
        what = "not an image or table that can be read" if source.exists() else "no such file"
        raise FileError(
            f"{source}: {what}; give an image ({', '.join(ENDINGS)}), a folder of images, or a "
            f"table ({', '.join(READERS)}) with their paths in the column {settings.path!r}"
        )
    if not paths and not problems.found:
        raise DataError(f"{source}: no images (their names end in {', '.join(ENDINGS)})")
    return paths, {settings.path: names_of}


# Arrays


def _arrays(card: ModelCard, given: Any, keep: Sequence[str]) -> NewSamples:
    """Check arrays, as `load_arrays` takes them, against the inputs of the model."""
    if keep:
        raise SettingsError(f"there is no column {keep[0]!r} to keep, as arrays have no columns")
    if isinstance(given, Mapping):
        if "inputs" not in given:
            keys = ", ".join(map(str, given))
            raise DataError(f"arrays with the keys {keys}; expected a dictionary with inputs")
        given = given["inputs"]
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    shapes = sample_shapes(card)
    wanted = " and ".join(
        f"{name} (samples × {' × '.join(map(str, shape))})" for name, shape in shapes.items()
    )
    if len(parts) != len(card.inputs):
        raise DataError(f"{len(parts)} arrays; this model takes {wanted}")
    arrays = []
    for one, part in zip(card.inputs, parts, strict=True):
        array = checked_input(one.name, _in_order(one, part))
        if array.shape[1:] != shapes[one.name] or len(array) != len(parts[0]):
            raise DataError(f"{one.name}: an array of {array.shape}; this model takes {wanted}")
        if one.kind == "whole" and array.dtype.kind not in "iu":
            raise DataError(f"{one.name}: {array.dtype}; this model takes whole numbers")
        arrays.append(array.astype(np.int64 if one.kind == "whole" else np.float32))
    return NewSamples(
        len(arrays[0]),
        lambda part: tuple(array[part] for array in arrays),
        {},
        (),
        lambda row: f"sample {row}",
    )


def _in_order(one: InputPreparation, part: Any) -> Any:
    """Return the columns of a data frame in the order of the model's; anything else as it is."""
    if not is_frame(part):
        return part
    missing = [name for name in one.columns if name not in part.columns]
    if missing:
        raise DataError(
            f"{one.name}: column {missing[0]!r} is missing; the data frame has "
            f"{', '.join(map(repr, part.columns))}"
        )
    return part[list(one.columns)]

"""A user's own silos: one file for each organisation, checked against an agreed schema."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FileError
from fedegoists.graphs.participants import natural_order, shown, validated_names
from fedegoists.learning.data import Array, DataError, Indices, Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.schema import Schema
from fedegoists.learning.datasets.table_files import READERS, Table, read_table
from fedegoists.learning.options import generator
from fedegoists.learning.partitioners import stratified
from fedegoists.learning.scaling import mean_filled, preparation, standardised

__all__ = ["SCHEMA_FILE", "load_own"]

SCHEMA_FILE = "schema.toml"
SHARES = (0.7, 0.15, 0.15)
FEWEST_ROWS = 10
FEWEST_OF_A_CLASS = 3
"""One to train, one to validate and one to test on; fewer leave the AUC of a split undefined."""

Source = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]


def load_own(
    source: Source,
    schema: Schema | str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    position: int = 0,
    name: str = "own",
) -> SiloedData:
    r"""Load one table for each organisation, and say exactly what is wrong with it if anything is.

    Each organisation's rows are divided 70/15/15 into training, validation and test, in a
    classification by class.

    Parameters
    ----------
    source : folder, or mapping of organisations to files
        In a folder, every file that ends in ``.csv``, ``.parquet`` or ``.npz`` is an organisation,
        called as the file without its ending. Hidden files and folders are passed over.
    schema : Schema or path, optional
        What the files contain; by default ``schema.toml`` in the folder.
    seed : int
        Decides which rows are for training, validation and test.
    position : int
        Which organisation of a consortium the first one is: where each has only its own file, its
        rows are so divided as if all files were here.
    name : str
        What to call the data set.

    Raises
    ------
    DataError
        With the organisation, file, line and column of the first thing that does not fit.
    SettingsError
        If the schema is not one.

    Examples
    --------
    >>> import tempfile
    >>> schema = Schema(("age",), "ill", "binary", ("no", "yes"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for hospital in ("north", "south"):
    ...         rows = "\n".join(f"{age},{'yes' if age % 2 else 'no'}" for age in range(40, 60))
    ...         _ = Path(folder, f"{hospital}.csv").write_text(f"age,ill\n{rows}\n")
    ...     data = load_own(folder, schema)
    >>> data.sizes()["north"]
    SplitSizes(train=14, validation=3, test=3)
    """
    files = _files(source)
    agreed = _schema(source, schema)
    tables = [read_table(organisation, path, agreed.columns) for organisation, path in files]
    _check_same_columns(tables)
    features, targets, silos = [], [], []
    start = 0
    # Separate streams: more rows of one organisation leave the others' divisions alone.
    streams = generator(seed).spawn(position + len(tables))[position:]
    for table, rng in zip(tables, streams, strict=True):
        values = _features(table, agreed)
        goal = _target(table, agreed)
        silos.append(_divided(table, agreed, goal, start, rng))
        features.append(values)
        targets.append(goal)
        start += len(values)
    inputs: Array = np.concatenate(features)
    filled = int(np.isnan(inputs).sum())
    prepared = preparation(
        "features", agreed.features, inputs, silos, scaled=None if agreed.standardise else ()
    )
    if agreed.standardise:
        inputs = standardised(inputs, silos)
    inputs = mean_filled(inputs, silos)
    return SiloedData(
        name,
        agreed.task,
        Samples((inputs,), np.concatenate(targets)),
        tuple(silos),
        None if agreed.classes is None else len(agreed.classes),
        f"Predict {agreed.target!r} from {len(agreed.features)} features; a silo is an "
        "organisation.",
        _notes(agreed, filled, tables[0].names),
        preparation=(prepared,),
        class_names=agreed.classes or (),
    )


def _notes(schema: Schema, filled: int, columns: tuple[str, ...]) -> tuple[str, ...]:
    notes = [f"features: {', '.join(schema.features)}"]
    if schema.classes is not None:
        notes.append(f"classes: {', '.join(schema.classes)}")
    if schema.standardise:
        notes.append("features are scaled by each organisation's own training rows")
    if filled:
        notes.append(f"{filled:,} missing cells are the organisation's training mean")
    unused = [column for column in columns if column not in schema.columns]
    if unused:
        notes.append(f"columns not used: {', '.join(unused)}")
    return tuple(notes)


def _files(source: Source) -> list[tuple[str, Path]]:
    """Return organisations and their files."""
    if isinstance(source, Mapping):
        if not source:
            raise DataError("no organisations; give at least one name with its file")
        names = validated_names(source, "organisations")
        return [(name, Path(path)) for name, path in zip(names, source.values(), strict=True)]
    folder = Path(source)
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "no such folder"
        raise FileError(f"{folder}: {what}; give the folder with one file for each organisation")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == SCHEMA_FILE or path.is_dir():
            continue
        if path.suffix.casefold() not in READERS:
            # Passing over it could silently leave out an organisation.
            raise DataError(
                f"{path}: files that end in {path.suffix or 'nothing'!r} cannot be read; save the "
                f"table as {', '.join(READERS)}, or move the file elsewhere"
            )
        if path.stem in found:
            raise DataError(
                f"organisation {path.stem!r}: it has two files, {found[path.stem].name} and "
                f"{path.name}; remove one"
            )
        found[path.stem] = path
    if not found:
        raise DataError(
            f"{folder}: no organisations; put in one file for each, such as north.csv, that ends "
            f"in {', '.join(READERS)}"
        )
    names = validated_names(natural_order(found), str(folder))
    return [(name, found[stem]) for name, stem in zip(names, natural_order(found), strict=True)]


def _schema(source: Source, schema: Schema | str | os.PathLike[str] | None) -> Schema:
    if isinstance(schema, Schema):
        return schema
    if schema is not None:
        return Schema.from_toml(schema)
    if isinstance(source, Mapping):
        raise DataError("no schema; give one that says which columns the files have")
    path = Path(source, SCHEMA_FILE)
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; write a schema there, for example: features = "
            '["age", "income"], target = "default", task = "binary", classes = ["no", "yes"]'
        )
    return Schema.from_toml(path)


def _check_same_columns(tables: list[Table]) -> None:
    """Refuse columns that only some have: a feature under another name would go unnoticed."""
    first = tables[0]
    for table in tables[1:]:
        for one, other in ((first, table), (table, first)):
            extra = [name for name in one.names if name not in other.names]
            if extra:
                raise DataError(
                    f"{one.where}: it has a column {extra[0]!r} that organisation "
                    f"{other.organisation!r} ({other.path}) does not have; give all organisations "
                    "the same columns"
                )


def _features(table: Table, schema: Schema) -> npt.NDArray[np.float64]:
    values = np.stack([table.numbers(column) for column in schema.features], axis=1)
    missing = np.isnan(values)
    empty = np.flatnonzero(missing.all(axis=1))
    if len(empty):
        raise DataError(
            f"{table.where}, {table.line_of(int(empty[0]))}: no feature has a value; remove the row"
        )
    if schema.missing == "error" and missing.any():
        row, k = np.argwhere(missing)[0].tolist()
        raise DataError(
            f"{table.place(row, schema.features[k])}: the value is missing "
            f"({int(missing.sum())} in this file); fill it in, or set missing to 'mean' in the "
            "schema"
        )
    never = np.flatnonzero(missing.all(axis=0))
    if len(never):
        raise DataError(
            f"{table.where}, column {schema.features[never[0]]!r}: no row has a value, so there is "
            "no mean to fill in; leave this feature out of the schema, or this organisation out"
        )
    return values


def _target(table: Table, schema: Schema) -> Array:
    """Return the classes as positions in the schema's, or the numbers to predict."""
    if schema.classes is None:
        numbers = table.numbers(schema.target)
        absent = np.flatnonzero(np.isnan(numbers))
        if len(absent):
            raise _without_target(table, schema, int(absent[0]))
        return numbers.astype(np.float32)
    codes = {text: code for code, text in enumerate(schema.classes)}
    found = []
    for row, text in enumerate(table.texts(schema.target)):
        code = codes.get(text)
        if code is None:
            code = codes.get(_whole(text))
        if code is None:
            if not text:
                raise _without_target(table, schema, row)
            raise DataError(
                f"{table.place(row, schema.target)}: the class {shown(text)} is not declared; the "
                f"schema has {', '.join(map(repr, schema.classes[:12]))}"
            )
        found.append(code)
    return np.array(found, dtype=np.int64)


def _without_target(table: Table, schema: Schema, row: int) -> DataError:
    return DataError(
        f"{table.place(row, schema.target)}: the value to predict is missing; remove the row"
    )


def _whole(text: str) -> str:
    """Return ``1`` for ``1.0``, as many programs write whole numbers beside missing ones."""
    whole, _, rest = text.partition(".")
    return whole if rest and not rest.strip("0") else text


def _divided(
    table: Table, schema: Schema, target: Array, start: int, rng: np.random.Generator
) -> SiloIndices:
    if len(table) < FEWEST_ROWS:
        raise DataError(
            f"{table.where}: {len(table)} rows are too few to divide into training, validation and "
            f"test; at least {FEWEST_ROWS} are needed"
        )
    labels: Indices = np.zeros(len(table), dtype=np.int64)
    if schema.classes is not None:
        labels = target
        counts = np.bincount(labels, minlength=len(schema.classes))
        if np.count_nonzero(counts) < 2:
            raise DataError(
                f"{table.where}, column {schema.target!r}: all {len(table)} rows are of the class "
                f"{schema.classes[int(counts.argmax())]!r}; with one class there is nothing to "
                "learn, so leave this organisation out"
            )
        if schema.task == "binary" and counts.min() < FEWEST_OF_A_CLASS:
            raise DataError(
                f"{table.where}, column {schema.target!r}: {counts.min()} rows of the class "
                f"{schema.classes[int(counts.argmin())]!r} are too few to divide into training, "
                f"validation and test; at least {FEWEST_OF_A_CLASS} are needed"
            )
    parts = stratified(labels, SHARES, rng, everywhere=True)
    return SiloIndices(table.organisation, *(start + part for part in parts))

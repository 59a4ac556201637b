"""An organisation's own data: one file per organisation, checked against an agreed schema."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FileError, shown
from fedegoists.graphs.participants import natural_order, validated_names
from fedegoists.learning.data import Array, DataError, Indices, Samples, SiloedData
from fedegoists.learning.datasets.data_tables import READERS, DataTable, read_table
from fedegoists.learning.datasets.schema import Schema
from fedegoists.learning.partitioners import seeded, split_silos
from fedegoists.learning.scaling import prepared

SCHEMA_FILE = "schema.toml"
FEWEST_ROWS = 10
FEWEST_OF_A_CLASS = 3
"""One each for training, validation and test; with fewer, the AUC of a split is undefined."""

PathText = str | os.PathLike[str]
Source = PathText | Mapping[str, PathText]


def load_own(
    source: Source,
    schema: Schema | PathText | None = None,
    *,
    seed: int = 0,
    position: int = 0,
    name: str = "own",
) -> SiloedData:
    r"""Load one table per organisation; an error names the organisation, file, line and column.

    Each organisation's rows are divided 70/15/15 into training, validation and test, in a
    classification by class.

    Parameters
    ----------
    source : folder, or mapping of organisations to files
        In a folder, every file that ends in ``.csv``, ``.parquet`` or ``.npz`` is an organisation,
        named like the file without its ending. Hidden files and folders are ignored.
    schema : Schema or path, optional
        The agreed columns; by default ``schema.toml`` in the folder.
    seed : int
        The same seed gives the same rows for training, validation and test.
    position : int
        The first organisation's position in its consortium. Where each organisation has only its
        own file, its rows are then divided as if all files were here.
    name : str
        The name of the data set.

    Raises
    ------
    DataError
        With the organisation, file, line and column of the first cell that does not fit.
    SettingsError
        If the schema is not one.

    Examples
    --------
    >>> import tempfile
    >>> schema = Schema(features=("age",), target="ill", task="binary", classes=("no", "yes"))
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
    tables = {
        organisation: read_table(f"organisation {organisation!r}", path, agreed.columns)
        for organisation, path in files.items()
    }
    _check_same_columns(list(tables.values()))
    features, targets, labels = [], [], {}
    for organisation, table in tables.items():
        features.append(_features(table, agreed))
        targets.append(_target(table, agreed))
        labels[organisation] = _labels(table, agreed, targets[-1])
    # Separate random streams: more rows of one organisation leave the others' splits alone.
    silos = split_silos(labels, seeded(seed).spawn(position + len(tables))[position:])
    values: Array = np.concatenate(features)
    inputs, preparation = prepared(
        "features", agreed.features, values, silos, scaled=None if agreed.standardise else ()
    )
    return SiloedData(
        name,
        agreed.task,
        Samples((inputs,), np.concatenate(targets)),
        silos,
        None if agreed.classes is None else len(agreed.classes),
        f"Predict {agreed.target!r} from {len(agreed.features)} features; a silo is an "
        "organisation.",
        _notes(agreed, int(np.isnan(values).sum()), next(iter(tables.values())).names),
        preparation=(preparation,),
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


def _files(source: Source) -> dict[str, Path]:
    """Return each organisation's file."""
    if isinstance(source, Mapping):
        if not source:
            raise DataError("no organisations; give at least one name with its file")
        names = validated_names(source, "organisations")
        return dict(zip(names, map(Path, source.values()), strict=True))
    folder = Path(source)
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "no such folder"
        raise FileError(f"{folder}: {what}; give the folder with one file for each organisation")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == SCHEMA_FILE or path.is_dir():
            continue
        if path.suffix.casefold() not in READERS:
            # Ignoring it could silently leave out an organisation.
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
    stems = natural_order(found)
    names = validated_names(stems, str(folder))
    return {name: found[stem] for name, stem in zip(names, stems, strict=True)}


def _schema(source: Source, schema: Schema | PathText | None) -> Schema:
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


def _check_same_columns(tables: list[DataTable]) -> None:
    """Refuse columns that only some files have: a renamed feature would go unnoticed."""
    first = tables[0]
    for table in tables[1:]:
        for one, other in ((first, table), (table, first)):
            extra = [name for name in one.names if name not in other.names]
            if extra:
                raise DataError(
                    f"{one.where}: it has a column {extra[0]!r} that {other.owner} ({other.path}) "
                    "does not have; give all organisations the same columns"
                )


def _features(table: DataTable, schema: Schema) -> npt.NDArray[np.float64]:
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


def _target(table: DataTable, schema: Schema) -> Array:
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
        code = codes.get(text, codes.get(_whole(text)))
        if code is None:
            if not text:
                raise _without_target(table, schema, row)
            raise DataError(
                f"{table.place(row, schema.target)}: the class {shown(text)} is not declared; the "
                f"schema has {', '.join(map(repr, schema.classes[:12]))}"
            )
        found.append(code)
    return np.array(found, dtype=np.int64)


def _without_target(table: DataTable, schema: Schema, row: int) -> DataError:
    return DataError(
        f"{table.place(row, schema.target)}: the value to predict is missing; remove the row"
    )


def _whole(text: str) -> str:
    """Return ``1`` for ``1.0``, as many programs write whole numbers beside missing ones."""
    whole, _, rest = text.partition(".")
    return whole if rest and not rest.strip("0") else text


def _labels(table: DataTable, schema: Schema, target: Array) -> Indices:
    """Return the classes by which rows are divided; one for all in a regression."""
    if len(table) < FEWEST_ROWS:
        raise DataError(
            f"{table.where}: {len(table)} rows are too few to divide into training, validation and "
            f"test; at least {FEWEST_ROWS} are needed"
        )
    if schema.classes is None:
        return np.zeros(len(table), dtype=np.int64)
    counts = np.bincount(target, minlength=len(schema.classes))
    where = f"{table.where}, column {schema.target!r}"
    if np.count_nonzero(counts) < 2:
        raise DataError(
            f"{where}: all {len(table)} rows are of the class "
            f"{schema.classes[int(counts.argmax())]!r}; with one class there is nothing to learn, "
            "so leave this organisation out"
        )
    if schema.task == "binary" and counts.min() < FEWEST_OF_A_CLASS:
        raise DataError(
            f"{where}: {counts.min()} rows of the class "
            f"{schema.classes[int(counts.argmin())]!r} are too few to divide into training, "
            f"validation and test; at least {FEWEST_OF_A_CLASS} are needed"
        )
    return target

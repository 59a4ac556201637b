"""An organisation's own data: one file per organisation, checked against an agreed schema."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np

from fedegoists.errors import FileError
from fedegoists.graphs.participants import natural_order, validated_names
from fedegoists.learning.data import Array, DataError, Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.feature_encoding import Problems
from fedegoists.learning.datasets.image_folders import load_images, visible
from fedegoists.learning.datasets.image_schema import ImageSchema
from fedegoists.learning.datasets.organisation_rows import OrganisationRows, read_rows
from fedegoists.learning.datasets.schema import Schema, toml_settings
from fedegoists.learning.datasets.table_files import READERS
from fedegoists.learning.key_splits import joined_groups
from fedegoists.learning.preparation import Preparation
from fedegoists.learning.scaling import prepared, scaled_targets
from fedegoists.learning.typed_settings import validated

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]

SCHEMA_FILE = "schema.toml"
OUTLIER = 10.0
"""Scaled measurements over time are cut to ±10 deviations: few measurements make a poor scale."""

PathText = str | os.PathLike[str]
Table = Union[PathText, "pd.DataFrame"]
Source = PathText | Mapping[str, Table]
AnySchema = Schema | ImageSchema


def load_own(
    source: Source,
    schema: AnySchema | PathText | None = None,
    *,
    seed: int = 0,
    name: str = "own",
) -> SiloedData:
    r"""Load one table, or one folder of images, per organisation; an error names what is wrong.

    Each organisation's rows are divided 70/15/15 into training, validation and test by a hash of
    their group or, without one, of their features, see `split_by_key`.

    Parameters
    ----------
    source : folder, or mapping of organisations to files or data frames
        In a folder, every file that ends in ``.csv``, ``.parquet``, ``.npz`` or ``.xlsx`` is an
        organisation, named like the file without its ending. Hidden files and folders are ignored.
        If the schema is about images, every folder in it is an organisation instead.
    schema : Schema, ImageSchema or path, optional
        The agreed columns or folders; by default ``schema.toml`` in the folder.
    seed : int
        The same seed gives the same rows for training, validation and test.
    name : str
        The name of the data set.

    Raises
    ------
    DataError
        With the organisation, file, line and first cell that does not fit of every column.
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
    SplitSizes(train=12, validation=2, test=6)
    """
    agreed = _schema(source, schema)
    if isinstance(agreed, ImageSchema):
        return load_images(own_folders(source), agreed, seed=seed, name=name)
    tables = own_tables(source) if agreed.sequence is None else own_folders(source)
    problems, rows = Problems(), {}
    for organisation, table in tables.items():
        own = read_rows(organisation, table, agreed, seed, problems)
        if own is not None:
            rows[organisation] = own
    problems.tell()
    silos, start = [], 0
    for organisation, own in rows.items():
        silos.append(own.division.silo(organisation, start))
        start += len(own.target)
    parts = [own.features for own in rows.values()]
    values: Array = np.concatenate(parts) if len(parts) > 1 else parts[0]
    target: Array = np.concatenate([own.target for own in rows.values()])
    inputs, preparation = _inputs(agreed, values, list(rows.values()), silos)
    groups = joined_groups([own.division for own in rows.values()])
    scaled = agreed.task == "regression" and agreed.standardise
    target, scales = scaled_targets(target, silos) if scaled else (target, ())
    return SiloedData(
        name,
        agreed.task,
        Samples(inputs, target, _weights(list(rows.values())), groups),
        tuple(silos),
        None if agreed.classes is None else len(agreed.classes),
        f"Predict {agreed.target!r} from {len(agreed.features)} features; a silo is an "
        "organisation.",
        _notes(agreed, int(np.isnan(values).sum()), rows),
        preparation=preparation,
        class_names=agreed.classes or (),
        target_scales=scales,
        schema=agreed,
        warnings=tuple(
            f"{organisation}: {text}" for organisation, own in rows.items() for text in own.warnings
        ),
    )


def _inputs(
    schema: Schema, values: Array, rows: Sequence[OrganisationRows], silos: Sequence[SiloIndices]
) -> tuple[tuple[Array, ...], tuple[Preparation, ...]]:
    """Return the model's inputs: features, or measurements over time with features beside them."""
    if schema.sequence is None:
        inputs, way = prepared("features", schema.inputs, values, silos, scaled=schema.scaled)
        return (inputs,), (way,)
    steps = np.concatenate([own.steps for own in rows if own.steps is not None])
    scaled, clip = (None, OUTLIER) if schema.standardise else ((), None)
    # Networks for sequences see for themselves what was not measured.
    measured, first = prepared(
        "hourly", schema.sequence.features, steps, silos, scaled=scaled, filled=False, clip=clip
    )
    static, second = prepared("static", schema.inputs, values, silos, scaled=schema.scaled)
    return (measured, static), (first, second)


def _weights(rows: Sequence[OrganisationRows]) -> Array | None:
    """Return how much all rows count; None where all count alike."""
    known = [own.weights for own in rows if own.weights is not None]
    return np.concatenate(known) if known else None


def _notes(schema: Schema, filled: int, rows: Mapping[str, OrganisationRows]) -> tuple[str, ...]:
    notes = [f"features: {', '.join(schema.features)}"]
    if schema.inputs != schema.features:
        notes.append(f"the model's inputs: {', '.join(schema.inputs)}")
    if schema.classes is not None:
        notes.append(f"classes: {', '.join(schema.classes)}")
    if schema.standardise:
        scaled = "features and target" if schema.classes is None else "features"
        notes.append(f"{scaled} are scaled by each organisation's own training rows")
    if filled:
        notes.append(
            f"{filled:,} missing inputs are the organisation's training means (of categories: "
            "their frequencies)"
        )
    used = schema.wanted
    for organisation, own in rows.items():
        unused = [name for name in own.columns if not used.reads(name)]
        if unused:
            notes.append(f"{organisation}: columns not used: {', '.join(unused)}")
        notes += [f"{organisation}: {text}" for text in own.notes]
    return tuple(notes)


def own_tables(source: Source) -> dict[str, Table]:
    """Return each organisation's file or data frame."""
    if isinstance(source, Mapping):
        if not source:
            raise DataError("no organisations; give at least one name with its file")
        names = validated_names(source, "organisations")
        return dict(zip(names, source.values(), strict=True))
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


def own_folders(source: Source) -> dict[str, Path]:
    """Return the folder of each organisation, where each has one."""
    if isinstance(source, Mapping):
        folders: dict[str, Path] = {}
        for name, folder in own_tables(source).items():
            if not isinstance(folder, str | os.PathLike):
                raise DataError(f"organisation {name!r}: a data frame; this schema is for folders")
            folders[name] = Path(folder)
        return folders
    folder = Path(source)
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder; give the one with a folder per organisation")
    found = {path.name: path for path in visible(folder) if path.name != SCHEMA_FILE}
    for path in found.values():
        if not path.is_dir():
            raise DataError(
                f"{path}: a file; with this schema each organisation is a folder: move it elsewhere"
            )
    if not found:
        raise DataError(f"{folder}: no organisations; put in one folder for each, such as North")
    stems = natural_order(found)
    names = validated_names(stems, str(folder))
    return {name: found[stem] for name, stem in zip(names, stems, strict=True)}


def read_schema(path: PathText) -> Schema | ImageSchema:
    """Read the schema of tables, or of folders of images if it has a table ``[images]``.

    Raises
    ------
    SettingsError
        If the file is not TOML or not a schema.
    FileError
        If it cannot be read.
    """
    settings = toml_settings(path)
    if "images" in settings:
        return validated(ImageSchema, settings, os.fspath(path))
    return validated(Schema, settings, os.fspath(path))


def _schema(source: Source, schema: AnySchema | PathText | None) -> AnySchema:
    if isinstance(schema, Schema | ImageSchema):
        return schema
    if schema is not None:
        return read_schema(schema)
    if isinstance(source, Mapping):
        raise DataError("no schema; give one that says which columns the files have")
    path = Path(source, SCHEMA_FILE)
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; write a schema there, for example: features = "
            '["age", "income"], target = "default", task = "binary", classes = ["no", "yes"]'
        )
    return read_schema(path)

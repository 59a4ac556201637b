"""The rows of one organisation: its features, what to predict, and the division of the rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedegoists.errors import shown
from fedegoists.learning.concordance import survival_targets
from fedegoists.learning.data import Array, DataError
from fedegoists.learning.datasets.column_checks import looks_like_identifier
from fedegoists.learning.datasets.data_tables import DataTable, Numbers, whole
from fedegoists.learning.datasets.feature_encoding import Problems, encoded_features
from fedegoists.learning.datasets.row_division import KeyedSamples, SampleWords, divided
from fedegoists.learning.datasets.schema import OTHER, Schema
from fedegoists.learning.datasets.step_tables import read_steps, unique_keys
from fedegoists.learning.datasets.table_files import read_table
from fedegoists.learning.key_splits import KeySplit, row_keys

ROWS = SampleWords(
    noun="rows",
    copies="the same features as another row",
    apart="rows with the same features may be copies and are kept together: if they are not, name "
    "a column that tells them apart as group in the schema",
)


@dataclass(frozen=True, eq=False)
class OrganisationRows:
    """One organisation's rows.

    Attributes
    ----------
    features : array, rows × inputs
        See `Schema.inputs`; NaN stands for a missing value.
    target : array
        The class of each row, or the number to predict.
    columns : tuple of str
        All columns of its file.
    notes, warnings : list of str
        Facts about the rows, and what its owner should look at.
    weights : array, optional
        How much each row counts in the loss.
    steps : array, rows × steps × measured features, optional
        Measurements over time, where the schema has them.
    """

    features: Numbers
    target: Array
    division: KeySplit
    columns: tuple[str, ...]
    notes: list[str]
    warnings: list[str]
    weights: Numbers | None = None
    steps: Numbers | None = None


def read_rows(
    organisation: str, source: Any, schema: Schema, seed: int, problems: Problems
) -> OrganisationRows | None:
    """Read the rows of one organisation's table; None if there are problems, which are collected.

    Parameters
    ----------
    source : path or data frame
        Its table; the folder of its two tables, if the schema has measurements over time.
    """
    owner, sequence = f"organisation {organisation!r}", schema.sequence
    path = source if sequence is None else Path(source) / sequence.table
    table = problems.attempt(lambda: read_table(owner, path, schema.wanted))
    if table is None:
        return None
    features = encoded_features(table, schema, problems)
    target = problems.attempt(lambda: target_of(table, schema))
    if features is None or target is None:
        return None
    notes, warnings = _remarks(table, schema, features)
    steps = None
    if sequence is not None:
        keys = problems.attempt(lambda: unique_keys(table, sequence.key))
        if keys is None:
            return None
        steps = problems.attempt(lambda: read_steps(owner, Path(source), keys, sequence))
        if steps is None:
            return None
        notes += steps.notes
        warnings += steps.warnings
    division = problems.attempt(
        lambda: divided(_keyed(table, schema, features, target), seed, notes, warnings)
    )
    weights = None
    if schema.weight is not None:
        column = schema.weight
        weights = problems.attempt(lambda: row_weights(table, column))
        if weights is None:
            return None
    if division is None:
        return None
    measured = None if steps is None else steps.values
    return OrganisationRows(
        features, target, division, table.names, notes, warnings, weights, measured
    )


def _remarks(table: DataTable, schema: Schema, features: Numbers) -> tuple[list[str], list[str]]:
    """Return notes and warnings about single features."""
    notes, warnings = [], []
    inputs = schema.inputs
    for name in schema.features:
        if name not in table.columns:
            notes.append(f"it has no column {name!r}; all its values are marked as missing")
            continue
        own = features[:, inputs.index(schema.inputs_of(name)[0])]
        kind = schema.column(name).kind
        known = own[~np.isnan(own)]
        if kind == "category":
            others = features[:, inputs.index(f"{name}={OTHER}")] == 1
            if others.any():
                notes.append(
                    f"{int(others.sum()):,} values of {name!r} are not declared categories"
                )
        elif kind == "number" and looks_like_identifier(name, own):
            warnings.append(
                f"column {name!r} looks like an identifier; if it is one, "
                "remove it from the features (a patient's number belongs into group)"
            )
        if len(known) and kind != "category" and (known == known[0]).all():
            warnings.append(f"column {name!r} has the value {known[0]:g} only")
    return notes, warnings


def target_of(table: DataTable, schema: Schema) -> Array:
    """Return the classes as positions in the schema's, or the numbers to predict."""
    if schema.classes is None:
        numbers = table.numbers(schema.target)
        absent = np.flatnonzero(np.isnan(numbers))
        if len(absent):
            raise _without_target(table, schema, int(absent[0]))
        return numbers if schema.event is None else _survival(table, schema, numbers)
    codes = {text: code for code, text in enumerate(schema.classes)}
    found = []
    for row, text in enumerate(table.texts(schema.target)):
        code = codes.get(text, codes.get(whole(text)))
        if code is None:
            if not text:
                raise _without_target(table, schema, row)
            raise DataError(
                f"{table.place(row, schema.target)}: the class {shown(text)} is not declared; the "
                f"schema has {', '.join(map(repr, schema.classes[:12]))}"
            )
        found.append(code)
    return np.array(found, dtype=np.int64)


def _survival(table: DataTable, schema: Schema, times: Numbers) -> Numbers:
    """Return times with the sign of what happened, see `survival_targets`."""
    assert schema.event is not None
    events = table.truths(schema.event)
    for bad, column, what in (
        (times <= 0, schema.target, "a time must be above 0; remove the row, or correct it"),
        (np.isnan(events), schema.event, "it is not known whether the event happened"),
    ):
        if bad.any():
            raise DataError(f"{table.place(int(np.flatnonzero(bad)[0]), column)}: {what}")
    return survival_targets(times, events)


def _without_target(table: DataTable, schema: Schema, row: int) -> DataError:
    return DataError(
        f"{table.place(row, schema.target)}: the value to predict is missing; remove the row"
    )


def _keyed(table: DataTable, schema: Schema, features: Numbers, target: Array) -> KeyedSamples:
    """Return what an organisation's rows are divided by."""
    # Measurements of one key must stay together, and are not part of the features.
    group = schema.group or (None if schema.sequence is None else schema.sequence.key)
    return KeyedSamples(
        where=table.where,
        target_at=f"{table.where}, column {schema.target!r}",
        words=ROWS,
        content=row_keys(features),
        groups=None if group is None else group_keys(table, group),
        group=f"different values of {group!r}",
        targets=target,
        task=schema.task,
        class_names=schema.classes,
        event_at=f"{table.where}, column {schema.event!r}",
        shares=schema.split,
    )


def group_keys(table: DataTable, group: str) -> list[bytes]:
    """Return the key of each row's group; a missing one is refused."""
    texts = [whole(text) for text in table.texts(group)]
    if "" in texts:
        raise DataError(
            f"{table.place(texts.index(''), group)}: the value is missing, so it is not known with "
            "which rows this one belongs together; fill it in, or remove the row"
        )
    return [text.encode() for text in texts]


def row_weights(table: DataTable, column: str) -> Numbers:
    """Return how much each row counts."""
    values = table.numbers(column)
    bad = np.flatnonzero(~(values > 0))
    if len(bad):
        raise DataError(
            f"{table.place(int(bad[0]), column)}: a weight is a number above 0; remove the row if "
            "it shall not count"
        )
    return values

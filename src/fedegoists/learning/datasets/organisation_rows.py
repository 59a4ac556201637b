"""The rows of one organisation: its features, what to predict, and the division of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedegoists.errors import shown
from fedegoists.learning.concordance import survival_targets
from fedegoists.learning.data import Array, DataError, Indices
from fedegoists.learning.datasets.column_checks import looks_like_identifier
from fedegoists.learning.datasets.data_tables import DataTable, Numbers, whole
from fedegoists.learning.datasets.feature_encoding import Problems, encoded_features
from fedegoists.learning.datasets.schema import OTHER, Schema
from fedegoists.learning.datasets.table_files import read_table
from fedegoists.learning.key_splits import FEWEST_KEYS, KeySplit, row_keys, split_by_key
from fedegoists.learning.partitioners import SPLIT_SHARES

FEWEST_ROWS = 10
"""Different rows, or groups of rows, that every organisation needs."""
TELL_APART = (
    "rows with the same features may be copies and are kept together: if they are not, name a "
    "column that tells them apart as group in the schema"
)
UNEVEN = 0.15
"""How far the fraction of rows for training may be from its share without a warning."""
DOMINANT = 0.9
"""The fraction of rows of one class from which on accuracy says little."""
FEWEST_TESTED = 10
"""Keys of the rarest class in the test split below which a metric says little."""


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
    """

    features: Numbers
    target: Array
    division: KeySplit
    columns: tuple[str, ...]
    notes: list[str]
    warnings: list[str]


def read_rows(
    organisation: str, source: Any, schema: Schema, seed: int, problems: Problems
) -> OrganisationRows | None:
    """Read the rows of one organisation's table; None if there are problems, which are collected.

    Parameters
    ----------
    source : path or data frame
        Its table.
    """
    owner = f"organisation {organisation!r}"
    table = problems.attempt(lambda: read_table(owner, source, schema.wanted))
    if table is None:
        return None
    features = encoded_features(table, schema, problems)
    target = problems.attempt(lambda: _target(table, schema))
    if features is None or target is None:
        return None
    notes, warnings = _remarks(table, schema, features)
    division = problems.attempt(
        lambda: _divided(table, schema, features, target, seed, notes, warnings)
    )
    if division is None:
        return None
    return OrganisationRows(features, target, division, table.names, notes, warnings)


def _remarks(table: DataTable, schema: Schema, features: Numbers) -> tuple[list[str], list[str]]:
    """Return notes and warnings about single features."""
    notes, warnings = [], []
    for name in schema.features:
        if name not in table.columns:
            notes.append(f"it has no column {name!r}; all its values are marked as missing")
            continue
        own = features[:, schema.inputs.index(schema.inputs_of(name)[0])]
        kind = schema.column(name).kind
        known = own[~np.isnan(own)]
        if kind == "category":
            others = features[:, schema.inputs.index(f"{name}={OTHER}")] == 1
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


def _target(table: DataTable, schema: Schema) -> Array:
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


def _divided(
    table: DataTable,
    schema: Schema,
    features: Numbers,
    target: Array,
    seed: int,
    notes: list[str],
    warnings: list[str],
) -> KeySplit:
    """Return the division of an organisation's rows; add remarks on it."""
    content = row_keys(features)
    keys, what = content, "different rows"
    if schema.group is not None:
        keys, what = _groups(table, schema.group), f"different values of {schema.group!r}"
    count = len(set(keys))
    alike = count < len(table) and schema.group is None
    if count < FEWEST_ROWS:
        way = f"; {TELL_APART}" if alike else ", so leave this organisation out"
        raise DataError(
            f"{table.where}: {count} {what} are too few to divide into training, validation and "
            f"test; at least {FEWEST_ROWS} are needed{way}"
        )
    classes = np.zeros(len(table), dtype=np.int64) if schema.classes is None else target
    if schema.event is not None:
        classes = (target > 0).astype(np.int64)
        if len({key for key, one in zip(keys, classes, strict=True) if one}) < FEWEST_KEYS:
            raise DataError(
                f"{table.where}, column {schema.event!r}: fewer than {FEWEST_KEYS} events are too "
                "few to divide into training, validation and test; leave this organisation out"
            )
    if schema.classes is not None:
        _check_classes(table, schema, classes, keys)
        warnings += _on_imbalance(schema, classes)
    division = split_by_key(keys, classes, seed)
    copies = len(content) - len(set(content))
    if copies:
        together = "" if schema.group is not None else "; copies are in the same split"
        some = "1 row has" if copies == 1 else f"{copies:,} rows have"
        warnings.append(f"{some} the same features as another row{together}")
    if division.moved:
        notes.append(
            f"{division.moved:,} of {count:,} {what} were moved to another split, so that each "
            "class is in every split"
        )
    trained = float(np.mean(division.split == 0))
    if alike and abs(trained - SPLIT_SHARES[0]) > UNEVEN:
        warnings.append(
            f"{100 * trained:.0f} % of the rows are for training instead of 70 %: {TELL_APART}"
        )
    tested = np.bincount(classes[division.split == 2])
    fewest = int(tested[tested > 0].min())
    if fewest < FEWEST_TESTED:
        of = "" if schema.classes is None else f" of the class {schema.classes[_rarest(tested)]!r}"
        some = "1 row" if fewest == 1 else f"{fewest} rows"
        notes.append(f"{some}{of} for test; its results are uncertain")
    return division


def _on_imbalance(schema: Schema, classes: Indices) -> list[str]:
    """Return a warning where accuracy would not notice that a rare class is never found."""
    counts = np.bincount(classes)
    share, most = counts.max() / len(classes), int(counts.argmax())
    if schema.task != "classification" or share < DOMINANT:
        return []
    assert schema.classes is not None
    two = 'set task = "binary", which is judged by AUC, and ' if len(schema.classes) == 2 else ""
    return [
        f"{100 * share:.0f} % of the rows are of the class {schema.classes[most]!r}: who always "
        f"predicts it has an accuracy of {share:.2f}; {two}consider class_weights = "
        '"balanced" under [training]'
    ]


def _rarest(counts: Indices) -> int:
    return int(np.argmin(np.where(counts > 0, counts, np.iinfo(np.int64).max)))


def _groups(table: DataTable, group: str) -> list[bytes]:
    texts = [whole(text) for text in table.texts(group)]
    if "" in texts:
        raise DataError(
            f"{table.place(texts.index(''), group)}: the value is missing, so it is not known with "
            "which rows this one belongs together; fill it in, or remove the row"
        )
    return [text.encode() for text in texts]


def _check_classes(
    table: DataTable, schema: Schema, target: Indices, keys: Sequence[bytes]
) -> None:
    assert schema.classes is not None
    # A patient counts once for a class.
    once = np.array([c for _, c in set(zip(keys, target.tolist(), strict=True))])
    counts = np.bincount(once, minlength=len(schema.classes))
    where = f"{table.where}, column {schema.target!r}"
    if np.count_nonzero(counts) < 2:
        raise DataError(
            f"{where}: all {len(table)} rows are of the class "
            f"{schema.classes[int(counts.argmax())]!r}; with one class there is nothing to learn, "
            "so leave this organisation out"
        )
    if schema.task == "binary" and counts.min() < FEWEST_KEYS:
        raise DataError(
            f"{where}: {counts.min()} different rows of the class "
            f"{schema.classes[int(counts.argmin())]!r} are too few to divide into training, "
            f"validation and test; at least {FEWEST_KEYS} are needed"
        )

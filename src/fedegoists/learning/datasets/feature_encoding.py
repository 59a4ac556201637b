"""From the declared columns of a table to the numbers that a model takes."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FedEgoistsError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.column_checks import missing_code
from fedegoists.learning.datasets.data_tables import DataTable, Numbers
from fedegoists.learning.datasets.schema import OTHER, Schema

MOST_PROBLEMS = 30
"""Problems that one error tells; their number is told for the others."""

Result = TypeVar("Result")


class Problems:
    """Collects the problems of all columns and organisations, to be told at once."""

    def __init__(self) -> None:
        self.found: list[FedEgoistsError] = []

    def attempt(self, function: Callable[[], Result]) -> Result | None:
        """Return what a function returns; None if it raises, after taking note of that."""
        try:
            return function()
        except FedEgoistsError as error:
            self.found.append(error)
            return None

    def tell(self) -> None:
        """Raise what was found: one problem as it is, several in one error."""
        if not self.found:
            return
        lines = [line for error in self.found for line in str(error).split("\n")]
        if len(lines) == 1:
            raise self.found[0]
        rest = len(lines) - MOST_PROBLEMS
        more = [f"and {rest} more"] if rest > 0 else []
        raise DataError("\n".join([f"{len(lines)} problems:", *lines[:MOST_PROBLEMS], *more]))


def encoded_features(
    table: DataTable, schema: Schema, problems: Problems, *, training: bool = True
) -> Numbers | None:
    """Return the inputs of all rows (see `Schema.inputs`), with NaN for missing values.

    None if there are problems, which are collected.

    Parameters
    ----------
    training : bool
        Whether to refuse what makes no training data: columns without a known value, and values
        that look like codes. One new row to predict for may well be like that.
    """
    before = len(problems.found)
    values = np.empty((len(table), len(schema.inputs)))
    absent: dict[str, npt.NDArray[np.bool_]] = {}
    place, mark = 0, len(schema.inputs) - sum(map(schema.indicated, schema.features))
    for name in schema.features:
        width = len(schema.inputs_of(name))
        own = problems.attempt(partial(_encoded, table, schema, name, training=training))
        if own is not None:
            values[:, place : place + width] = own
            absent[name] = np.isnan(own[:, 0])
            if schema.indicated(name):
                values[:, mark] = absent[name]
        place += width
        mark += schema.indicated(name)
    unknown = np.logical_and.reduce([*absent.values()]) if len(problems.found) == before else []
    if np.any(unknown):
        row = int(np.flatnonzero(unknown)[0])
        what = f"{table.where}, {table.line_of(row)}: no feature has a value; remove the row"
        problems.found.append(DataError(what))
    elif training:
        for name, missing in absent.items():
            problems.attempt(partial(_check_missing, table, schema, name, missing))
    return values if len(problems.found) == before else None


def _encoded(table: DataTable, schema: Schema, name: str, *, training: bool) -> Numbers:
    """Return the inputs of one feature."""
    rule, codes = schema.column(name), schema.codes(name)
    if name not in table.columns:  # optional
        return np.full((len(table), len(schema.inputs_of(name))), np.nan)
    if rule.kind == "category":
        return _one_hot(table, name, rule.categories, codes, training=training)
    if rule.kind == "boolean":
        return table.truths(name, codes)[:, None]
    if rule.kind == "date":
        return table.days(name, codes, rule.format)[:, None]
    values = table.numbers(name, codes)
    _check_numbers(table, schema, name, values, training=training)
    return values[:, None]


def _check_missing(
    table: DataTable, schema: Schema, name: str, missing: npt.NDArray[np.bool_]
) -> None:
    if schema.column(name).optional:
        return
    if schema.missing == "error" and missing.any():
        raise DataError(
            f"{table.place(int(np.flatnonzero(missing)[0]), name)}: the value is missing "
            f"({int(missing.sum())} in this file); fill it in, or set missing to 'mean' or "
            "'indicate' in the schema"
        )
    if missing.all():
        raise DataError(
            f"{table.where}, column {name!r}: no row has a value, so there is no mean to fill in; "
            f"set optional = true in [columns.{name}] of the schema, leave this feature out, or "
            "leave this organisation out"
        )


def _one_hot(
    table: DataTable,
    name: str,
    categories: tuple[str, ...],
    codes: tuple[str | float, ...],
    *,
    training: bool,
) -> Numbers:
    """Return a column of 0 and 1 for each category and for all others; NaN where it is missing."""
    places = {category: k for k, category in enumerate(categories)}
    words = table.words(name, codes)
    found = np.array([places.get(word, len(places)) if word else -1 for word in words])
    values: Numbers = (found[:, None] == np.arange(len(places) + 1)).astype(np.float64)
    values[found < 0] = np.nan
    if training and (found == len(places)).all():
        raise DataError(
            f"{table.where}, column {name!r}: no row has a declared category; the schema has "
            f"{', '.join(map(repr, categories[:12]))}, the first row {words[0]!r}. Is it written "
            f"in another way? (All other values count as {OTHER!r})"
        )
    return values


def _check_numbers(
    table: DataTable, schema: Schema, name: str, values: Numbers, *, training: bool
) -> None:
    rule = schema.column(name)
    if rule.range is not None:
        low, high = rule.range
        outside = np.flatnonzero((values < low) | (values > high))
        if len(outside):
            unit = f" {rule.unit}" if rule.unit else ""
            raise DataError(
                f"{table.place(int(outside[0]), name)}: {values[outside[0]]:g} is outside the "
                f"declared range {low:g} to {high:g}{unit} ({len(outside)} such values in this "
                "file); is it in another unit, or does it stand for a missing value? Then convert "
                "it, or add it to missing_values in the schema"
            )
        return
    code = missing_code(values) if training else None
    if code is not None:
        row = int(np.flatnonzero(values == code)[0])
        others = values[~np.isnan(values) & (values != code)]
        raise DataError(
            f"{table.place(row, name)}: {code:g} looks like a code for a missing value "
            f"({int((values == code).sum())} in this file; all others are {others.min():g} to "
            f"{others.max():g}). If so, set missing_values = [{code:g}] in [columns.{name}] of the "
            f"schema; if it is a number, set range = [{min(code, others.min()):g}, "
            f"{max(code, others.max()):g}] there"
        )

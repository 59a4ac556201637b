"""Sequences of measurements: a long table with one row for each time, beside a table of stays."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.data_tables import DataTable, Numbers, WantedColumns, whole
from fedegoists.learning.datasets.schema import SequenceSettings
from fedegoists.learning.datasets.table_files import read_table


@dataclass(frozen=True, eq=False)
class StepValues:
    """The measurements of one organisation.

    Attributes
    ----------
    values : array, stays × steps × features
        Means over the measurements in a step; NaN where there are none.
    notes, warnings : list of str
        What was left out, and what its owner should look at.
    """

    values: Numbers
    notes: list[str]
    warnings: list[str]


def read_steps(
    owner: str,
    folder: Path,
    keys: Sequence[str],
    settings: SequenceSettings,
    *,
    training: bool = True,
) -> StepValues:
    """Read the measurements of some stays.

    Parameters
    ----------
    folder : Path
        The organisation's folder.
    keys : sequence of str
        The key of each stay, in the order of the result.
    training : bool
        Whether to refuse a feature without any measurement, which makes no training data.

    Raises
    ------
    DataError
        With the place of a cell that does not fit.
    """
    columns = (settings.key, settings.time, *settings.features)
    numbers = {settings.time, *settings.features}
    wanted = WantedColumns(columns, numbers=numbers)
    table = read_table(owner, folder / settings.steps_file, wanted)
    places = {key: place for place, key in enumerate(keys)}
    rows = np.array([places.get(whole(text), -1) for text in table.texts(settings.key)])
    times = _times(table, settings.time)
    bins = np.floor((times - settings.start) / settings.step).astype(np.int64)
    known, inside = rows >= 0, (bins >= 0) & (bins < settings.steps)
    used = known & inside
    shape = (len(keys), settings.steps, len(settings.features))
    sums, counts = np.zeros(shape), np.zeros(shape)
    for k, name in enumerate(settings.features):
        values = table.numbers(name)
        own = used & ~np.isnan(values)
        np.add.at(sums[..., k], (rows[own], bins[own]), values[own])
        np.add.at(counts[..., k], (rows[own], bins[own]), 1)
    means = np.full(shape, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    notes = [
        f"{int(count):,} rows of {settings.steps_file} are not used: {why}"
        for count, why in (
            ((~known).sum(), f"their {settings.key!r} is not in {settings.table}"),
            ((known & ~inside).sum(), f"their {settings.time!r} is outside of the steps"),
        )
        if count
    ]
    without = int((counts.sum((1, 2)) == 0).sum())
    warnings = [f"{without:,} of {len(keys):,} have no measurements"] if without else []
    empty = [repr(n) for k, n in enumerate(settings.features) if not counts[..., k].any()]
    if empty and training:
        raise DataError(f"{table.where}: no measurement of {', '.join(empty)} is in the steps")
    warnings += [f"no measurement of {', '.join(empty)} is in the steps"] if empty else []
    return StepValues(means, notes, warnings)


def _times(table: DataTable, column: str) -> Numbers:
    times = table.numbers(column)
    missing = np.flatnonzero(np.isnan(times))
    if len(missing):
        raise DataError(
            f"{table.place(int(missing[0]), column)}: the time is missing; fill it in, or remove "
            "the row"
        )
    return times


def unique_keys(table: DataTable, column: str) -> list[str]:
    """Return the keys of the rows of a table, each of which is there once.

    Raises
    ------
    DataError
        If one is missing, or there twice.
    """
    keys = [whole(text) for text in table.texts(column)]
    seen: dict[str, int] = {}
    for row, key in enumerate(keys):
        if not key:
            raise DataError(f"{table.place(row, column)}: the key is missing; fill it in")
        if key in seen:
            raise DataError(
                f"{table.place(row, column)}: {key!r} is there already, in "
                f"{table.line_of(seen[key])}; measurements belong to one row"
            )
        seen[key] = row
    return keys

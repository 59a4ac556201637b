"""UCI Heart Disease: patients of four hospitals, with 13 features and many missing values.

The hospitals differ as much as silos can: Switzerland measured no cholesterol at all, and 115 of
its 123 patients are ill; three of the four hardly ever examined the vessels (``ca``).
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedegoists.learning.data import DataError, Samples, SiloedData
from fedegoists.learning.datasets.csv_tables import read_csv
from fedegoists.learning.datasets.data_tables import WantedColumns
from fedegoists.learning.datasets.dataset_registry import DATASETS, DatasetOptions
from fedegoists.learning.datasets.location import dataset_folder, missing_files
from fedegoists.learning.partitioners import seeded, split_silos
from fedegoists.learning.scaling import prepared

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")

Impute = Literal["mean", "none"]


class HeartOptions(DatasetOptions):
    """Options of the heart data."""

    impute: Impute = "mean"
    """Mean: a missing value becomes the hospital's mean, and one more column for each feature says
    so; none: it stays NaN."""


@dataclass(frozen=True)
class HeartColumn:
    """A column of the files: its name, the codes it may have, and whether it may be missing."""

    name: str
    codes: tuple[int, ...] = ()
    optional: bool = True
    zero_is_missing: bool = False

    @property
    def encoded(self) -> tuple[str, ...]:
        """The names of its features: one for each code, unless there are only two."""
        if len(self.codes) <= 2:
            return (self.name,)
        return tuple(f"{self.name}={code}" for code in self.codes)


# The codes are listed here rather than collected from the files, so that all hospitals have the
# same columns. A living patient's pressure or cholesterol is not 0: that is how Switzerland and the
# VA wrote that they had not measured it.
COLUMNS = (
    HeartColumn("age", optional=False),
    HeartColumn("sex", (0, 1), optional=False),
    HeartColumn("cp", (1, 2, 3, 4), optional=False),
    HeartColumn("trestbps", zero_is_missing=True),
    HeartColumn("chol", zero_is_missing=True),
    HeartColumn("fbs", (0, 1)),
    HeartColumn("restecg", (0, 1, 2)),
    HeartColumn("thalach"),
    HeartColumn("exang", (0, 1)),
    HeartColumn("oldpeak"),
    HeartColumn("slope", (1, 2, 3)),
    HeartColumn("ca"),
    HeartColumn("thal", (3, 6, 7)),
)
DIAGNOSIS = HeartColumn("num", (0, 1, 2, 3, 4), optional=False)


def feature_names(impute: Impute = "mean") -> tuple[str, ...]:
    """Return the names of the columns of the inputs.

    Examples
    --------
    >>> len(feature_names("none")), len(feature_names("mean"))
    (22, 32)
    """
    encoded = tuple(name for column in COLUMNS for name in column.encoded)
    if impute == "none":
        return encoded
    return encoded + tuple(f"{column.name} missing" for column in COLUMNS if column.optional)


def load_heart(
    options: HeartOptions, *, data_dir: str | os.PathLike[str] | None = None, seed: int = 0
) -> SiloedData:
    """Load the patients of the four hospitals.

    Codes (``cp``, ``restecg``, ``slope``, ``thal``) become one column each; measurements are scaled
    by the hospital's own training patients. A patient is ill if the diagnosis is above 0. Each
    hospital's patients are divided 70/15/15 by diagnosis.
    """
    needs = f"{', '.join(map(_file, HOSPITALS))} from {DATASETS['heart'].source}"
    folder = dataset_folder("heart", data_dir, needs)
    for name in HOSPITALS:
        if not (folder / _file(name)).is_file():
            raise missing_files("heart", folder, f"no file {_file(name)}", needs)
    tables = {name: _read(folder / _file(name), name) for name in HOSPITALS}
    rows = np.concatenate(list(tables.values()))
    ill = {name: (table[:, -1] > 0).astype(np.int64) for name, table in tables.items()}
    silos = split_silos(ill, seeded(seed).spawn(len(HOSPITALS)))
    features = _encoded(rows)
    if options.impute == "mean":
        missing = [np.isnan(rows[:, k]) for k, column in enumerate(COLUMNS) if column.optional]
        features = np.concatenate([features, np.stack(missing, axis=1)], axis=1)
    names = feature_names(options.impute)
    measured = [names.index(column.name) for column in COLUMNS if not column.codes]
    filled = options.impute == "mean"
    inputs, preparation = prepared(
        "features", names, features, silos, scaled=measured, filled=filled
    )
    return SiloedData(
        "heart",
        "binary",
        Samples((inputs,), np.concatenate(list(ill.values()))),
        silos,
        2,
        "Predict heart disease from 13 features of a patient; a silo is a hospital.",
        (
            f"{len(names)} columns: {', '.join(names)}",
            "measurements are scaled by each hospital's own training patients",
            "a resting pressure or cholesterol of 0 counts as missing",
            "missing values are the hospital's training mean, 0 if it has none"
            if filled
            else "missing values are NaN",
        ),
        preparation=(preparation,),
        class_names=("no heart disease", "heart disease"),
    )


def _file(hospital: str) -> str:
    return f"processed.{hospital}.data"


def _read(path: Path, hospital: str) -> npt.NDArray[np.float64]:
    """Return a file's 14 columns, with NaN for missing values."""
    columns = (*COLUMNS, DIAGNOSIS)
    header = tuple(column.name for column in columns)
    wanted = WantedColumns(header, missing=("?",))
    table = read_csv(f"heart, hospital {hospital!r}", path, wanted, header=header)
    found = []
    for column in columns:
        values = table.numbers(column.name)
        if column.zero_is_missing:
            values[values == 0] = np.nan
        wrong = np.isnan(values) & (not column.optional)
        if column.codes:
            wrong |= ~np.isnan(values) & ~np.isin(values, column.codes)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            allowed = f"one of {', '.join(map(str, column.codes))}" if column.codes else "a number"
            raise DataError(
                f"{table.place(row, column.name)}: {table.columns[column.name][row]!r} is not "
                + allowed
                + (" or '?'" if column.optional else "")
            )
        found.append(values)
    return np.stack(found, axis=1)


def _encoded(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the features, each code as a column of 0 and 1; a missing one is NaN in all."""
    features = []
    for k, column in enumerate(COLUMNS):
        values = rows[:, k]
        if len(column.codes) <= 2:
            features.append(values)
        else:
            features.extend(
                np.where(np.isnan(values), np.nan, values == code) for code in column.codes
            )
    return np.stack(features, axis=1)

"""UCI Heart Disease: patients of four hospitals, with 13 features and much that is missing.

The hospitals are as different as silos get: Switzerland measured no cholesterol at all and has 115
ill patients of 123; three of the four hardly ever looked at the vessels (``ca``).
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedegoists.files import read_text
from fedegoists.graphs.participants import shown
from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.info import DatasetInfo, Option
from fedegoists.learning.datasets.location import dataset_folder, missing_files
from fedegoists.learning.options import generator, one_of
from fedegoists.learning.partitioners import stratified
from fedegoists.learning.scaling import mean_filled, preparation, standardised

__all__ = ["HOSPITALS", "INFO", "feature_names", "load_heart"]

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SHARES = (0.7, 0.15, 0.15)
SOURCE = "https://archive.ics.uci.edu/dataset/45/heart+disease"
NEEDS = f"{', '.join(f'processed.{name}.data' for name in HOSPITALS)} from {SOURCE}"

INFO = DatasetInfo(
    "heart",
    "heart disease or not, from 13 features of patients of four hospitals",
    (
        Option(
            "impute",
            "mean",
            "'mean': what is missing becomes the hospital's mean, and one more column for each "
            "feature says so; 'none': it stays NaN",
        ),
    ),
    "CC BY 4.0",
    SOURCE,
)


@dataclass(frozen=True)
class _Column:
    """A column of the files: its name, the codes it may have, and whether it may be missing."""

    name: str
    codes: tuple[int, ...] = ()
    optional: bool = True
    zero_is_missing: bool = False

    @property
    def encoded(self) -> tuple[str, ...]:
        """The names of the features it becomes: one for each code, unless there are only two."""
        if len(self.codes) <= 2:
            return (self.name,)
        return tuple(f"{self.name}={code}" for code in self.codes)


# The codes stand here rather than being collected from the files, so that all hospitals have equal
# columns whichever codes occur in them. A living patient's pressure or cholesterol is not 0: that
# is how Switzerland and the VA wrote that they had not measured it.
COLUMNS = (
    _Column("age", optional=False),
    _Column("sex", (0, 1), optional=False),
    _Column("cp", (1, 2, 3, 4), optional=False),
    _Column("trestbps", zero_is_missing=True),
    _Column("chol", zero_is_missing=True),
    _Column("fbs", (0, 1)),
    _Column("restecg", (0, 1, 2)),
    _Column("thalach"),
    _Column("exang", (0, 1)),
    _Column("oldpeak"),
    _Column("slope", (1, 2, 3)),
    _Column("ca"),
    _Column("thal", (3, 6, 7)),
)


def feature_names(impute: str = "mean") -> tuple[str, ...]:
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
    *, data_dir: str | os.PathLike[str] | None = None, seed: int = 0, impute: str = "mean"
) -> SiloedData:
    """Load the patients of the four hospitals.

    Codes (``cp``, ``restecg``, ``slope``, ``thal``) become one column each; measurements are scaled
    to mean 0 and deviation 1 by the hospital's own training patients, because its statistics
    must neither come from its test patients nor leave the hospital. A patient counts as ill if the
    diagnosis is above 0. Each hospital's patients are divided 70/15/15 by diagnosis.

    Parameters
    ----------
    data_dir : path, optional
        The folder with a sub-folder ``heart``; by default that of the environment variable.
    seed : int
        Decides who is in training, validation and test.
    impute : {"mean", "none"}
        What becomes of missing values.
    """
    one_of("impute", impute, ("mean", "none"))
    folder = dataset_folder("heart", data_dir, NEEDS)
    tables, silos = [], []
    start = 0
    for name, rng in zip(HOSPITALS, generator(seed).spawn(len(HOSPITALS)), strict=True):
        path = folder / f"processed.{name}.data"
        if not path.is_file():
            raise missing_files("heart", folder, f"no file {path.name}", NEEDS)
        table = _read(path, name)
        parts = stratified((table[:, -1] > 0).astype(np.int64), SHARES, rng, everywhere=True)
        silos.append(SiloIndices(name, *(start + part for part in parts)))
        tables.append(table)
        start += len(table)
    rows = np.concatenate(tables)
    ill = (rows[:, -1] > 0).astype(np.int64)
    features = _encoded(rows)
    names = feature_names("none")
    measured = [names.index(column.name) for column in COLUMNS if not column.codes]
    inputs = standardised(features, silos, measured)
    if impute == "mean":
        optional = [k for k, column in enumerate(COLUMNS) if column.optional]
        missing = np.isnan(rows[:, optional]).astype(np.float32)
        inputs = np.concatenate([mean_filled(inputs, silos), missing], axis=1)
        features = np.concatenate([features, missing], axis=1)
    return SiloedData(
        "heart",
        "binary",
        Samples((inputs,), ill),
        tuple(silos),
        2,
        "Predict heart disease from 13 features of a patient; a silo is a hospital.",
        (
            f"{len(feature_names(impute))} columns: {', '.join(feature_names(impute))}",
            "measurements are scaled by each hospital's own training patients",
            "a resting pressure or cholesterol of 0 counts as missing",
            "missing values are the hospital's training mean, 0 if it has none"
            if impute == "mean"
            else "missing values are NaN",
        ),
        preparation=(
            preparation(
                "features",
                feature_names(impute),
                features,
                silos,
                scaled=measured,
                filled=impute == "mean",
            ),
        ),
        class_names=("no heart disease", "heart disease"),
    )


def _read(path: Path, hospital: str) -> npt.NDArray[np.float64]:
    """Return a file's 14 columns, with NaN for what is missing."""
    rows = []
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        if not text.strip():
            continue
        cells = text.split(",")
        place = f"heart, hospital {hospital!r}, {path}, line {line}"
        if len(cells) != len(COLUMNS) + 1:
            raise DataError(
                f"{place}: {len(cells)} values where {len(COLUMNS) + 1} are expected; take the "
                f"file anew from {SOURCE}"
            )
        row = [_value(cell, column, place) for cell, column in zip(cells, COLUMNS, strict=False)]
        diagnosis = _Column("num", (0, 1, 2, 3, 4), optional=False)
        rows.append([*row, _value(cells[-1], diagnosis, place)])
    if not rows:
        raise DataError(f"heart, hospital {hospital!r}, {path}: the file is empty")
    return np.array(rows)


def _value(cell: str, column: _Column, place: str) -> float:
    text = cell.strip()
    try:
        value = np.nan if text == "?" else float(text)
    except ValueError:
        value = np.inf
    if column.zero_is_missing and value == 0:
        value = np.nan
    if np.isnan(value) and column.optional:
        return float(np.nan)
    if not np.isfinite(value) or (column.codes and value not in column.codes):
        allowed = f"one of {', '.join(map(str, column.codes))}" if column.codes else "a number"
        raise DataError(
            f"{place}, column {column.name!r}: {shown(text)} is not {allowed}"
            + (" or '?'" if column.optional else "")
        )
    return value


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

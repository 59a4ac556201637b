"""A small table of an organisation, in the forms in which it can come."""

from pathlib import Path
from typing import Any

import numpy as np

from fedegoists.errors import FedEgoistsError
from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets import Schema, load_own

SCALED = Schema(features=("age", "income"), target="default", task="binary", classes=("no", "yes"))
BINARY = SCALED.model_copy(update={"standardise": False})
FILLED = BINARY.model_copy(update={"missing": "mean"})
NUMBER = Schema(features=("age",), target="income", task="regression", standardise=False)


def by_age(*classes: str, task: Any = "binary") -> Schema:
    return Schema(features=("age",), target="default", task=task, classes=classes)


MANY = by_age("no", "yes", "maybe", task="classification")

AGES = list(range(30, 50))
INCOMES = [100.0 * age for age in AGES]
DEFAULTS = ["yes" if age % 4 == 0 else "no" for age in AGES]
ROWS = [f"{a},{i},{d}" for a, i, d in zip(AGES, INCOMES, DEFAULTS, strict=True)]


def csv(rows: list[str] = ROWS, header: str = "age,income,default") -> str:
    return "\n".join([header, *rows]) + "\n"


def changed(line: int, row: str) -> str:
    """Return the table with another line 2, 3 and so on; line 1 is the header."""
    rows = list(ROWS)
    rows[line - 2] = row
    return csv(rows)


def in_order(data: SiloedData, name: str) -> Any:
    """Return an organisation's inputs and targets in the order of its rows."""
    return data.samples.take(np.sort(data.silo(name).all))


def names_or_accepts(path: Path) -> bool:
    """Tell whether a file is read to finite numbers, or refused with its name."""
    try:
        data = load_own({"a": path}, FILLED)
    except FedEgoistsError as error:
        return path.name in str(error)
    return bool(np.isfinite(data.samples.inputs[0]).all())

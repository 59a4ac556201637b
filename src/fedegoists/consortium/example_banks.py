"""Invented banks whose customers may default, for the example of data of one's own.

They are made to show coalitions: sizes and how strictly features decide were picked, among several
tried, so that some benefits are sure at a confidence of 0.95. With weaker features or more
customers few or none were. They say nothing about how often real organisations gain.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["BANKS", "SCHEMA", "customers_csv"]


@dataclass(frozen=True)
class _Column:
    """A feature: how it is spread, and how much it speaks for a default at two kinds of banks."""

    name: str
    center: float
    spread: float
    usual: float
    other: float


COLUMNS = (
    _Column("income", 42_000, 9_000, -8.4, 8.4),
    _Column("debt", 15_000, 4_000, 9.6, -4.8),
    _Column("age", 46, 9, -3.6, 6.0),
    _Column("accounts", 20, 5, 2.4, -7.2),
    _Column("late_payments", 18, 5, 10.8, 10.8),
    _Column("savings", 21_000, 6_000, -9.6, -9.6),
    _Column("months_employed", 130, 35, -7.2, 7.2),
    _Column("months_at_address", 110, 30, -3.6, 6.0),
    _Column("card_payments", 60, 15, 4.8, -8.4),
    _Column("overdrafts", 24, 6, 8.4, 8.4),
    _Column("inquiries", 16, 4, 7.2, -7.2),
    _Column("mortgage", 90_000, 25_000, 3.6, -6.0),
)
COMMON = 0.3
"""How much a customer's features have in common."""

BANKS = {"Alder": 600, "Birch": 600, "Cedar": 300, "Dogwood": 300, "Elm": 600, "Fir": 300}
"""The banks and how many customers they have."""

OTHERS = ("Elm", "Fir")
"""They serve other customers: of most features they learn another lesson."""

SCHEMA = f"""\
features = [{", ".join(f'"{column.name}"' for column in COLUMNS)}]
target = "default"
task = "binary"
classes = ["no", "yes"]
missing = "error"
"""


def customers_csv(bank: str) -> str:
    """Return a bank's customers as CSV, always the same."""
    size = BANKS[bank]
    rng = np.random.default_rng([7, list(BANKS).index(bank)])
    scores = COMMON * rng.normal(size=(size, 1)) + rng.normal(size=(size, len(COLUMNS)))
    lessons = [column.other if bank in OTHERS else column.usual for column in COLUMNS]
    risk = scores @ np.array(lessons) - 0.4
    defaults = rng.random(size) < 1 / (1 + np.exp(-risk))
    centers = np.array([column.center for column in COLUMNS])
    spreads = np.array([column.spread for column in COLUMNS])
    values = np.maximum(np.rint(centers + spreads * scores), 0).astype(int)
    lines = [",".join([*(column.name for column in COLUMNS), "default"])]
    lines += [
        ",".join([*map(str, row), "yes" if default else "no"])
        for row, default in zip(values.tolist(), defaults.tolist(), strict=True)
    ]
    return "\n".join(lines) + "\n"

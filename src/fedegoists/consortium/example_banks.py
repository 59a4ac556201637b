"""Invented banks whose customers may default, as an example of own data.

They are made to show coalitions: sizes and effects of features were picked, among several tried, so
that some benefits are sure at a confidence of 0.95. With weaker features or more customers few or
none were. They say nothing about how often real organisations gain.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CustomerFeature:
    """A customer feature: its distribution, and its effect on defaults at two kinds of banks."""

    name: str
    center: float
    spread: float
    usual: float
    other: float


COLUMNS = (
    CustomerFeature("income", 42_000, 9_000, -8.4, 8.4),
    CustomerFeature("debt", 15_000, 4_000, 9.6, -4.8),
    CustomerFeature("age", 46, 9, -3.6, 6.0),
    CustomerFeature("accounts", 20, 5, 2.4, -7.2),
    CustomerFeature("late_payments", 18, 5, 10.8, 10.8),
    CustomerFeature("savings", 21_000, 6_000, -9.6, -9.6),
    CustomerFeature("months_employed", 130, 35, -7.2, 7.2),
    CustomerFeature("months_at_address", 110, 30, -3.6, 6.0),
    CustomerFeature("card_payments", 60, 15, 4.8, -8.4),
    CustomerFeature("overdrafts", 24, 6, 8.4, 8.4),
    CustomerFeature("inquiries", 16, 4, 7.2, -7.2),
    CustomerFeature("mortgage", 90_000, 25_000, 3.6, -6.0),
)
COMMON = 0.3
"""The share of a common factor in a customer's features."""

BANKS = {"Alder": 600, "Birch": 600, "Cedar": 300, "Dogwood": 300, "Elm": 600, "Fir": 300}
"""The numbers of customers of the banks."""

OTHERS = ("Elm", "Fir")
"""Banks with other customers: most features have another effect."""

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
    effects = [column.other if bank in OTHERS else column.usual for column in COLUMNS]
    risk = scores @ np.array(effects) - 0.4
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

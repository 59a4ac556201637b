"""Invented clinics whose patients may come back within a month, as an example for boosted trees.

The risk depends on thresholds and on combinations of two values, such as a fast pulse beside a low
blood pressure, which trees find and linear models do not. Sizes and effects were picked so that the
example shows coalitions; it says nothing about how often real organisations gain.
"""

import numpy as np
import numpy.typing as npt

COLUMNS = {
    "age": (66.0, 13.0),
    "pulse": (84.0, 15.0),
    "blood_pressure": (128.0, 19.0),
    "sodium": (139.0, 4.0),
    "creatinine": (1.1, 0.35),
    "drugs": (7.0, 3.0),
    "days_in_hospital": (6.0, 3.0),
    "earlier_stays": (1.5, 1.2),
    "haemoglobin": (12.8, 1.8),
    "weight": (79.0, 15.0),
}
"""Mean and standard deviation of each column."""

CLINICS = {"Aspen": 1200, "Beech": 1100, "Hazel": 800, "Maple": 700, "Rowan": 1000}
"""The numbers of patients of the clinics."""

OTHER = "Rowan"
"""A clinic with other patients: the combinations mean the opposite there."""

CLINIC_SCHEMA = f"""\
features = [{", ".join(f'"{name}"' for name in COLUMNS)}]
target = "came_back"
task = "binary"
classes = ["no", "yes"]
missing = "error"
"""


def clinic_files() -> dict[str, bytes]:
    """Return the schema and the table of each clinic, by path."""
    tables = {f"clinics/{name}.csv": patients_csv(name).encode() for name in CLINICS}
    return {"clinics/schema.toml": CLINIC_SCHEMA.encode(), **tables}


def patients_csv(clinic: str) -> str:
    """Return a clinic's patients as CSV, always the same."""
    size = CLINICS[clinic]
    rng = np.random.default_rng([11, list(CLINICS).index(clinic)])
    scores = rng.normal(size=(size, len(COLUMNS)))
    risk = _risk(dict(zip(COLUMNS, scores.T, strict=True)), -1.0 if clinic == OTHER else 1.0)
    back = rng.random(size) < 1 / (1 + np.exp(-risk))
    centers, spreads = np.array(list(COLUMNS.values())).T
    values = np.maximum(np.round(centers + spreads * scores, 1), 0.0)
    lines = [",".join([*COLUMNS, "came_back"])]
    lines += [
        ",".join([*(f"{value:g}" for value in row), "yes" if yes else "no"])
        for row, yes in zip(values.tolist(), back.tolist(), strict=True)
    ]
    return "\n".join(lines) + "\n"


def _risk(values: dict[str, npt.NDArray[np.float64]], sign: float) -> npt.NDArray[np.float64]:
    """Return the logit of coming back, from standardised values."""
    shock = (values["pulse"] > 0.0) & (values["blood_pressure"] < 0.0)
    salt = np.abs(values["sodium"]) > 1.0  # too low or too high
    kidney = (values["creatinine"] > 0.0) & (values["drugs"] > 0.0)
    frail = (values["age"] > 0.0) & (values["haemoglobin"] < 0.0)
    combined = 4.0 * shock + 4.0 * kidney + 3.0 * frail - 2.6
    risk: npt.NDArray[np.float64] = sign * combined + 3.0 * salt - 0.9
    return risk

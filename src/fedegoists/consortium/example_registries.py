"""Invented cancer registries with survival times, as an example of Cox regression.

They are made to show coalitions: sizes and effects were picked so that some benefits are sure. They
say nothing about how often real registries gain.
"""

import numpy as np

REGISTRIES = {"Coast": 300, "Delta": 90, "Forest": 300, "Plain": 90, "Summit": 90}
"""The numbers of patients of the registries."""
OTHERS = ("Plain", "Summit")
"""Registries of another disease, in which most markers have the opposite effect."""
STAGES = ("I", "II", "III", "IV")
MARKERS = (1.1, -0.9, 0.8, -0.7, 0.6, 0.6, -0.5, 0.5)
"""The effect of each marker on the logarithm of the risk."""

SCHEMA = f"""\
features = ["age", "stage", "smoker", {", ".join(f'"marker_{k + 1}"' for k in range(len(MARKERS)))}]
target = "months"       # to the event, or to the last news
event = "died"          # whether the event has happened
task = "survival"

[columns.stage]
categories = ["I", "II", "III", "IV"]

[columns.smoker]
kind = "boolean"
"""


def registry_files() -> dict[str, bytes]:
    """Return the schema and all registries, by path; always the same."""
    tables = {f"registries/{name}.csv": _patients(name).encode() for name in REGISTRIES}
    return {"registries/schema.toml": SCHEMA.encode(), **tables}


def _patients(registry: str) -> str:
    """Return the patients of one registry as CSV."""
    count = REGISTRIES[registry]
    rng = np.random.default_rng([5, list(REGISTRIES).index(registry)])
    age = rng.normal(62, 11, count).round().clip(25, 95)
    stage = rng.choice(4, count, p=(0.35, 0.3, 0.2, 0.15))
    smoker = rng.random(count) < 0.3
    markers = rng.normal(size=(count, len(MARKERS))).round(3)
    effects = (-1 if registry in OTHERS else 1) * np.array(MARKERS)
    risk = 0.04 * (age - 62) + 0.6 * stage + 0.4 * smoker + markers @ effects
    event = rng.exponential(60 / np.exp(risk - 1.0))
    news = rng.uniform(12, 240, count)
    months = np.minimum(event, news).clip(0.1).round(1)
    lines = ["age,stage,smoker," + ",".join(f"marker_{k + 1}" for k in range(len(MARKERS)))]
    lines[0] += ",months,died"
    for k in range(count):
        first = f"{int(age[k])},{STAGES[stage[k]]},{'yes' if smoker[k] else 'no'}"
        last = f"{months[k]},{'yes' if event[k] <= news[k] else 'no'}"
        lines.append(",".join([first, *map(str, markers[k]), last]))
    return "\n".join(lines) + "\n"

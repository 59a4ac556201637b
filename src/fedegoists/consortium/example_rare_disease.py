"""Invented registries of a rare muscle disease, the first example of this package.

Each registry predicts how far a patient will walk in six minutes a year from now, from three
clinical values and a panel of blood proteins. There are two forms of the disease, and most proteins
have the opposite effect in the other form. A registry alone has few patients for so many proteins.
Registries of one form can help one another; a common model of both forms is wrong for either.

The example is made to show coalitions. It says nothing about how often real registries gain.
`benchmarks.bench_first_example` says how often the decision finds the two forms.
"""

import numpy as np
import numpy.typing as npt

FIRST_FORM = {"Harbour": 240, "Island": 140, "Lakeland": 200, "Moor": 160}
"""Registries of the first form, with their numbers of patients."""
SECOND_FORM = {"Border": 160, "Highland": 220, "Summit": 140, "Valley": 180}
"""Registries of the second form."""
RARE_REGISTRIES = {**FIRST_FORM, **SECOND_FORM}
RIVALS = ("Harbour", "Lakeland")
"""Two registries that compete for the same sponsors."""

PROTEINS = 24
EFFECT = 12.0
"""Deviation of a protein's effect, in metres for a deviation of the protein."""
NOISE = 20.0
"""Deviation of the distance that nothing explains, in metres."""

RARE_SCHEMA = f"""\
features = [
    "age", "years_ill", "metres_now",
    {", ".join(f'"protein_{k + 1:02d}"' for k in range(PROTEINS))},
]
target = "metres_next_year" # walked in six minutes
task = "regression"
split = [0.5, 0.2, 0.3] # training, validation and test: enough for test to be sure of results
"""


def rare_disease_files(seed: int = 0) -> dict[str, bytes]:
    """Return the schema and the table of each registry, by path.

    Parameters
    ----------
    seed : int
        Another seed gives other patients, and other effects of the proteins.
    """
    effects = np.random.default_rng([seed, len(RARE_REGISTRIES)]).normal(0.0, EFFECT, PROTEINS)
    tables = {
        f"registries/{name}.csv": _patients(name, effects, seed).encode()
        for name in RARE_REGISTRIES
    }
    return {"registries/schema.toml": RARE_SCHEMA.encode(), **tables}


def _patients(registry: str, effects: npt.NDArray[np.float64], seed: int) -> str:
    """Return the patients of one registry as CSV."""
    count = RARE_REGISTRIES[registry]
    rng = np.random.default_rng([seed, list(RARE_REGISTRIES).index(registry)])
    age = rng.normal(38, 12, count).round().clip(18, 80)
    years_ill = rng.gamma(3.0, 3.0, count).round(1)
    metres_now = rng.normal(390, 60, count).round()
    proteins = rng.normal(size=(count, PROTEINS)).round(2)
    own = effects if registry in FIRST_FORM else -effects
    expected = 0.8 * metres_now - 1.2 * (age - 38) - 2.0 * (years_ill - 9) + proteins @ own
    metres = (expected + rng.normal(0.0, NOISE, count)).round().clip(0)
    names = ",".join(f"protein_{k + 1:02d}" for k in range(PROTEINS))
    lines = [f"age,years_ill,metres_now,{names},metres_next_year"]
    for k in range(count):
        clinical = f"{age[k]:.0f},{years_ill[k]},{metres_now[k]:.0f}"
        lines.append(",".join([clinical, *map(str, proteins[k]), f"{metres[k]:.0f}"]))
    return "\n".join(lines) + "\n"

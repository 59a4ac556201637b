"""The synthetic regressions of the FedEgoists paper (Chen et al., NeurIPS 2024, Appendix B).

Eight participants learn the third-degree polynomial of 20 inputs

    y = Σ_{k=1..3} u_{i,k}ᵀ x^k + ε,   x ~ U[-1, 1]^20,   ε ~ N(0, 0.5²),

with elementwise powers and participant i's own coefficients u_{i,k} = v + r_{i,k}, v ~ U[0, 1]^20,
r_{i,k} ~ N(0, ρ²)^20.

The paper does not say how often v is drawn. It writes v without the indices i and k of u and r, and
says that ρ² measures the differences between participants and that all learn the same task. Neither
would be true if v were drawn for each participant, so there is one v for all participants and
powers.

The noise is drawn after the sign is chosen, so no model has an expected squared error below 0.25.
"""

from dataclasses import dataclass
from functools import partial
from os import PathLike

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.dataset_registry import DATASETS, DatasetOptions
from fedegoists.learning.partitioners import seeded, train_validation
from fedegoists.learning.preparation import Preparation

FEATURES, POWERS = 20, 3
NOISE = 0.5
TEST_SIZE = 1000
VALIDATION_SHARE = 0.1
PARTICIPANTS = tuple(f"v{i}" for i in range(1, 9))


class SyntheticOptions(DatasetOptions):
    """Options of both synthetic data sets."""

    rho: float = Field(default=0.01, gt=0)
    """Standard deviation of the coefficients between participants."""


@dataclass(frozen=True)
class Setting:
    """One of the paper's two experiments: sample sizes, signs and competitors."""

    name: str
    sizes: tuple[int, ...]
    signs: tuple[int, ...]
    competition: tuple[tuple[int, int], ...]
    note: str

    @property
    def competition_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of competitors by name."""
        return tuple((f"v{first}", f"v{second}") for first, second in self.competition)


WEAK = Setting(
    "synthetic-weak",
    sizes=(2000, 2000, 100, 100, 2000, 2000, 100, 100),
    signs=(1,) * 8,
    competition=((1, 5), (1, 6), (2, 5), (2, 6), (1, 7), (2, 8), (3, 5), (4, 6)),
    note="v1, v2, v5 and v6 have 2,000 samples, the others 100",
)
STRONG = Setting(
    "synthetic-strong",
    sizes=(2000,) * 8,
    signs=(1, 1, 1, 1, -1, -1, -1, -1),
    competition=((1, 3), (1, 4), (2, 3), (2, 4), (5, 7), (5, 8), (6, 7), (6, 8)),
    note="all have 2,000 samples; v5 to v8 learn the opposite sign",
)


def load_synthetic(
    setting: Setting,
    options: SyntheticOptions,
    *,
    data_dir: str | PathLike[str] | None = None,
    seed: int = 0,
) -> SiloedData:
    """Draw one of the synthetic data sets.

    Of each participant's samples 90 % are for training and 10 % for validation; 1,000 more are
    drawn for its test.

    Examples
    --------
    >>> data = load_weak(SyntheticOptions())
    >>> data.sizes()["v1"], data.sizes()["v3"].train
    (SplitSizes(train=1800, validation=200, test=1000), 90)
    """
    del data_dir  # nothing is read
    # Separate streams: more samples for one participant change nothing for the others.
    shared, *own = seeded(seed).spawn(1 + len(PARTICIPANTS))
    common = shared.uniform(0, 1, FEATURES)
    inputs, targets, silos = [], [], []
    start = 0
    for name, size, sign, rng in zip(PARTICIPANTS, setting.sizes, setting.signs, own, strict=True):
        coefficients = common + rng.normal(0, options.rho, (POWERS, FEATURES))
        drawn = rng.uniform(-1, 1, (size + TEST_SIZE, FEATURES))
        noise = rng.normal(0, NOISE, len(drawn))
        inputs.append(drawn)
        targets.append(sign * polynomial(drawn, coefficients) + noise)
        positions = start + np.arange(len(drawn))
        train, validation = train_validation(positions[:size], None, VALIDATION_SHARE, rng)
        silos.append(SiloIndices(name, train, validation, positions[size:]))
        start += len(drawn)
    return SiloedData(
        setting.name,
        "regression",
        Samples(
            (np.concatenate(inputs).astype(np.float32),),
            np.concatenate(targets).astype(np.float32),
        ),
        tuple(silos),
        None,
        f"Predict a polynomial of {FEATURES} inputs from noisy values: "
        f"{DATASETS[setting.name].summary}.",
        (
            setting.note,
            "the coefficients of all participants and powers lie around one vector v",
            f"noise N(0, {NOISE}²): no mean squared error is below {NOISE**2} in expectation",
        ),
        setting.competition_pairs,
        (
            Preparation.unchanged(
                "features", [f"x{k}" for k in range(1, FEATURES + 1)], len(PARTICIPANTS)
            ),
        ),
    )


load_weak = partial(load_synthetic, WEAK)
load_strong = partial(load_synthetic, STRONG)


def polynomial(
    x: npt.NDArray[np.float64], coefficients: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return Σ_k u_kᵀ x^k for each row x, with u_1 in the first row of the coefficients.

    Examples
    --------
    >>> polynomial(np.array([[2.0]]), np.array([[1.0], [10.0], [100.0]]))
    array([842.])
    """
    total = np.zeros(len(x))
    for k, row in enumerate(coefficients, start=1):
        total += x**k @ row
    return total

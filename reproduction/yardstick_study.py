"""How strong is training alone: the product's linear models beside those of scikit-learn.

Every comparison uses the same training, validation and test samples. The product is run through
``consortium.toml`` with its defaults. Yardsticks are ridge models with the usual penalty and with
one chosen by cross-validation, each on the training samples alone, which the product trains on, and
on training and validation samples together, with which the product only chooses.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedegoists.consortium.toml_text import toml_value
from fedegoists.learning.concordance import concordances
from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets import load
from fedegoists.learning.sample_scores import contributions
from reproduction.repeated_runs import (
    Measured,
    by_seed,
    consortium_text,
    corrected,
    level,
    mean_differences,
    measured,
    ratio_of,
)

__all__ = ["TABLES_COMPARED", "ridge_cox", "yardstick_page", "yardstick_rows"]

Numbers = npt.NDArray[np.float64]
Penalty = Literal["usual", "chosen"]

SEEDS = tuple(range(10))
PRODUCT = "alone"
PENALTIES = tuple(float(one) for one in np.logspace(-2, 3, 6))
"""Penalties to choose from: multiples of ½‖w‖² beside the sum of losses."""
USUAL_COX = 10.0
"""Penalty of Cox regression without a choice; there is no usual one."""
FOLDS = 5


@dataclass(frozen=True)
class ComparedTable:
    """A data set of silos, or a table of scikit-learn that is divided among silos.

    Attributes
    ----------
    silos, by : int and str
        For a table of scikit-learn: the number of silos, and the column in which they differ.
    """

    title: str
    metric: str
    source: str = ""
    options: dict[str, str] = field(default_factory=dict)
    maker: str = ""
    silos: int = 0
    by: str = ""


TABLES_COMPARED = {
    "heart": ComparedTable("heart disease, four hospitals", "AUC", "heart"),
    "eicu-demo": ComparedTable(
        "eICU demo, kidney injury, eight groups", "AUC", "eicu-demo", {"series": "summary"}
    ),
    "breast-cancer": ComparedTable(
        "breast cancer, five silos",
        "AUC",
        maker="load_breast_cancer",
        silos=5,
        by="mean radius",
    ),
    "digits": ComparedTable(
        "digits, five silos", "accuracy", maker="load_digits", silos=5, by="pixel_3_3"
    ),
    "diabetes": ComparedTable(
        "diabetes progression, four silos", "mse", maker="load_diabetes", silos=4, by="bmi"
    ),
    "tcga-brca": ComparedTable(
        "TCGA-BRCA survival, six regions", "C-index", "tcga-brca", {"test": "hash"}
    ),
}


def write_silos(table: ComparedTable, folder: Path) -> None:
    """Write a table of scikit-learn as one file per silo, with its schema.

    Silos differ as hospitals do: rows are sorted by one column, with much noise, and cut.
    """
    from sklearn import datasets  # type: ignore[import-untyped]

    more = {"scaled": False} if table.maker == "load_diabetes" else {}
    found = getattr(datasets, table.maker)(as_frame=True, **more)
    frame, features = found.frame, list(found.feature_names)
    noise = np.random.default_rng(1).normal(0, len(frame) / 3, len(frame))
    order = np.argsort(frame[table.by].rank().to_numpy() + noise)
    folder.mkdir(parents=True, exist_ok=True)
    for k, part in enumerate(np.array_split(order, table.silos)):
        frame.iloc[np.sort(part)].to_csv(folder / f"silo {k + 1}.csv", index=False)
    lines = [f"features = {toml_value(list(map(str, features)))}", 'target = "target"']
    if table.metric == "mse":
        lines.append('task = "regression"')
    else:
        classes = [str(one) for one in sorted(frame["target"].unique())]
        lines.append(f'task = "{"binary" if len(classes) == 2 else "classification"}"')
        lines.append(f"classes = {toml_value(classes)}")
    (folder / "schema.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def yardstick_rows(
    name: str,
    work: Path,
    seeds: Iterable[int] = SEEDS,
    tell: Callable[[str], object] = lambda _: None,
    known: Sequence[Measured] = (),
) -> list[Measured]:
    """Train alone with the product and with the yardsticks, in every division.

    Parameters
    ----------
    known : sequence of Measured
        Results of the product from another study of the same data, which need not be made again.
    """
    table, seeds = TABLES_COMPARED[name], list(seeds)
    source = table.source
    if table.maker:
        write_silos(table, work / name)
        source = name
    texts = {
        seed: consortium_text(source, table.options, seed, {"methods": ["local"]}) for seed in seeds
    }
    rows = [replace(row, data=name, model=PRODUCT) for row in known if row.seed in texts]
    rows = rows or measured(name, PRODUCT, texts, work)
    for seed in sorted({row.seed for row in rows}):
        data = load(str(work / name) if table.maker else source, seed=seed, **table.options)
        for label, penalty, both in YARDSTICKS:
            rows += yardstick(data, name, label, seed, penalty, both=both)
    for label in dict.fromkeys(row.model for row in rows):
        tell(f"{name}, {label}: {level(by_seed(rows, label, 'local')):.4g}")
    return rows


YARDSTICKS: tuple[tuple[str, Penalty, bool], ...] = (
    ("usual penalty", "usual", False),
    ("chosen penalty", "chosen", False),
    ("usual, with validation", "usual", True),
    ("chosen, with validation", "chosen", True),
)
"""Name, penalty, and whether validation samples are for training, too."""


def yardstick(
    data: SiloedData, name: str, label: str, seed: int, penalty: Penalty, *, both: bool
) -> list[Measured]:
    """Fit one yardstick at every silo alone, and measure it on the silo's test samples."""
    rows = []
    for k, silo in enumerate(data.silos):
        positions = np.concatenate([silo.train, silo.validation]) if both else silo.train
        (inputs,), targets = data.samples.inputs, data.samples.targets
        outputs = fitted_outputs(
            data.task,
            inputs[positions].astype(np.float64),
            targets[positions],
            inputs[silo.test].astype(np.float64),
            penalty,
        )
        spread = data.target_scales[k].spread if data.target_scales else 1.0
        value = score(data.task, outputs, targets[silo.test], spread)
        sizes = (len(silo.train), len(silo.test))
        rows.append(Measured(name, label, "local", seed, silo.name, *sizes, math.nan, value))
    return rows


def fitted_outputs(
    task: str, inputs: Numbers, targets: npt.NDArray[Any], new: Numbers, penalty: Penalty
) -> Numbers:
    """Fit a ridge model, and return its outputs for new samples."""
    from sklearn.linear_model import (  # type: ignore[import-untyped]
        LogisticRegression,
        LogisticRegressionCV,
        Ridge,
        RidgeCV,
    )

    usual = penalty == "usual"
    if task == "survival":
        strength = USUAL_COX if usual else chosen_cox(inputs, targets)
        return np.asarray(new @ ridge_cox(inputs, targets, strength), dtype=np.float64)
    if task == "regression":
        model: Any = Ridge() if usual else RidgeCV(PENALTIES)
        return np.asarray(model.fit(inputs, targets).predict(new), dtype=np.float64)
    counts = np.bincount(targets)
    folds = min(FOLDS, int(counts[counts > 0].min()))
    if usual or folds < 2:
        model = LogisticRegression(max_iter=10_000)
    else:
        model = LogisticRegressionCV(
            Cs=[1 / one for one in PENALTIES], cv=folds, max_iter=2000, scoring="neg_log_loss"
        )
    with warnings.catch_warnings():  # about arguments that newer versions will want
        warnings.simplefilter("ignore", FutureWarning)
        model.fit(inputs, targets)
    found = model.decision_function(new) if task == "binary" else model.predict(new)
    return np.asarray(found, dtype=np.float64)


def score(task: str, outputs: Numbers, targets: npt.NDArray[Any], spread: float) -> float:
    """Return the metric; NaN where it is not defined."""
    if task == "classification":
        return float(np.mean(outputs == targets))
    if task == "regression":
        return float(np.mean((outputs - targets) ** 2)) * spread**2
    if task == "survival":
        found = concordances(outputs, targets.astype(np.float64))
        return float(found.mean()) if len(found) else math.nan
    above, below = contributions("binary", outputs, targets.astype(np.float64))
    return float(above.mean()) if len(above) and len(below) else math.nan


def ridge_cox(inputs: Numbers, targets: npt.NDArray[Any], penalty: float) -> Numbers:
    """Return the weights of Cox regression: Breslow's partial likelihood with penalty/2 ‖w‖².

    Parameters
    ----------
    targets : array
        Times, negative where the event has not happened until then.
    """
    from scipy.optimize import minimize

    times = np.abs(targets).astype(np.float64)
    order = np.argsort(-times, kind="stable")  # the risk set of a row: all rows before its ties end
    x, event = inputs[order], targets[order] > 0
    last = np.searchsorted(-times[order], -times[order], side="right") - 1

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        risk = x @ weights
        shift = risk.max()
        odds = np.exp(risk - shift)
        total = np.cumsum(odds)[last]
        mean = np.cumsum(odds[:, None] * x, axis=0)[last] / total[:, None]
        value = -np.sum((risk - shift - np.log(total))[event])
        gradient = -np.sum((x - mean)[event], axis=0)
        return float(value + penalty / 2 * weights @ weights), gradient + penalty * weights

    found = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)


def chosen_cox(inputs: Numbers, targets: npt.NDArray[Any]) -> float:
    """Return the penalty with the highest concordance in cross-validation; of equals, the first."""
    folds = np.empty(len(targets), dtype=np.int64)
    rng = np.random.default_rng(0)
    for happened in (True, False):  # events are in all folds alike
        own = rng.permutation(np.flatnonzero((targets > 0) == happened))
        folds[own] = np.arange(len(own)) % FOLDS
    means = {}
    for penalty in reversed(PENALTIES):
        scores = []
        for fold in range(FOLDS):
            rest, held = folds != fold, folds == fold
            if (targets[rest] > 0).any():
                outputs = inputs[held] @ ridge_cox(inputs[rest], targets[rest], penalty)
                scores.append(score("survival", outputs, targets[held], 1.0))
        means[penalty] = float(np.nanmean(scores)) if np.isfinite(scores).any() else 0.0
    return max(means, key=lambda one: means[one])


def yardstick_page(rows: Sequence[Measured], origin: str) -> str:
    """Return all comparisons as a page."""
    labels = [label for label, *_ in YARDSTICKS]
    lines = [
        "# Training alone, beside scikit-learn",
        "",
        "Test metrics of linear models that every silo trains alone, mean over silos and over "
        "divisions of the samples. *Alone* is the method `local` with the default model of "
        "`consortium.toml`; the others are ridge models: of scikit-learn, and Cox regression by "
        "`reproduction/yardstick_study.py`. In brackets: *alone* minus the other, with the 95 % "
        "interval of Nadeau and Bengio. The mean squared error (mse) is better where it is lower.",
        "",
        "| data | metric | divisions | alone | " + " | ".join(labels) + " |",
        "|---|---|---|---|" + "---|" * len(labels),
    ]
    for name, table in TABLES_COMPARED.items():
        own = [row for row in rows if row.data == name]
        if not own:
            continue
        digits = 0 if table.metric == "mse" else 3
        alone = by_seed(own, PRODUCT, "local")
        cells = [table.title, table.metric, str(len(alone)), f"{level(alone):.{digits}f}"]
        for label in labels:
            other = by_seed(own, label, "local")
            gap = corrected(mean_differences(alone, other), ratio_of(own))
            cells.append(f"{level(other):.{digits}f}; {gap.shown(digits)}")
        lines.append("| " + " | ".join(cells) + " |")
    decays = {
        name: sorted({row.decay for row in rows if (row.data, row.model) == (name, PRODUCT)})
        for name in dict.fromkeys(row.data for row in rows)
    }
    told = "; ".join(
        f"{name} {', '.join(f'{one:g}' for one in own)}" for name, own in decays.items()
    )
    return "\n".join([*lines, "", f"Weight decays that were found: {told}.", "", origin, ""])

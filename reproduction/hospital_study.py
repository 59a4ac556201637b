"""Real consortia of hospitals through ``consortium.toml`` alone: models and methods side by side.

Settings are the defaults of the product. One of them was not chosen blindly: that weight decays are
compared by validation loss, not by validation metric, was decided after test results of some of the
divisions reported here had been seen, see the README.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reproduction.repeated_runs import (
    ALONE,
    Measured,
    by_seed,
    consortium_text,
    corrected,
    level,
    mean_differences,
    measured,
    ratio_of,
)

__all__ = ["HOSPITALS", "HospitalData", "ModelRow", "hospital_page", "hospital_rows"]

SEEDS = tuple(range(10))
METHODS = (ALONE, "fedavg", "fedavg+ft", "egomix")


@dataclass(frozen=True)
class ModelRow:
    """A model to compare: its name in tables, and the section ``training`` of the file."""

    name: str
    model: str
    methods: tuple[str, ...] = METHODS

    @property
    def training(self) -> dict[str, object]:
        """The section of the file."""
        return {"methods": list(self.methods), "model": self.model}


@dataclass(frozen=True)
class HospitalData:
    """A data set whose silos are real, and the models that are compared on it."""

    source: str
    title: str
    metric: str
    models: tuple[ModelRow, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""


NETWORK = ModelRow("network", "mlp")
COX, LOGISTIC = ModelRow("Cox", "cox"), ModelRow("logistic", "logistic")
TREES = ModelRow("trees", "trees", (ALONE, "bagging"))
FLAMBY = (
    "The test patients are those of FLamby in every division; the seed changes only which of the "
    "others are for validation."
)
HOSPITALS = {
    "tcga-brca": HospitalData(
        "tcga-brca",
        "TCGA-BRCA, six regions",
        "C-index",
        (COX, NETWORK, TREES),
        {"test": "hash"},
    ),
    "tcga-brca-flamby": HospitalData(
        "tcga-brca",
        "TCGA-BRCA, FLamby's test patients",
        "C-index",
        (COX, TREES),
        {"test": "published"},
        FLAMBY,
    ),
    "heart": HospitalData(
        "heart", "Heart disease, four hospitals", "AUC", (LOGISTIC, NETWORK, TREES)
    ),
    "eicu-demo": HospitalData(
        "eicu-demo",
        "eICU demo, kidney injury, eight groups of hospitals",
        "AUC",
        (LOGISTIC, NETWORK, TREES),
        {"series": "summary"},
        "Each hourly series is its mean, smallest, largest and last value.",
    ),
}
"""The data sets. To compare another model, add a `ModelRow` to their `models`."""


def hospital_rows(
    name: str,
    work: Path,
    seeds: Iterable[int] = SEEDS,
    tell: Callable[[str], object] = lambda _: None,
    models: Sequence[ModelRow] | None = None,
) -> list[Measured]:
    """Run the consortia of one data set: some models, or all, in every division."""
    study, rows = HOSPITALS[name], []
    for one in study.models if models is None else models:
        texts = {
            seed: consortium_text(study.source, study.options, seed, one.training) for seed in seeds
        }
        found = measured(name, one.name, texts, work)
        for method in one.methods:
            tell(f"{name}, {one.name}, {method}: {level(by_seed(found, one.name, method)):.3f}")
        rows += found
    return rows


def hospital_page(study: HospitalData, rows: Sequence[Measured], origin: str) -> str:
    """Return the results of a data set as a page."""
    done = {row.model for row in rows}
    models = [one for one in study.models if one.name in done]
    lines = [
        f"# {study.title}",
        "",
        f"Test {study.metric}, mean over participants and {_divisions(rows, models)} of the "
        "samples. Gains are paired by division, in coalitions of everybody; 95 % intervals with "
        "the correction of Nadeau and Bengio, because divisions overlap.",
        *(["", study.remark] if study.remark else []),
        "",
        f"| model | method | {study.metric} | gain over training alone |",
        "|---|---|---|---|",
    ]
    for one in models:
        alone = by_seed(rows, one.name, ALONE)
        for method in one.methods:
            own = by_seed(rows, one.name, method)
            gain = corrected(mean_differences(own, alone), ratio_of(rows))
            shown = "" if method == ALONE else gain.shown(3)
            lines.append(f"| {one.name} | {method} | {level(own):.3f} | {shown} |")
    first = models[0]
    lines += ["", f"By participant, {first.name}:", ""]
    lines += _participants(rows, first)
    return "\n".join([*lines, "", origin, ""])


def _divisions(rows: Sequence[Measured], models: Sequence[ModelRow]) -> str:
    """Return over how many divisions each model was trained; one number if it is the same."""
    counts = {one.name: len({r.seed for r in rows if r.model == one.name}) for one in models}
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} divisions"
    return f"divisions ({', '.join(f'{name} {count}' for name, count in counts.items())})"


def _participants(rows: Sequence[Measured], one: ModelRow) -> list[str]:
    """Return the lines of a table with the gains of every participant."""
    others = [method for method in one.methods if method != ALONE]
    lines = [
        "| participant | training, test | alone | " + " | ".join(others) + " |",
        "|---|---|---|" + "---|" * len(others),
    ]
    alone = by_seed(rows, one.name, ALONE)
    for name in dict.fromkeys(row.participant for row in rows):
        own = [row for row in rows if row.participant == name and row.model == one.name]
        sizes = [
            statistics.fmean(getattr(row, size) for row in own if row.method == ALONE)
            for size in ("train", "test")
        ]
        before = {seed: {name: values[name]} for seed, values in alone.items() if name in values}
        cells = [name, f"{sizes[0]:.0f}, {sizes[1]:.0f}", f"{level(before):.3f}"]
        for method in others:
            after = by_seed(rows, one.name, method)
            pairs = {seed: {name: after[seed][name]} for seed in before if name in after[seed]}
            gain = corrected(mean_differences(pairs, before), sizes[1] / sizes[0])
            cells.append(gain.shown(3))
        lines.append("| " + " | ".join(cells) + " |")
    return lines

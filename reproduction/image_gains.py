"""Gains on images by label counts alone, against the gains of committed cells.

No learning curve is known without a GPU, so all silos of a division are given the same slope. Then
the estimator's model without transfers is left with what label counts tell: others' samples in
one's own mix of classes, in units of one's own, x, and the gain slope · ((1 + x)^p − 1) / (p ln 2).
The order of gains does not depend on the slope. Their size does: the slope is fitted to the other
repetitions.

Realised gains are those of EgoMix in the widest coalitions over Local, at convergence and with the
learning rates that validation data prefers. The coalitions depend on competition only.

    python -m reproduction image-gains
"""

import gzip
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.benefit.curve_fit import UNTRIED_POWER, HomeScores, Measures
from fedegoists.graphs import CurveValues
from fedegoists.learning.data import SiloedData
from reproduction.record_files import read_records, records_csv

__all__ = ["ImageGain", "image_gains", "image_gains_csv", "image_page", "label_values"]

TOGETHER, ALONE = "egomix-wide", "local"
DIVISIONS = tuple(
    (data, division)
    for data in ("cifar10", "cifar100")
    for division in ("dirichlet", "pathological")
)
BETA = 0.5
"""The divisions of Tables 1 and 2."""


@dataclass(frozen=True)
class ImageGain:
    """The gain of a member of a coalition.

    Attributes
    ----------
    told : float
        What label counts tell, for a slope of one.
    realised : float
        In points of accuracy.
    """

    data: str
    division: str
    competition: str
    repetition: int
    participant: str
    members: int
    told: float
    realised: float


def label_values(labels: npt.NDArray[np.float64], names: Sequence[str]) -> CurveValues:
    """Return coalition values by label counts, with a slope of one for everybody.

    Parameters
    ----------
    labels : array of shape (n, classes)
        Training samples of each class.

    Examples
    --------
    With as many samples of the same classes, x is 1; of other classes, 0.

    >>> values = label_values(np.array([[10.0, 0], [10, 0], [0, 10]]), ["a", "b", "c"])
    >>> values.rates.round(2).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    n, samples = len(labels), labels.sum(1)
    none = Measures(np.zeros((1, 2, n)), np.zeros((1, 2, n)))
    ratios = HomeScores(tuple(names), samples, none, none, labels=labels).ratios
    rates = ratios.T * samples[None, :] / samples[:, None]
    np.fill_diagonal(rates, 0.0)
    return CurveValues(samples, np.ones(n), rates, names, powers=UNTRIED_POWER)


def counted_labels(data: SiloedData) -> npt.NDArray[np.float64]:
    """Return the training samples of each class, one row for each silo."""
    return np.array(
        [
            np.bincount(data.samples.targets[silo.train], minlength=data.classes or 0)
            for silo in data.silos
        ],
        dtype=np.float64,
    )


def image_gains(
    cells: Iterable[Mapping[str, Any]], divided: Mapping[tuple[str, str, int], SiloedData]
) -> list[ImageGain]:
    """Return the gains of all members in company, told and realised.

    Parameters
    ----------
    cells : iterable of mapping
        The lines of the tables' files.
    divided : mapping
        The data by name, division and repetition.
    """
    best: dict[tuple[str, str, str, int, str], Mapping[str, Any]] = {}
    for cell in cells:
        options = cell["options"]
        usual = "beta" not in options or options["beta"] == BETA
        if cell["budget"] != "converged" or cell["length"] != 1 or not usual:
            continue
        if cell["variant"] not in (TOGETHER, ALONE):
            continue
        competition = "" if cell["variant"] == ALONE else cell["competition"]
        key = (
            cell["data"],
            options["partition"],
            competition,
            cell["repetition"],
            cell["variant"],
        )
        if key not in best or _validated(cell) > _validated(best[key]):
            best[key] = cell
    found = []
    for (data, division, competition, repetition, variant), cell in best.items():
        alone = best.get((data, division, "", repetition, ALONE))
        known = divided.get((data, division, repetition))
        if variant != TOGETHER or alone is None or known is None:
            continue
        names = known.participants
        values = label_values(counted_labels(known), names)
        for group in cell["coalitions"]:
            if len(group) < 2:
                continue
            row = np.array([[name in group for name in names]])
            told = values.gains(row)[0]
            for name in group:
                gain = 100 * (cell["test"][name] - alone["test"][name])
                about = (data, division, competition, repetition, name, len(group))
                found.append(ImageGain(*about, float(told[names.index(name)]), gain))
    return found


def _validated(cell: Mapping[str, Any]) -> float:
    """Return the mean validation result, by which the learning rate is chosen."""
    return statistics.fmean(cell["validation"].values())


def committed_cells(folder: Path) -> list[dict[str, Any]]:
    """Return the cells of both tables of images."""
    found = []
    for table in ("table1", "table2"):
        with gzip.open(folder / f"{table}.jsonl.gz", "rt", encoding="utf-8") as lines:
            found += [json.loads(text) for text in lines]
    return found


image_gains_csv = partial(records_csv, ImageGain)
"""Return rows as CSV, see `reproduction.record_files`."""


read_image_gains = partial(read_records, ImageGain)
"""Read what `image_gains_csv` returned."""


def fitted(gains: Sequence[ImageGain]) -> npt.NDArray[np.float64]:
    """Return predictions with the slope that fits the other repetitions best."""
    told = np.array([one.told for one in gains])
    realised = np.array([one.realised for one in gains])
    repetitions = np.array([one.repetition for one in gains])
    predicted = np.full(len(gains), math.nan)
    for repetition in set(repetitions.tolist()):
        others = repetitions != repetition
        if others.any():
            slope = float((told * realised)[others].sum() / (told**2)[others].sum())
            predicted[~others] = slope * told[~others]
    return predicted


def image_page(gains: Sequence[ImageGain], origin: str) -> str:
    """Return the page."""
    from scipy.stats import spearmanr

    lines = [
        "# Gains on images, by label counts",
        "",
        "Members of the widest coalitions of EgoMix, all levels of competition, over Local; from "
        "the cells of Tables 1 and 2, in points of accuracy. Learning curves were not measured, "
        "which needs a GPU: all silos of a division have one slope, which is fitted to the other "
        "repetitions. It says nothing about intervals, nor about which silo learns faster.",
        "",
        "| division | members | rank agreement | mean gain, realised | predicted | mean absolute "
        "error |",
        "|---|---|---|---|---|---|",
    ]
    for data, division in DIVISIONS:
        own = [one for one in gains if (one.data, one.division) == (data, division)]
        if not own:
            continue
        predicted = fitted(own)
        realised = np.array([one.realised for one in own])
        rank = spearmanr([one.told for one in own], realised)[0]
        lines.append(
            f"| {data}, {division} | {len(own)} | {rank:.2f} | {realised.mean():+.2f} | "
            f"{predicted.mean():+.2f} | {np.abs(predicted - realised).mean():.2f} |"
        )
    return "\n".join([*lines, "", origin, ""])

"""Studies of benefit estimators: learn, measure the truth, compare, and write all of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedegoists.benefit import LearnSettings
from fedegoists.federation import TrainSettings
from fedegoists.files import csv_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.training.benefit_learning import (
    BenefitPlan,
    LearnedBenefits,
    LearningProgress,
    learn_benefits,
    write_benefits,
)
from reproduction.agreement import agreement_section
from reproduction.measured_pairs import MeasuredBenefit, MeasureSettings, measure_repetitions

__all__ = ["BenefitStudy", "study"]


@dataclass(frozen=True)
class BenefitStudy:
    """The learned benefits of a plan, and the measured ones by seed."""

    learned: LearnedBenefits
    measured: Mapping[str, MeasuredBenefit]


def study(
    plan: BenefitPlan,
    out: str | os.PathLike[str],
    *,
    repeats: int = 3,
    leave_one_out: bool = True,
    data_dir: str | os.PathLike[str] | None = None,
    progress: LearningProgress | None = None,
    replace: bool = False,
) -> BenefitStudy:
    """Learn and measure; write what `write_benefits` does, ``measured.csv`` and the agreement.

    Parameters
    ----------
    repeats : int
        Independent measurements of the truth.
    leave_one_out : bool
        Whether to train also all participants together and all but one.
    replace : bool
        Whether earlier files of the same names may be replaced.
    """
    learned = learn_benefits(plan, data_dir=data_dir, progress=progress)
    settings = MeasureSettings(
        train=_longer(learned.first_settings, learned.data),
        repeats=repeats,
        leave_one_out=leave_one_out,
    )
    measured = {
        str(seed): one
        for seed, one in measure_repetitions(
            learned.federation, settings, apart=learned.apart, progress=progress
        ).items()
    }
    private = learned.first_settings.clip is not None
    write_benefits(
        learned,
        out,
        sections=list(agreement_section(learned.estimates, measured, private=private)),
        files={"measured.csv": _measured_csv(measured)},
        replace=replace,
    )
    return BenefitStudy(learned, measured)


def _longer(settings: LearnSettings, data: SiloedData) -> TrainSettings:
    """Return how models are trained for the truth: twice as long as for an estimate.

    Models of sequences, such as stays in intensive care, train as long as for an estimate.
    """
    local = settings.local
    steps = local.steps if data.samples.inputs[0].ndim == 3 else 2 * local.steps
    return local.changed(steps=steps, total_steps=steps)


def _measured_csv(measured: Mapping[str, MeasuredBenefit]) -> bytes:
    """Return the measured gains of every repeat, and the loss of leaving a participant out."""
    rows = []
    for seed, truth in measured.items():
        names, without = truth.participants, truth.losses_without
        for repeat, gains in enumerate(truth.gains):
            for j, i in np.argwhere(~np.eye(len(names), dtype=bool)).tolist():
                loss = "" if without is None else f"{without[repeat, j, i]:.6g}"
                pair = (seed, str(repeat), names[j], names[i])
                rows.append((*pair, f"{gains[j, i]:.6g}", loss))
    return csv_bytes(("seed", "repeat", "source", "target", "gain", "cost_without"), rows)

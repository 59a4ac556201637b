"""Who benefits whom: learned over a federation, measured, compared and written down."""

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.benefit.learn import learn, learn_repetitions
from fedegoists.benefit.learn_settings import ESTIMATORS, LearnSettings
from fedegoists.benefit.measured_pairs import (
    MeasuredBenefit,
    MeasureSettings,
    measure,
    measure_repetitions,
)

__all__ = [
    "ESTIMATORS",
    "BenefitEstimate",
    "LearnSettings",
    "MeasureSettings",
    "MeasuredBenefit",
    "learn",
    "learn_repetitions",
    "measure",
    "measure_repetitions",
]

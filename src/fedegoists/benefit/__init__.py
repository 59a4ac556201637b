"""Who benefits whom: learned over a federation, measured, compared and written down."""

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.benefit.learn import learn, learn_trials
from fedegoists.benefit.learn_settings import ESTIMATORS, LearnSettings
from fedegoists.benefit.measured_pairs import (
    MeasuredBenefit,
    MeasureSettings,
    measure,
    measure_trials,
)

__all__ = [
    "ESTIMATORS",
    "BenefitEstimate",
    "LearnSettings",
    "MeasureSettings",
    "MeasuredBenefit",
    "learn",
    "learn_trials",
    "measure",
    "measure_trials",
]

"""Who benefits whom: estimators that learn a benefit graph over a federation."""

from fedegoists.benefit.estimate import BenefitEstimate
from fedegoists.benefit.learn import learn, learn_repetitions
from fedegoists.benefit.learn_settings import ESTIMATORS, LearnSettings

__all__ = [
    "ESTIMATORS",
    "BenefitEstimate",
    "LearnSettings",
    "learn",
    "learn_repetitions",
]

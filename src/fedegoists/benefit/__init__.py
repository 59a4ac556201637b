"""The benefit graph: estimators that learn it over a federation.

`fedegoists.benefit.estimator_registry` lists the estimators without loading PyTorch; everything
else is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fedegoists.benefit.estimator_registry import ESTIMATOR_ENTRIES, EstimatorEntry

if TYPE_CHECKING:
    from fedegoists.benefit.estimate import BenefitEstimate
    from fedegoists.benefit.learn_settings import LearnSettings
    from fedegoists.benefit.learning_benefit import learn, learn_repetitions

__all__ = [
    "ESTIMATOR_ENTRIES",
    "BenefitEstimate",
    "EstimatorEntry",
    "LearnSettings",
    "learn",
    "learn_repetitions",
]

_MODULES = {
    "BenefitEstimate": "estimate",
    "LearnSettings": "learn_settings",
    "learn": "learning_benefit",
    "learn_repetitions": "learning_benefit",
}


def __getattr__(name: str) -> object:
    """Load what needs PyTorch only when it is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

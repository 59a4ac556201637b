"""The privacy loss (ε, δ) of noisy gradients, by a library made for accounting it.

Batches are disjoint within a pass over a silo's samples, and drawn without regard to what the
samples are. So one sample takes part in one answer a pass, and in as many Gaussian mechanisms as
there are passes, times the models asked about at once. Nothing is claimed for the secrecy of the
samples in a batch, since the server chooses the seed. Training and validation samples are different
ones.
"""

import math
from dataclasses import dataclass

from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.errors import MissingDependencyError, SettingsError

ACCOUNTED = "hypernetwork"
"""The estimator whose replies are counted here."""


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy loss of one sample of a silo.

    Attributes
    ----------
    epsilon : float
        At `delta`; infinite without noise.
    training, validation : int
        The most replies in which one sample of each kind took part.
    """

    epsilon: float
    delta: float
    training: int
    validation: int


def privacy_spent(settings: LearnSettings, training: int, delta: float = 1e-5) -> PrivacySpent:
    """Return the (ε, δ) of a silo by its number of training samples, whatever its validation data.

    Neighbours are two data sets of which one has a sample whose gradients count as zero in the
    other, so that the size of a silo is no secret.

    Raises
    ------
    MissingDependencyError
        If ``dp-accounting`` is not installed.
    """
    if not 0 < delta < 1:
        raise SettingsError(f"delta is {delta}; expected a number between 0 and 1")
    if settings.clip is not None and settings.estimator != ACCOUNTED:
        # Another estimator asks for other replies: its ε would be wrong, without a sign of it.
        raise SettingsError(
            f"the privacy loss of the estimator {settings.estimator!r} is not accounted for; "
            f"use {ACCOUNTED!r}, or leave out clip and noise"
        )
    trained = _answers(training, settings.batch_size, settings.steps) * settings.repeats
    validated = settings.preference_steps * settings.repeats  # all of them in every step
    if settings.clip is None or settings.noise == 0:
        return PrivacySpent(math.inf, delta, trained, validated)
    try:
        from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise MissingDependencyError(
            "accounting for privacy needs dp-accounting: pip install 'fedegoists[privacy]'"
        ) from None
    accountant = RdpAccountant()
    event = SelfComposedDpEvent(GaussianDpEvent(settings.noise), max(trained, validated))
    accountant.compose(event)
    return PrivacySpent(float(accountant.get_epsilon(delta)), delta, trained, validated)


def _answers(size: int, batch: int, steps: int) -> int:
    """Return the most of some batches that can contain one of `size` samples."""
    return -(-steps // max(1, size // min(batch, size)))

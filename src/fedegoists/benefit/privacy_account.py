"""The privacy loss (ε, δ) of a graph that is learned from noisy gradients.

Every batch is a Poisson sample that only the silo knows, see
`fedegoists.federation.privacy_loss`. In every step a silo answers about one model for each repeat,
with the same batch for all. Training and validation samples are different ones.
"""

from dataclasses import dataclass

from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.errors import SettingsError
from fedegoists.federation.privacy_loss import NoisyAnswers, epsilon

ACCOUNTED = "hypernetwork"
"""The estimator whose replies are counted here."""


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy loss of one sample of a silo.

    Attributes
    ----------
    epsilon : float
        At `delta`; infinite without noise. The larger of the two that follow.
    training, validation : float
        The ε of a training sample, and of a validation sample.
    """

    epsilon: float
    delta: float
    training: float
    validation: float


def privacy_spent(settings: LearnSettings, training: int, delta: float = 1e-5) -> PrivacySpent:
    """Return the (ε, δ) of a silo by its number of training samples, whatever its validation data.

    Raises
    ------
    MissingDependencyError
        If ``dp-accounting`` is not installed.
    """
    if settings.clip is not None and settings.estimator != ACCOUNTED:
        # Another estimator asks for other replies: its ε would be wrong, without a sign of it.
        raise SettingsError(
            f"the privacy loss of the estimator {settings.estimator!r} is not accounted for; "
            f"use {ACCOUNTED!r}, or leave out clip and noise"
        )
    noise = 0.0 if settings.clip is None else settings.noise
    rate = min(settings.batch_size, training) / training
    both = [
        epsilon([NoisyAnswers(noise, *answers).together(settings.repeats)], delta)
        for answers in ((rate, settings.steps), (1.0, settings.preference_steps))
    ]
    return PrivacySpent(max(both), delta, *both)

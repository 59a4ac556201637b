"""The privacy loss (ε, δ) of answers with Gaussian noise, by a Rényi accountant.

Every answer is a Gaussian mechanism on a Poisson sample: each sample takes part with the same
probability, independently of all others, and nobody outside the silo knows which did. Where batches
are known, or drawn in another way, the rate has to be 1: nothing is gained by sampling then.
Neighbours are two data sets, of which one has a sample that counts as zero in the other, so that
the size of a silo is no secret.

References
----------
Mironov, Talwar and Zhang, Rényi differential privacy of the sampled Gaussian mechanism, 2019.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.install_hints import install_command

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


ORDERS = (*(2 + k / 4 for k in range(16)), *range(6, 64), 80, 96, 128, 192, 256, 512, 1024)
"""Orders of the divergences. Below 2 the library's series often does not converge."""


@dataclass(frozen=True)
class NoisyAnswers:
    """Some answers of one kind.

    Attributes
    ----------
    noise : float
        In multiples of what one sample can change; 0 for none.
    rate : float
        The probability of a sample to take part; 1 for all.
    count : int
        The number of answers.

    Examples
    --------
    Two answers with the same sample in both are one with 1/√2 of the noise:

    >>> NoisyAnswers(noise=2.0, rate=0.1, count=50).together(4).noise
    1.0
    """

    noise: float
    rate: float = 1.0
    count: int = 1

    def together(self, answers: int) -> "NoisyAnswers":
        """Return this number of answers about every one of the samples, instead of one."""
        return NoisyAnswers(self.noise / math.sqrt(answers), self.rate, self.count)


def epsilon(answers: Iterable[NoisyAnswers], delta: float) -> float:
    """Return the ε of all answers together at δ; infinite if one of them has no noise.

    Raises
    ------
    MissingDependencyError
        If ``dp-accounting`` is not installed.
    """
    if not 0 < delta < 1:
        raise SettingsError(f"delta is {delta}; expected a number between 0 and 1")
    given = [one for one in answers if one.count and one.rate]
    if not given:
        return 0.0
    if any(not one.noise for one in given):
        return math.inf
    total = sum(one.count * _renyi(one.noise, one.rate) for one in given)
    accounting = _library()
    return max(float(accounting.compute_epsilon(ORDERS, total, delta)[0]), 0.0)


def noise_for(
    target: float, delta: float, rate: float, steps: int, besides: Iterable[NoisyAnswers] = ()
) -> float:
    """Return the smallest noise multiplier with which private training costs no more than ε.

    Parameters
    ----------
    besides : iterable of NoisyAnswers
        Other answers about the same samples, which are counted in.

    Examples
    --------
    >>> z = noise_for(8.0, 1e-5, rate=0.01, steps=1000)
    >>> 7.9 < epsilon([NoisyAnswers(z, 0.01, 1000)], 1e-5) <= 8
    True
    """
    if not target > 0:
        raise SettingsError(f"epsilon is {target}; expected a number above 0")
    others = tuple(besides)

    def enough(noise: float) -> bool:
        return epsilon([NoisyAnswers(noise, rate, steps), *others], delta) <= target

    low, high = 0.05, 0.1
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e6:
            raise SettingsError(f"no noise gives epsilon = {target:g} at delta = {delta:g}")
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _renyi(noise: float, rate: float) -> "npt.NDArray[np.float64]":
    """Return the Rényi divergences of one answer, one for each order."""
    accounting = _library()
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    accountant = accounting.RdpAccountant(orders=ORDERS)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)))
    # Kept for each kind of answer, as composing it again takes a twentieth of a second.
    divergences: npt.NDArray[np.float64] = accountant._rdp
    return divergences


def _library() -> Any:
    try:
        from dp_accounting.rdp import rdp_privacy_accountant
    except ImportError:
        raise MissingDependencyError(
            f"accounting for privacy needs dp-accounting: {install_command('privacy')}"
        ) from None
    return rdp_privacy_accountant

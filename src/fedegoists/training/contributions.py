"""What each member gave to the others in training, with intervals, and a ledger for sharing costs.

A member's validation data never counts for what it gives: only the others' do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedegoists.files import csv_bytes
from fedegoists.learning.estimates import Interval
from fedegoists.methods.recorded_silos import RoundContributions
from fedegoists.methods.shapley_values import Matrix

RESAMPLES = 1000
CONFIDENCE_ENDS = (2.5, 97.5)
COLUMNS = ("participant", "coalition", "gave", "low", "high", "received", "share_of_costs")


@dataclass(frozen=True)
class Contribution:
    """What a member gave to its coalition and received from it.

    Attributes
    ----------
    coalition : tuple of str
        All members.
    gave : Interval
        The decrease of the other members' validation losses that is due to this member's updates,
        added over rounds and receivers, mean over repetitions. The 95 % interval is by bootstrap
        over receivers and rounds.
    received : float
        The decrease of its own validation loss that is due to the others' updates. In a coalition,
        all that is given is received.
    share_of_costs : float
        A proposal: (1 − its fraction of all that was given) / (members − 1).
    """

    participant: str
    coalition: tuple[str, ...]
    gave: Interval
    received: float
    share_of_costs: float

    @property
    def gave_nothing(self) -> bool:
        """Whether its contribution to the others is clearly not positive."""
        return self.gave.high <= 0


def contributions(rounds: Sequence[RoundContributions], seed: int = 0) -> list[Contribution]:
    """Return the contributions of all members of the recorded coalitions.

    Rounds of the same coalition in several repetitions belong together. Receivers that were not
    evaluated in a round received nothing known in it.
    """
    together: dict[tuple[str, ...], list[RoundContributions]] = {}
    for one in rounds:
        together.setdefault(tuple(name.name for name in one.members), []).append(one)
    found: list[Contribution] = []
    for names, own in together.items():
        repetitions = len({one.members[0].repetition for one in own})
        cells = np.nan_to_num(np.stack([one.given for one in own]))
        total = cells.sum(0) / repetitions
        others = total - np.diag(np.diag(total))
        shares = cost_shares(others.sum(1))
        for j, name in enumerate(names):
            receivers = [i for i in range(len(names)) if i != j]
            rng = np.random.default_rng([seed, j])
            low, high = _bootstrap(cells[:, j, receivers] / repetitions, rng)
            gave = Interval(float(others[j].sum()), low, high)
            received = float(others[:, j].sum())
            found.append(Contribution(name, names, gave, received, float(shares[j])))
    return found


def _bootstrap(cells: Matrix, rng: np.random.Generator) -> tuple[float, float]:
    """Return the ends of the interval of a sum over rounds (rows) and receivers (columns)."""
    rounds, receivers = cells.shape
    drawn = rng.multinomial(rounds, [1 / rounds] * rounds, RESAMPLES) @ cells
    chosen = rng.multinomial(receivers, [1 / receivers] * receivers, RESAMPLES)
    low, high = np.percentile((drawn * chosen).sum(1), CONFIDENCE_ENDS)
    return float(low), float(high)


def cost_shares(gave: Matrix) -> Matrix:
    """Return shares of a coalition's costs: who gives more pays less.

    A member that gave nothing, or less, pays 1/(m − 1) of the costs, and one that gave everything
    pays nothing. Where nobody gave anything, all pay alike. What a member receives does not count,
    since its own validation data would tell that, and so it could choose what it pays.

    Examples
    --------
    >>> cost_shares(np.array([3.0, 1.0, -2.0])).tolist()
    [0.125, 0.375, 0.5]
    """
    positive = np.maximum(gave, 0)
    if not positive.sum():
        return np.full(len(gave), 1 / len(gave))
    return np.asarray((1 - positive / positive.sum()) / (len(gave) - 1))


def ledger_csv(found: Sequence[Contribution]) -> bytes:
    """Return a ``ledger.csv``; coalitions are members joined by ``;``."""
    rows = []
    for one in found:
        numbers = (one.gave.value, one.gave.low, one.gave.high, one.received, one.share_of_costs)
        rows.append((one.participant, ";".join(one.coalition), *(f"{x:.6g}" for x in numbers)))
    return csv_bytes(COLUMNS, rows)

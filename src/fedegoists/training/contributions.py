"""What each member gave to the others in training, with intervals, and a ledger for sharing costs.

A member's validation data never counts for what it gives: only the others' do.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedegoists.files import csv_bytes
from fedegoists.learning.estimates import Interval
from fedegoists.methods.recorded_silos import RoundContributions
from fedegoists.methods.shapley_values import Matrix

RESAMPLES = 1000
CONFIDENCE_ENDS = (2.5, 97.5)
COLUMNS = (
    "participant",
    "coalition",
    "gave",
    "low",
    "high",
    "received",
    "share_of_costs",
    "left_out",
)


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
        over receivers and rounds. NaN if no other member was ever evaluated.
    received : float
        The decrease of its own validation loss that is due to the others' updates. In a coalition,
        all that is given is received. NaN if it was never evaluated.
    share_of_costs : float
        A proposal: (1 − its fraction of all that was given) / (members − 1).
    left_out : tuple of (str, int)
        Members of the coalition whose evaluation failed, and in how many rounds of all repetitions.
        These rounds do not count for what they received, nor for what others gave them.
    """

    participant: str
    coalition: tuple[str, ...]
    gave: Interval
    received: float
    share_of_costs: float
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def gave_nothing(self) -> bool:
        """Whether its contribution to the others is known, and clearly not positive."""
        return self.gave.high <= 0


def contributions(rounds: Sequence[RoundContributions], seed: int = 0) -> list[Contribution]:
    """Return the contributions of all members of the recorded coalitions.

    Rounds of the same coalition in several repetitions belong together. Receivers whose evaluation
    failed are left out of these rounds, and named.
    """
    together: dict[tuple[str, ...], list[RoundContributions]] = {}
    for one in rounds:
        together.setdefault(tuple(name.name for name in one.members), []).append(one)
    found: list[Contribution] = []
    for names, own in together.items():
        repetitions = len({one.members[0].repetition for one in own})
        cells = np.stack([one.given for one in own]) / repetitions
        failed = Counter(failure.participant.name for one in own for failure in one.left_out)
        left_out = tuple((name, failed[name]) for name in names if failed[name])
        gave = []
        for j in range(len(names)):
            receivers = [i for i in range(len(names)) if i != j]
            gave.append(_given(cells[:, j, receivers], np.random.default_rng([seed, j])))
        shares = cost_shares(np.array([one.value for one in gave]))
        for j, name in enumerate(names):
            received = _known_sum(np.delete(cells[:, :, j], j, axis=1))
            share = float(shares[j])
            found.append(Contribution(name, names, gave[j], received, share, left_out))
    return found


def _known_sum(cells: Matrix) -> float:
    """Return the sum of all cells but those that are NaN, or NaN if all are."""
    return math.nan if np.isnan(cells).all() else float(np.nansum(cells))


def _given(cells: Matrix, rng: np.random.Generator) -> Interval:
    """Return what was given in all rounds (rows) to all receivers (columns) that are known."""
    known = ~np.isnan(cells)
    if not known.any():
        return Interval(math.nan)
    # Rounds and receivers of which nothing is known are not drawn, since they would narrow the
    # interval towards zero.
    cells = cells[known.any(1)][:, known.any(0)]
    return Interval(_known_sum(cells), *_bootstrap(np.nan_to_num(cells), rng))


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
    pays nothing. Where nobody gave anything, all pay alike. Where it is not known of somebody what
    it gave (NaN), no share is known. What a member receives does not count,
    since its own validation data would tell that, and so it could choose what it pays.

    Examples
    --------
    >>> cost_shares(np.array([3.0, 1.0, -2.0])).tolist()
    [0.125, 0.375, 0.5]
    """
    if np.isnan(gave).any():
        return np.full(len(gave), np.nan)
    positive = np.maximum(gave, 0)
    if not positive.sum():
        return np.full(len(gave), 1 / len(gave))
    return np.asarray((1 - positive / positive.sum()) / (len(gave) - 1))


def ledger_csv(found: Sequence[Contribution]) -> bytes:
    """Return a ``ledger.csv``; coalitions are members joined by ``;``.

    The last column names receivers that are left out of some rounds, with the number of these.
    """
    rows = []
    for one in found:
        numbers = (one.gave.value, one.gave.low, one.gave.high, one.received, one.share_of_costs)
        left_out = ";".join(f"{name} ({rounds})" for name, rounds in one.left_out)
        told = (f"{number:.6g}" for number in numbers)
        rows.append((one.participant, ";".join(one.coalition), *told, left_out))
    return csv_bytes(COLUMNS, rows)

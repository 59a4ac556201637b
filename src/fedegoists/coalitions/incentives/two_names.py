"""One organisation under two names.

Both names give half of what the organisation gives, and compete with its competitors. Three ways
are tried: the two names compete, so that they sit in different coalitions; they do not; and they
also report a benefit from each other, so that neither seems to give nothing. Reported received
benefit is the organisation's own, or half of it. The organisation receives a benefit if one of its
names is together with the source; a source that is with both counts once.
"""

import math

import numpy as np

from fedegoists.coalitions.incentives.reporting import ReportOutcome, Temptation, Truth
from fedegoists.coalitions.welfare import utilities, welfare
from fedegoists.graphs import BenefitGraph, CompetitionGraph

WAYS = (("competing", True, False), ("independent", False, False), ("helping", False, True))
"""How the two names relate: the word for it, whether they compete, whether they report benefits."""

REPORTED = (1.0, 0.5)
"""The fraction of its received benefit that the organisation reports under each name."""


def duplicate_temptation(truth: Truth, i: int, deadline: float = math.inf) -> Temptation:
    """Return the most that participant i gains by taking part under two names."""
    outcomes = (
        _outcome(truth, i, word, competing, helping, fraction)
        for word, competing, helping in WAYS
        for fraction in REPORTED
    )
    everything = float(truth.benefit.weights[:, i].sum())
    return truth.best_until("duplicate", i, outcomes, everything, deadline)


def _outcome(
    truth: Truth, i: int, word: str, competing: bool, helping: bool, fraction: float
) -> ReportOutcome:
    n, true = truth.benefit.n, truth.benefit.weights
    weights = np.zeros((n + 1, n + 1))
    weights[:n, :n] = true
    weights[i, :n] = weights[n, :n] = true[i] / 2
    weights[:n, i] = weights[:n, n] = true[:, i] * fraction
    weights[i, n] = weights[n, i] = (float(true[:, i].max()) or 1.0) if helping else 0.0
    rivals = np.zeros((n + 1, n + 1), dtype=np.bool_)
    rivals[:n, :n] = truth.competition.matrix
    rivals[n, :n] = rivals[:n, n] = truth.competition.matrix[i]
    rivals[i, n] = rivals[n, i] = competing
    names = (*truth.names, _second_name(truth.names, i))
    partition = truth.decide(
        BenefitGraph(weights, names), CompetitionGraph.from_numpy(rivals, names)
    )
    company = {k for group in partition if i in group or n in group for k in group} - {i, n}
    received = float(true[sorted(company), i].sum())
    # The organisation is wherever one of its names is; the others receive from both halves.
    given = weights.copy()
    given[:, [i, n]] = 0.0
    others = welfare(given, partition)
    before = truth.welfare - float(utilities(true, truth.partition)[i])
    way = f"two {word} names, each reporting {'all' if fraction == 1 else 'half'} of the benefit"
    return ReportOutcome(received, before - others, way, partition)


def _second_name(names: tuple[str, ...], i: int) -> str:
    """Return a name for the second half that nobody has."""
    name = f"{names[i]} 2"
    while name in names:
        name += " 2"
    return name

"""Invented and hidden competitors, and what a named competitor takes from the others.

A participant names one more competitor, or does not name one of its own. A hidden competitor counts
as a gain only where the two end in different coalitions: otherwise the liar would hand its data to
its competitor.
"""

import math
from collections.abc import Iterator

from fedegoists.coalitions.incentives.reporting import ReportOutcome, Temptation, Truth
from fedegoists.coalitions.welfare import utilities, welfare


def invented(truth: Truth, i: int) -> Iterator[ReportOutcome]:
    """Yield the outcome of each competitor that participant i could invent."""
    own, names = truth.competition.matrix[i], truth.names
    for j in range(len(names)):
        if j != i and not own[j]:
            more = truth.competition.changed([(names[i], names[j])], [])
            partition = truth.decide(truth.benefit, more)
            yield truth.outcome(i, partition, f"competition with {names[j]}")


def hidden(truth: Truth, i: int) -> Iterator[ReportOutcome]:
    """Yield the outcome of each competitor that participant i could hide, if it stays apart."""
    own, names = truth.competition.matrix[i], truth.names
    for j in range(len(names)):
        if own[j]:
            fewer = truth.competition.changed([], [(names[i], names[j])])
            partition = truth.decide(truth.benefit, fewer)
            outcome = truth.outcome(i, partition, f"no competition with {names[j]}")
            if not any(own[k] for k in outcome.home_of(i)):
                yield outcome


def competitor_temptations(
    truth: Truth, i: int, deadline: float = math.inf
) -> tuple[Temptation, Temptation]:
    """Return the most that i gains by inventing one competitor, and by hiding one."""
    highest = float(truth.highest[i])
    return (
        truth.best_until("invent", i, invented(truth, i), highest, deadline),
        truth.best_until("hide", i, hidden(truth, i), highest, deadline),
    )


def price_of_names(truth: Truth, i: int) -> float:
    """Return what the competitors that i names, or that name i, take from all others.

    It is the welfare of the others without these pairs less their welfare with them. Under method
    ``best``, a participant that pays this price for what it names never gains by an invented
    competitor: with it the total welfare cannot rise, so the liar gains no more than the others
    lose, and that is what the price rises by.
    """
    own, names = truth.competition.matrix[i], truth.names
    pairs = [(names[i], names[j]) for j in range(len(names)) if own[j]]
    if not pairs:
        return 0.0
    partition = truth.decide(truth.benefit, truth.competition.changed([], pairs))
    weights = truth.benefit.weights
    without = welfare(weights, partition) - float(utilities(weights, partition)[i])
    return without - (truth.welfare - float(truth.utilities[i]))


def priced_gain(truth: Truth, i: int, outcome: ReportOutcome) -> float:
    """Return what i gains by an outcome if what the others lose is withheld from it.

    What is withheld is at most all that it receives, so that nobody falls below being alone.
    """
    kept = max(outcome.utility - max(outcome.others_lose, 0.0), 0.0)
    return kept - float(truth.utilities[i])

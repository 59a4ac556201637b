"""What explanations say about expected gains: in the units of the metric, with standard errors."""

from collections.abc import Sequence

from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.value_principles import Judge, RiskyCoalition
from fedegoists.graphs.coalition_values import DEFAULT_CONFIDENCE


def in_units(amount: float, unit: str, *, digits: str = ".3g") -> str:
    """Return an amount with its unit, if that has a name.

    Examples
    --------
    >>> in_units(0.0214, "AUC"), in_units(2.0, "")
    ('0.0214 AUC', '2')
    """
    return f"{amount:{digits}} {unit}".rstrip()


def judge_of(formation: Formation) -> Judge:
    """Return the checker for the coalition values of a formation."""
    assert formation.values is not None
    confidence = formation.confidence or DEFAULT_CONFIDENCE
    return Judge(formation.values, formation.competition, confidence, formation.fewest_members)


def gains_together(formation: Formation, a: str, b: str) -> str:
    """Return what two members of a coalition add to each other's expected gain."""
    judge, home = judge_of(formation), formation.coalition_of(a)
    return f"{_added(judge, home, a, b)}, and {_added(judge, home, b, a)}"


def _added(judge: Judge, home: Coalition, receiver: str, giver: str) -> str:
    """Return how a member changes the expected gain of another."""
    without = [name for name in home if name != giver]
    before, after = judge.gains(without)[receiver], judge.gains(home)[receiver]
    error, unit = judge.errors(home)[receiver], judge.values.unit
    if abs(after - before) <= judge.least:
        return f"adding {giver} leaves {receiver}'s expected gain at {in_units(after, unit)}"
    verb = "raises" if after > before else "lowers"
    return (
        f"adding {giver} {verb} {receiver}'s expected gain from {before + 0.0:.3g} to "
        f"{in_units(after, unit)} (± {error:.2g})"
    )


def value_obstacle(formation: Formation, group: Sequence[str], where: str) -> str | None:
    """Return how a coalition without competitors would break a rule; None if it would not.

    `where` names the coalition in the sentence, such as ``there``.
    """
    judge, coalition = judge_of(formation), tuple(group)
    unit = judge.values.unit
    for rider in judge.free_riders(coalition):
        amount = in_units(rider.amount, unit, digits="+.3g")
        if rider.missing == "incoming":
            return f"{rider.participant} would gain nothing {where}: {amount} expected"
        return (
            f"{rider.participant} would give nothing {where}: the others' total gain would change "
            f"by {amount}"
        )
    for member in judge.unlikely(coalition):
        if isinstance(member, RiskyCoalition):
            return (
                f"{member.participant} might ride free {where}: nobody does with probability "
                f"{member.probability:.2g} or more, and {member.confidence:g} is demanded"
            )
        return (
            f"{member.participant} would gain {where} with probability {member.probability:.2g}, "
            f"and {member.confidence:g} is demanded"
        )
    return None


def expected_gain(formation: Formation, name: str, group: Sequence[str]) -> str:
    """Return the expected gain of a member of a coalition, with its standard error."""
    judge = judge_of(formation)
    gain, error = judge.gains(group)[name], judge.errors(group)[name]
    return f"{gain:+.3g} ± {in_units(error, judge.values.unit, digits='.2g')}"

"""Explanations: why two participants are, or are not, in the same coalition.

An explanation is for the manager only, never for a participant: it names competitors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedegoists.coalitions.array_types import Partition
from fedegoists.coalitions.formation import Formation, check_formation, positions
from fedegoists.coalitions.principles import Coalition, conflicts, free_riders
from fedegoists.coalitions.value_explanation import (
    expected_gain,
    gains_together,
    in_units,
    value_obstacle,
)
from fedegoists.coalitions.welfare import utilities_by, welfare_by, welfare_change_by
from fedegoists.errors import SettingsError

MOST_REASONS = 3
"""Coalitions for which it is said why a participant that is alone is not in them."""


@dataclass(frozen=True)
class Alternative:
    """Another arrangement that was checked.

    Attributes
    ----------
    change, impossible : str
        The change in words, and the words that it is impossible.
    obstacle : str or None
        How it would break a principle; None if it would be valid.
    welfare_change : float
        By how much the total benefit would rise or fall.
    """

    change: str
    impossible: str
    obstacle: str | None
    welfare_change: float


@dataclass(frozen=True)
class Explanation:
    """Whether two participants are together, one sentence on why, and the alternatives checked."""

    a: str
    b: str
    together: bool
    sentence: str
    alternatives: tuple[Alternative, ...] = ()

    def __str__(self) -> str:
        return self.sentence


def explain(formation: Formation, a: str, b: str) -> Explanation:
    """Explain in a sentence why two participants are together or apart.

    The reasons come from real alternatives: one of the two joins the other's coalition, or the two
    coalitions unite. Each is checked against the principles and valued.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], ["North", "South", "East"])
    >>> competition = CompetitionGraph([("South", "East")], benefit.participants)
    >>> formation = form(benefit, competition)
    >>> print(explain(formation, "South", "East"))
    South and East compete, so nothing of one may reach the other.
    >>> print(explain(formation, "North", "East"))
    North and East are apart because East cannot join North's coalition (South there competes with \
East) and North pairing up with East instead would not raise the total benefit.
    """
    check_formation(formation)
    a, b = formation.name_of(a), formation.name_of(b)
    home_a, home_b = formation.coalition_of(a), formation.coalition_of(b)
    if a == b:
        raise SettingsError(f"{a!r} was given twice; name two different participants")
    if home_a == home_b:
        return Explanation(a, b, True, _why_together(formation, a, b))
    if formation.competition.competes(a, b):
        sentence = f"{a} and {b} compete, so nothing of one may reach the other."
        return Explanation(a, b, False, sentence)
    if len(home_a) == len(home_b) == 1:
        checked = [_moved(formation, a, b)]
    else:
        checked = [_moved(formation, b, a), _moved(formation, a, b)]
        if len(home_a) > 1 and len(home_b) > 1:
            checked.append(_united(formation, home_a, home_b))
    sentence = f"{a} and {b} are apart{_because(formation, checked)}."
    return Explanation(a, b, False, sentence, tuple(checked))


def explain_alone(formation: Formation, name: str) -> Explanation:
    """Explain why a participant is alone: what keeps it out of the coalitions best for it.

    Examples
    --------
    VA would gain from Cleveland, which would gain nothing in return:

    >>> from fedegoists import CompetitionGraph, CurveValues, form
    >>> rates = [[0, 0.5], [0, 0]]
    >>> values = CurveValues([300, 200], [0.01, 0.06], rates, ["Cleveland", "VA"], unit="AUC")
    >>> formation = form(values, CompetitionGraph([], values.participants))
    >>> print(explain_alone(formation, "VA"))
    VA is alone because VA cannot pair up with Cleveland (Cleveland would gain nothing there: +0 \
AUC expected; VA itself would gain +0.0484 ± 0 AUC).
    """
    check_formation(formation)
    name = formation.name_of(name)
    if len(formation.coalition_of(name)) > 1:
        raise SettingsError(f"{name!r} is in a coalition with others; ask about two participants")
    others = [group for group in formation.coalitions if group != (name,)]
    if not others:
        return Explanation(name, "", False, f"{name} is the only participant.")
    received = {group: _received(formation, name, group) for group in others}
    best = sorted(others, key=lambda group: -received[group])[:MOST_REASONS]
    checked = [_moved(formation, name, group[0]) for group in best]
    sentence = f"{name} is alone{_because(formation, checked)}."
    return Explanation(name, "", False, sentence, tuple(checked))


def _received(formation: Formation, name: str, group: Coalition) -> float:
    """Return what a participant would receive in a coalition; nothing beside a competitor."""
    if any(formation.competition.competes(name, other) for other in group):
        return 0.0
    (rows,) = positions([(*group, name)], formation.participants)
    received = utilities_by(formation.benefits, [rows])
    return float(received[rows[-1]])


def _because(formation: Formation, checked: Sequence[Alternative]) -> str:
    """Return the alternatives that are no improvement as reasons, and then the others."""
    reasons = [_reason(one, formation) for one in checked if not _improves(one)]
    missed = [_reason(one, formation) for one in checked if _improves(one)]
    text = " because " + _listed(reasons) if reasons else ""
    if missed:
        text += ("," if reasons else "") + " although " + _listed(missed) + _not_tried(formation)
    return text


def _why_together(formation: Formation, a: str, b: str) -> str:
    if formation.values is not None:
        return f"{a} and {b} train together: {gains_together(formation, a, b)}."
    gives = formation.benefit.benefit
    there, back = gives(a, b), gives(b, a)
    if there and back:
        return (
            f"{a} and {b} train together: {a} benefits {b} ({there:.3g}) and {b} benefits {a} "
            f"({back:.3g})."
        )
    if not there and not back:
        return (
            f"{a} and {b} are in one coalition without using each other's data: "
            f"{_partners(formation, a)}, {_partners(formation, b)}."
        )
    giver, taker, weight = (a, b, there) if there else (b, a, back)
    return (
        f"{giver} and {taker} train together: {giver} benefits {taker} ({weight:.3g}), and "
        f"{_partners(formation, giver, giving=False)}."
    )


def _partners(formation: Formation, name: str, *, giving: bool = True) -> str:
    home = formation.coalition_of(name)
    gives = formation.benefit.benefit
    sources = [other for other in home if gives(other, name)]
    targets = [other for other in home if gives(name, other)]
    text = f"{name} is benefited by {_listed(sources)}"
    return f"{text} and benefits {_listed(targets)}" if giving else text


def _moved(formation: Formation, mover: str, host: str) -> Alternative:
    """Check the alternative in which one participant joins another's coalition."""
    home, target = formation.coalition_of(mover), formation.coalition_of(host)
    joined = _ordered(formation, (*target, mover))
    left = tuple(name for name in home if name != mover)
    pair = len(joined) == 2
    return Alternative(
        change=(
            (f"{mover} pairing up with {host}" if pair else f"{mover} joining {host}'s coalition")
            + (" instead" if left else "")
        ),
        impossible=(
            f"{mover} cannot pair up with {host}"
            if pair
            else f"{mover} cannot join {host}'s coalition"
        ),
        obstacle=_obstacle(formation, mover, host, joined, left),
        welfare_change=_change(formation, (joined, left), (target, home)),
    )


def _obstacle(
    formation: Formation, mover: str, host: str, joined: Coalition, left: Coalition
) -> str | None:
    """Return how the coalition joined, or the one left behind, would break a principle."""
    for name in joined:
        if formation.competition.competes(name, mover):
            return f"{name} there competes with {mover}"
    if formation.values is not None:
        return _value_obstacle(formation, mover, joined, left)
    for rider in free_riders(_relations(formation, joined)[0], [joined]):
        name, gives_nothing = rider.participant, rider.missing == "outgoing"
        if len(joined) == 2:
            other = mover if name == host else host
            giver, taker = (name, other) if gives_nothing else (other, name)
            return f"no benefit of {giver} to {taker} is known"
        if gives_nothing:
            return f"no benefit of {name} to anybody there is known"
        return f"no benefit of anybody there to {name} is known"
    for rider in free_riders(_relations(formation, left)[0], [left]):
        what = "nobody to benefit" if rider.missing == "outgoing" else "nobody to benefit from"
        return f"{rider.participant} would be left with {what} in its coalition without {mover}"
    return _too_small(formation, mover, joined, left)


def _value_obstacle(
    formation: Formation, mover: str, joined: Coalition, left: Coalition
) -> str | None:
    """Return how the coalition joined, or the one left behind, would break a rule of gains."""
    there = value_obstacle(formation, joined, "there")
    if there is not None and there.startswith(f"{mover} would gain"):
        return there
    if there is not None:
        return f"{there}; {mover} itself would gain {expected_gain(formation, mover, joined)}"
    behind = value_obstacle(formation, left, f"in its coalition without {mover}")
    return behind or _too_small(formation, mover, joined, left)


def _too_small(formation: Formation, mover: str, joined: Coalition, left: Coalition) -> str | None:
    """Return which of two coalitions would have fewer members than demanded."""
    least = formation.fewest_members
    if len(joined) < least:
        return f"a coalition of {_in_words(len(joined))} is not allowed here: at least {least}"
    if 1 < len(left) < least:
        return (
            f"a coalition of {_in_words(len(left))} would be left without {mover}, which is not "
            f"allowed here: at least {least}"
        )
    return None


def _united(formation: Formation, one: Coalition, other: Coalition) -> Alternative:
    """Check the alternative in which two coalitions of two or more unite."""
    union = _ordered(formation, (*one, *other))
    rivals = next(iter(conflicts(*_relations(formation, union), [union])), None)
    obstacle = f"{rivals.source} and {rivals.target} compete" if rivals else None
    if obstacle is None and formation.values is not None:
        obstacle = value_obstacle(formation, union, "there")
    return Alternative(
        change="uniting the two coalitions",
        impossible="the two coalitions cannot unite",
        obstacle=obstacle,
        welfare_change=_change(formation, (union,), (one, other)),
    )


def _ordered(formation: Formation, group: Coalition) -> Coalition:
    place = {name: k for k, name in enumerate(formation.participants)}
    return tuple(sorted(group, key=place.__getitem__))


def _relations(
    formation: Formation, group: Coalition
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the benefit edges and the competition inside a group, as the checker takes them."""
    inside = set(group)
    gives: dict[str, set[str]] = {name: set() for name in group}
    for source, target, _ in formation.benefit.restricted_to(group).edges():
        gives[source].add(target)
    rivals = {name: inside.intersection(formation.competition.competitors(name)) for name in group}
    return gives, rivals


def _change(
    formation: Formation, after: tuple[Coalition, ...], before: tuple[Coalition, ...]
) -> float:
    benefits = formation.benefits
    old, new = (positions(groups, formation.participants) for groups in (before, after))
    change = welfare_change_by(benefits, old, new)
    # Weights such as 0.1 are not exact: what is left of 0.1 + 0.4 − 0.3 − 0.2 is no difference.
    return 0.0 if abs(change) <= 1e-12 * (_size(formation, old) + _size(formation, new)) else change


def _size(formation: Formation, groups: Partition) -> float:
    return abs(welfare_by(formation.benefits, groups))


def _improves(alternative: Alternative) -> bool:
    return alternative.obstacle is None and alternative.welfare_change > 0


def _reason(alternative: Alternative, formation: Formation) -> str:
    if alternative.obstacle is not None:
        return f"{alternative.impossible} ({alternative.obstacle})"
    change = alternative.welfare_change
    values = formation.values
    total = "total benefit" if values is None else "total gain"
    if change == 0:
        return f"{alternative.change} would not raise the {total}"
    verb = "raise" if change > 0 else "lower"
    amount = in_units(abs(change), "" if values is None else values.unit)
    return f"{alternative.change} would {verb} the {total} by {amount}"


def _not_tried(formation: Formation) -> str:
    if formation.objective == "fair":
        return " (the objective 'fair' puts the lowest benefits before the total)"
    if formation.objective == "participation":
        return " (the objective 'participation' puts the number of participants before the total)"
    if formation.method == "best":
        return " (a longer time limit may find this)"
    return f" (method '{formation.method}' does not look for this; method 'best' does)"


def _in_words(number: int) -> str:
    words = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[number - 2] if number < 10 else str(number)


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)

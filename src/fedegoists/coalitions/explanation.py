"""Why two participants are, or are not, in the same coalition.

An explanation is for the manager: it names competitors. Nothing here is for a participant's eyes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedegoists.coalitions.formation import Formation, positions
from fedegoists.coalitions.principles import Coalition, conflicts, free_riders
from fedegoists.coalitions.welfare import welfare, welfare_change
from fedegoists.errors import SettingsError

__all__ = ["Alternative", "Explanation", "explain"]


@dataclass(frozen=True)
class Alternative:
    """Another way to arrange things that was checked.

    Attributes
    ----------
    change, impossible : str
        What would be done, and how to say that it cannot be.
    obstacle : str or None
        The principle it would break and how; None if it would be valid.
    welfare_change : float
        By how much the total benefit would rise or fall.
    """

    change: str
    impossible: str
    obstacle: str | None
    welfare_change: float


@dataclass(frozen=True)
class Explanation:
    """Whether two participants are together, one sentence on why, and what was checked for it."""

    a: str
    b: str
    together: bool
    sentence: str
    alternatives: tuple[Alternative, ...] = ()

    def __str__(self) -> str:
        return self.sentence


def explain(formation: Formation, a: str, b: str) -> Explanation:
    """Say in a sentence why two participants are together or apart.

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
    reasons = [_reason(alternative) for alternative in checked if not _improves(alternative)]
    missed = [_reason(alternative) for alternative in checked if _improves(alternative)]
    sentence = f"{a} and {b} are apart"
    if reasons:
        sentence += " because " + _listed(reasons)
    if missed:
        sentence += (
            ("," if reasons else "") + " although " + _listed(missed) + _not_tried(formation)
        )
    return Explanation(a, b, False, sentence + ".", tuple(checked))


def _why_together(formation: Formation, a: str, b: str) -> str:
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
    """Check what would happen if one participant joined another's coalition."""
    order = _order(formation)
    home = formation.coalition_of(mover)
    joined = tuple(sorted((*formation.coalition_of(host), mover), key=order))
    left = tuple(name for name in home if name != mover)
    alone = len(joined) == 2
    obstacle = None
    for name in joined:
        if formation.competition.competes(name, mover):
            obstacle = f"{name} there competes with {mover}"
            break
    else:
        for name, missing in _free_riders(formation, joined):
            giver, taker = (name, host) if missing == "outgoing" else (host, name)
            if alone:
                giver = mover if name == host and missing == "incoming" else giver
                taker = mover if name == host and missing == "outgoing" else taker
                obstacle = f"{taker} would not benefit from {giver}"
            elif missing == "outgoing":
                obstacle = f"nobody there would benefit from {name}"
            else:
                obstacle = f"{name} would not benefit from anybody there"
            break
        else:
            for name, missing in _free_riders(formation, left):
                what = "nobody to benefit" if missing == "outgoing" else "nobody to benefit from"
                obstacle = f"{name} would be left with {what} in its coalition without {mover}"
                break
    instead = " instead" if left else ""
    return Alternative(
        change=(
            f"{mover} pairing up with {host}{instead}"
            if alone
            else f"{mover} joining {host}'s coalition{instead}"
        ),
        impossible=(
            f"{mover} cannot pair up with {host}"
            if alone
            else f"{mover} cannot join {host}'s coalition"
        ),
        obstacle=obstacle,
        welfare_change=_change(formation, (joined, left), (formation.coalition_of(host), home)),
    )


def _united(formation: Formation, one: Coalition, other: Coalition) -> Alternative:
    """Check what would happen if two coalitions of two or more united."""
    union = tuple(sorted((*one, *other), key=_order(formation)))
    rivals = next(iter(_conflicts(formation, union)), None)
    return Alternative(
        change="uniting the two coalitions",
        impossible="the two coalitions cannot unite",
        obstacle=f"{rivals[0]} and {rivals[1]} compete" if rivals else None,
        welfare_change=_change(formation, (union,), (one, other)),
    )


def _conflicts(formation: Formation, group: Coalition) -> list[tuple[str, str]]:
    """Return the competitors in a group, by the checker of Principle 2."""
    gives, rivals = _relations(formation, group)
    return [(c.source, c.target) for c in conflicts(gives, rivals, [group])]


def _free_riders(formation: Formation, group: Coalition) -> list[tuple[str, str]]:
    """Return the free riders in a group, by the checker of Principle 1."""
    gives, _ = _relations(formation, group)
    return [(f.participant, f.missing) for f in free_riders(gives, [group])] if group else []


def _relations(
    formation: Formation, group: Coalition
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    place = _order(formation)
    rows = [place(name) for name in group]
    edges = formation.benefit.weights[np.ix_(rows, rows)] > 0
    rival = formation.competition.matrix[np.ix_(rows, rows)]
    names = np.array(group, dtype=object)
    gives = {name: set(names[edges[k]].tolist()) for k, name in enumerate(group)}
    rivals = {name: set(names[rival[k]].tolist()) for k, name in enumerate(group)}
    return gives, rivals


def _change(
    formation: Formation, after: tuple[Coalition, ...], before: tuple[Coalition, ...]
) -> float:
    weights = formation.benefit.weights
    old, new = (positions(groups, formation.participants) for groups in (before, after))
    change = welfare_change(weights, old, new)
    # Weights such as 0.1 are not exact: what is left of 0.1 + 0.4 − 0.3 − 0.2 is no difference.
    return 0.0 if abs(change) <= 1e-12 * (welfare(weights, old) + welfare(weights, new)) else change


def _order(formation: Formation) -> Callable[[str], int]:
    return {name: k for k, name in enumerate(formation.participants)}.__getitem__


def _improves(alternative: Alternative) -> bool:
    return alternative.obstacle is None and alternative.welfare_change > 0


def _reason(alternative: Alternative) -> str:
    if alternative.obstacle is not None:
        return f"{alternative.impossible} ({alternative.obstacle})"
    change = alternative.welfare_change
    if change == 0:
        return f"{alternative.change} would not raise the total benefit"
    verb = "raise" if change > 0 else "lower"
    return f"{alternative.change} would {verb} the total benefit by {abs(change):.3g}"


def _not_tried(formation: Formation) -> str:
    if formation.method == "best":
        return " (a longer time limit may find this)"
    return f" (method '{formation.method}' does not look for this; method 'best' does)"


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)

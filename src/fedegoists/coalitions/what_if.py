"""What would change if the competition changed, or somebody joined or left."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedegoists.coalitions.contraction import rows_as_bitsets
from fedegoists.coalitions.formation import Coalition, Formation
from fedegoists.coalitions.forming import DEFAULT_TIME_LIMIT, form, form_best, form_stable
from fedegoists.errors import SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.participants import index_of

__all__ = ["Newcomer", "WhatIf", "moved_between", "what_if", "without_rivals"]


@dataclass(frozen=True)
class Newcomer:
    """Somebody who joins: whom it benefits, who benefits it, and with whom it competes."""

    name: str
    gives: Mapping[str, float] = field(default_factory=dict)
    receives: Mapping[str, float] = field(default_factory=dict)
    competes: Sequence[str] = ()


@dataclass(frozen=True)
class WhatIf:
    """A formation before and after a change.

    Attributes
    ----------
    before, after : Formation
        The two formations.
    moved : tuple of str
        The fewest participants whose moves turn the old coalitions into the new ones.
    utility_changes : mapping
        What everybody who was there before and is there after gains or loses.
    """

    before: Formation
    after: Formation
    moved: tuple[str, ...]
    utility_changes: Mapping[str, float]

    @property
    def joined(self) -> tuple[str, ...]:
        """Who is new."""
        known = set(self.before.participants)
        return tuple(name for name in self.after.participants if name not in known)

    @property
    def left(self) -> tuple[str, ...]:
        """Who is gone."""
        present = set(self.after.participants)
        return tuple(name for name in self.before.participants if name not in present)

    @property
    def welfare_change(self) -> float:
        """By how much the total benefit rises or falls."""
        return self.after.welfare - self.before.welfare

    def __str__(self) -> str:
        lines = [f"{name} leaves." for name in self.left]
        lines += [f"{name} joins {_company(self.after, name)}." for name in self.joined]
        lines += [f"{name} moves to {_company(self.after, name)}." for name in self.moved]
        if not self.moved:
            lines.append("Nobody moves.")
        changes = sorted(self.utility_changes.items(), key=lambda item: -abs(item[1]))
        lines += [
            f"{name} {'gains' if change > 0 else 'loses'} {abs(change):.3g}."
            for name, change in changes
            if change
        ]
        sign = "rises" if self.welfare_change > 0 else "falls"
        lines.append(
            f"The total benefit {sign} by {abs(self.welfare_change):.3g} to "
            f"{self.after.welfare:.6g}."
            if self.welfare_change
            else f"The total benefit stays {self.after.welfare:.6g}."
        )
        if self.after is not self.before and not (self.before.optimal and self.after.optimal):
            lines.append(
                "Before and after are not both proven to be the best possible, so part of the "
                "difference may be due to the search."
            )
        return "\n".join(lines)


def what_if(
    formation: Formation,
    *,
    add: Iterable[tuple[str, str]] = (),
    remove: Iterable[tuple[str, str]] = (),
    joins: Iterable[Newcomer] = (),
    leaves: Iterable[str] = (),
    time_limit: float | None = None,
) -> WhatIf:
    """Form the coalitions again after a change, moving as few participants as possible.

    Parameters
    ----------
    add, remove : pairs of names
        Competition that arises or ends.
    joins : newcomers
        Who joins; newcomers may refer to one another.
    leaves : names
        Who leaves.
    time_limit : float, optional
        As for `form`.

    Returns
    -------
    WhatIf
        The new formation by the same method, and the difference. Among equally good formations one
        that moves few is chosen; with method ``best`` and a proven optimum, one that moves fewest.

    Examples
    --------
    >>> from fedegoists import BenefitGraph, CompetitionGraph, form
    >>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], ["North", "South", "East"])
    >>> formation = form(benefit, CompetitionGraph([], benefit.participants))
    >>> print(what_if(formation, add=[("South", "East")]))
    East moves to a coalition of its own.
    East loses 3.
    North loses 2.
    South loses 1.
    The total benefit falls by 6 to 3.
    """
    joins = tuple(joins)
    leaves = tuple(formation.name_of(name) for name in leaves)
    stay = [name for name in formation.participants if name not in set(leaves)]
    benefit, competition = formation.benefit, formation.competition
    if leaves:
        benefit, competition = benefit.restricted_to(stay), competition.restricted_to(stay)
    if joins:
        benefit = _changed_benefit(benefit, joins)
    competition = _changed_competition(competition, benefit.participants, add, remove, joins)
    if (benefit, competition) == (formation.benefit, formation.competition):
        after = formation
    else:
        after = _formed(formation, benefit, competition, time_limit)
    changes = {
        name: after.utilities[name] - formation.utilities[name]
        for name in benefit.participants
        if name in formation.utilities
    }
    largest = max(formation.benefit.weights.max(initial=0.0), benefit.weights.max(initial=0.0))
    return WhatIf(
        before=formation,
        after=after,
        moved=moved_between(formation.coalitions, after.coalitions),
        utility_changes={
            name: 0.0 if abs(change) <= 1e-12 * largest else change
            for name, change in changes.items()
        },
    )


def moved_between(before: Sequence[Coalition], after: Sequence[Coalition]) -> tuple[str, ...]:
    """Return the fewest participants to move between two partitions, of those who are in both.

    Old and new coalitions are paired so that as many as possible stay where they are.

    Examples
    --------
    >>> moved_between([("a", "b", "c"), ("d",)], [("a", "b"), ("c", "d")])
    ('c',)
    """
    import networkx as nx

    new_home = {name: j for j, group in enumerate(after) for name in group}
    shared = Counter(
        (i, new_home[name]) for i, group in enumerate(before) for name in group if name in new_home
    )
    # Coalitions that share members with one other only, as most do, need no search for partners.
    partner = {}
    olds, news = Counter(i for i, _ in shared), Counter(j for _, j in shared)
    graph: nx.Graph[tuple[str, int]] = nx.Graph()
    for (i, j), weight in sorted(shared.items()):
        if olds[i] == news[j] == 1:
            partner[i] = j
        else:
            graph.add_edge(("old", i), ("new", j), weight=weight)
    for one, other in nx.max_weight_matching(graph):
        old_node, new_node = sorted((one, other), reverse=True)
        partner[old_node[1]] = new_node[1]
    return tuple(
        name
        for i, group in enumerate(before)
        for name in group
        if name in new_home and partner.get(i) != new_home[name]
    )


def _formed(
    old: Formation,
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    time_limit: float | None,
) -> Formation:
    """Form again by the same method, with the old coalitions as one of the starts."""
    if old.method in ("published", "cliques"):
        return form(benefit, competition, old.method, time_limit=time_limit)
    position = {name: k for k, name in enumerate(benefit.participants)}
    kept = [[position[name] for name in g if name in position] for g in old.coalitions]
    kept = [group for group in kept if group]
    start = _repaired(kept, benefit, competition)
    if old.method == "stable":
        candidates = [form_stable(benefit, competition, start), form_stable(benefit, competition)]
    else:
        limit = DEFAULT_TIME_LIMIT if time_limit is None else time_limit
        candidates = [
            form_best(
                benefit,
                competition,
                old.seed,
                limit,
                keep=kept,
                starts=[start],
                objective=old.objective,
            )
        ]
    top = max(candidate.welfare for candidate in candidates)
    good = [c for c in candidates if math.isclose(c.welfare, top, rel_tol=1e-12)]
    return min(good, key=lambda c: len(moved_between(old.coalitions, c.coalitions)))


def _repaired(
    partition: list[list[int]], benefit: BenefitGraph, competition: CompetitionGraph
) -> list[list[int]]:
    """Return the partition with as many put on their own as both principles demand."""
    rivals = rows_as_bitsets(competition.matrix)
    result = [[k] for k in sorted(set(range(benefit.n)).difference(*partition))]
    for group in partition:
        result += without_rivals(group, benefit.weights, rivals)
    return sorted(result)


def without_rivals(
    group: Sequence[int], weights: npt.NDArray[np.float64], rivals: Sequence[int]
) -> list[list[int]]:
    """Return a coalition's parts, with as many on their own as both principles demand.

    Parameters
    ----------
    rivals : sequence of int
        By participant: with whom it competes, as a bitset.
    """
    result = []
    members = np.array(group)
    inside = weights[np.ix_(members, members)]
    edges, value = inside > 0, inside + inside.T
    competes = np.array([[rivals[a] >> b & 1 for b in group] for a in group], dtype=bool)
    left = np.arange(len(members))
    while len(left) > 1:
        among = np.ix_(left, left)
        opponents = competes[among].sum(axis=1)
        idle = ~(edges[among].any(axis=0) & edges[among].any(axis=1))
        if opponents.any():
            # Who competes with most of the others goes; of those, who matters least to the rest.
            out = int(np.lexsort((value[among].sum(axis=1), -opponents))[0])
        elif idle.any():
            out = int(idle.argmax())
        else:
            break
        result.append([int(members[left[out]])])
        left = np.delete(left, out)
    result.append(members[left].tolist())
    return result


def _changed_benefit(benefit: BenefitGraph, joins: Sequence[Newcomer]) -> BenefitGraph:
    names = (*benefit.participants, *(newcomer.name for newcomer in joins))
    edges = list(benefit.edges())
    for newcomer in joins:
        edges += [(newcomer.name, target, weight) for target, weight in newcomer.gives.items()]
        edges += [(source, newcomer.name, weight) for source, weight in newcomer.receives.items()]
    return BenefitGraph.from_edges(edges, names)


def _changed_competition(
    competition: CompetitionGraph,
    participants: Sequence[str],
    add: Iterable[tuple[str, str]],
    remove: Iterable[tuple[str, str]],
    joins: Sequence[Newcomer],
) -> CompetitionGraph:
    def named(pair: tuple[str, str]) -> tuple[str, str]:
        one, other = (participants[index_of(p, participants, "competition")] for p in pair)
        return one, other

    pairs = {frozenset(pair): pair for pair in competition.pairs}
    for one, other in map(named, remove):
        if pairs.pop(frozenset((one, other)), None) is None:
            raise SettingsError(f"{one!r} and {other!r} do not compete; nothing to remove")
    for newcomer in joins:
        rivals = [named((newcomer.name, rival))[1] for rival in newcomer.competes]
        for rival, times in Counter(rivals).items():
            if times > 1:
                raise SettingsError(
                    f"{rival!r} stands twice among those {newcomer.name!r} competes with; keep one"
                )
    added = [*add, *((newcomer.name, rival) for newcomer in joins for rival in newcomer.competes)]
    for pair in map(named, added):
        if frozenset(pair) in pairs:
            raise SettingsError(f"{pair[0]!r} and {pair[1]!r} compete already; nothing to add")
        pairs[frozenset(pair)] = pair
    return CompetitionGraph(pairs.values(), participants)


def _company(formation: Formation, name: str) -> str:
    others = [other for other in formation.coalition_of(name) if other != name]
    return f"the coalition of {', '.join(others)}" if others else "a coalition of its own"

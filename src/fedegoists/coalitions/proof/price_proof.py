"""Upper bounds on the welfare, proven by prices and confirmed in exact arithmetic.

A certificate states a price p_i ≥ 0 for each participant of a component, possibly a price p_t ≥ 0
for some triples of participants, and a bound. With v(S) the sum of the benefits in a coalition S,

    slack(S) = Σ_{i ∈ S} p_i + Σ p_t over the triples t with two or three members in S − v(S);

for one participant alone this is its price. The coalitions of a partition contain each participant
once, and at most one of them contains two or three of a triple, so

    Σ slack(S) over the coalitions of a partition ≤ (sum of all prices) − (its welfare).

A certificate may also state prices y ≥ 0 of linear inequalities Σ a_ij x_ij ≤ b that the pairs of
every valid partition satisfy (`pair_inequalities`). Then v(S) is the sum over its pairs of what
these prices leave of their value, v_ij − Σ y a_ij, and Σ y b counts among the prices.

If no valid coalition has a negative slack, a partition whose welfare exceeds the bound therefore
consists of coalitions whose slacks sum to less than *the gap*, the sum of all prices minus the
bound. The check lists every coalition with a slack below the gap and confirms that these cannot be
put together to such a partition. The better the prices, the shorter the list: it is empty for
prices that sum to the bound, and has a few dozen entries for the prices of the linear program.

All numbers are integers: the benefits and prices are multiples of a power of two. Branches of the
listing are compared in numbers rounded outwards, and what is listed is valued exactly. The work is
counted in steps, and a proof that needs more than `MOST_STEPS` is no proof, so whether a
certificate holds depends on no clock but the caller's deadline. This module uses no code of the
search that finds the prices.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from fedegoists.coalitions.principles import Coalition, named
from fedegoists.coalitions.proof.coalition_listing import (
    Allowance,
    ComponentLinks,
    Listing,
    ProofError,
    Set,
    as_set,
    combined,
    competing_groups,
    participants_of,
)
from fedegoists.coalitions.proof.pair_inequalities import (
    NoInequalityError,
    SquareInequality,
    read_inequality,
)
from fedegoists.graphs import BenefitGraph, CompetitionGraph

MOST_STEPS = 12_000_000
"""Steps to confirm the prices of one component, about 0.3 microseconds each. A branch of the
listing takes one and the square of the participants, see `ENTRIES_PER_STEP`."""

PRICE_BITS = 64
"""Prices are rounded up to so many binary digits beyond those of the benefits."""

STEPS_PER_TERM = 8
"""So many terms of inequalities count as a step."""

MOST_PAIRS = 1_000_000
"""Inequalities over more pairs without benefits would fill the memory."""

MOST_EXHAUSTED = 14
"""Components of up to this many participants need no prices: all their partitions are compared."""


class BetterPartitionError(ProofError):
    """A valid partition of the component has a higher welfare than the bound.

    Attributes
    ----------
    welfare : Fraction
        The welfare of this partition.
    """

    def __init__(self, welfare: Fraction) -> None:
        super().__init__(f"a valid partition of its participants reaches {float(welfare):.9g}")
        self.welfare = welfare


@dataclass(frozen=True)
class PriceProof:
    """Prices that prove an upper bound on the welfare within one component.

    Attributes
    ----------
    members : tuple of str
        The participants of the component.
    prices : tuple of float
        A price for each member.
    at_most : float
        The bound: no valid partition of the members has a higher welfare.
    triples : tuple of (str, str, str)
        Triples of members that have a price, too.
    triple_prices : tuple of float
        Their prices.
    rows : tuple of str
        Inequalities over pairs, as `to_text` of `pair_inequalities` writes them; positions, and the
        numbers of a square, are in the order of the members.
    row_prices : tuple of float
        Their prices.
    """

    members: tuple[str, ...]
    prices: tuple[float, ...]
    at_most: float
    triples: tuple[tuple[str, str, str], ...] = ()
    triple_prices: tuple[float, ...] = ()
    rows: tuple[str, ...] = ()
    row_prices: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the entry of a certificate."""
        proof: dict[str, object] = {
            "members": self.members,
            "prices": self.prices,
            "at_most": self.at_most,
        }
        if self.triples:
            priced = zip(self.triples, self.triple_prices, strict=True)
            proof["triples"] = [[*triple, price] for triple, price in priced]
        if self.rows:
            proof |= {"rows": self.rows, "row_prices": self.row_prices}
        return proof


# The bound on the whole consortium ----------------------------------------------------------------


LAST_PLACES = 4
"""A sum that is stated as a float may be off by so many units in its last place."""

CLOSED = Fraction(1, 10**14)
"""The coalitions reach the bound of a component if they lack at most this fraction of it. What they
lack in the others counts in full, however much the whole consortium is worth."""


def last_places(stated: float) -> Fraction:
    """Return by how much a stated sum may be off by rounding."""
    return LAST_PLACES * Fraction(math.ulp(stated))


def states_optimum(bound: float, welfare: float) -> bool:
    """Whether an upper bound, as it is stated, says that no partition exceeds a welfare.

    Examples
    --------
    >>> states_optimum(3.0, 3.0), states_optimum(3.0 + 1e-12, 3.0)
    (True, False)
    """
    return Fraction(bound) <= Fraction(welfare) + last_places(bound)


@dataclass(frozen=True)
class ComponentBound:
    """The upper bound of one component, in units of the consortium.

    Attributes
    ----------
    members : tuple of str
        The participants of the component.
    own : int
        The welfare of the certified coalitions in it.
    bound : int
        No valid partition of its members has a higher welfare.
    known : int
        The highest welfare that a valid partition of its members is known to have.
    """

    members: tuple[str, ...]
    own: int
    bound: int
    known: int

    @property
    def closed(self) -> bool:
        """Whether the coalitions reach the bound, up to rounding."""
        return self.bound - self.own <= CLOSED * self.bound

    @property
    def counted(self) -> int:
        """The summand in the upper bound of the consortium."""
        return self.own if self.closed else self.bound


@dataclass(frozen=True)
class ProvenBound:
    """An upper bound on the welfare of any valid partition, component by component.

    Attributes
    ----------
    parts : tuple of ComponentBound
        The bounds of the components.
    unit : int
        Their numbers are multiples of 1 / unit.
    rejected : tuple of str
        The entries of the proof that do not hold, and why.
    searched : bool
        Whether a search, and not a proof, bounds a component.
    """

    parts: tuple[ComponentBound, ...]
    unit: int = 1
    rejected: tuple[str, ...] = ()
    searched: bool = False

    @property
    def welfare(self) -> Fraction:
        """The bound, exactly: the welfare of the coalitions and the gaps that are not closed."""
        return Fraction(sum(part.counted for part in self.parts), self.unit)

    @property
    def known(self) -> Fraction:
        """The highest welfare that a valid partition is known to have.

        As in the bound, a closed component counts with what the coalitions reach: what rounding
        may take from it refutes nothing.
        """
        reached = sum(part.own if part.closed else part.known for part in self.parts)
        return Fraction(reached, self.unit)

    @property
    def closed(self) -> bool:
        """Whether the coalitions reach the bound of every component, up to rounding."""
        return all(part.closed for part in self.parts)


@dataclass(frozen=True)
class SearchedBounds:
    """What a search found: the best coalitions, and an upper bound for each component."""

    coalitions: tuple[Coalition, ...]
    bounds: Mapping[frozenset[str], float]


def proven_bound(
    benefit: BenefitGraph,
    competition: CompetitionGraph,
    coalitions: Iterable[Coalition],
    proof: Iterable[PriceProof],
    *,
    fewest_members: int = 1,
    enough: float = 0.0,
    deadline: float = math.inf,
    search: Callable[[], SearchedBounds] | None = None,
) -> ProvenBound:
    """Derive an upper bound on the welfare from a proof, without any search for partitions.

    The participants fall into components that cannot gain from one another, each with its own
    bound: by the prices of the proof, by comparing all partitions, or the plain bound.

    Parameters
    ----------
    coalitions : iterable of coalitions
        Valid coalitions; a component in which they reach the plain bound needs no proof.
    proof : iterable of PriceProof
        At most one entry for each component.
    enough : float
        The bound to be confirmed; no lower one needs to be derived. Where it is the welfare of the
        coalitions, the bound of every component is derived.
    deadline : float
        When to give up, by `time.perf_counter`.
    search : callable, optional
        Bounds components that nothing else bounds low enough; called at most once.

    Raises
    ------
    TooLateError
        If the deadline passes.

    Examples
    --------
    a and b help each other, and so do b and c, but a and c compete:

    >>> edges = [("a", "b", 2), ("b", "a", 1), ("b", "c", 1), ("c", "b", 1)]
    >>> benefit = BenefitGraph.from_edges(edges, ["a", "b", "c"])
    >>> competition = CompetitionGraph([("a", "c")], ["a", "b", "c"])
    >>> proven = proven_bound(benefit, competition, [("a", "b"), ("c",)], [])
    >>> proven.welfare, proven.closed
    (Fraction(3, 1), True)
    """
    consortium = ExactConsortium(benefit, competition, fewest_members)
    entries: dict[frozenset[str], PriceProof] = {}
    rejected = []
    for entry in proof:
        if frozenset(entry.members) in entries:
            rejected.append(f"{_about(entry)}: it is there twice")
        entries[frozenset(entry.members)] = entry
    unit = consortium.unit
    components = list(consortium.components())
    own = _welfare_inside(components, coalitions)
    parts = [
        ComponentBound(component.members, reached, component.plain_bound(), reached)
        for component, reached in zip(components, own, strict=True)
    ]
    total = sum(part.counted for part in parts)
    highest = math.floor((Fraction(enough) + last_places(enough)) * unit)
    # Beside a large benefit of others, rounding could hide what a component lacks.
    every = states_optimum(enough, sum(own) / unit)
    for k, component in enumerate(components):
        found = entries.pop(frozenset(component.members), None)
        if parts[k].closed or (total <= highest and not every):
            continue
        total -= parts[k].counted
        if found is not None:
            try:
                component.confirm(found, Allowance(MOST_STEPS, deadline))
                bound = component.in_units(found.at_most)
                parts[k] = replace(parts[k], bound=min(parts[k].bound, bound))
            except ProofError as error:
                rejected.append(f"{_about(found)}: {error}")
        elif len(component.members) <= MOST_EXHAUSTED:
            best = component.highest_welfare(Allowance(deadline=deadline))
            parts[k] = replace(parts[k], bound=best, known=best)
        total += parts[k].counted
    rejected += [f"{_about(entry)}: they are no component" for entry in entries.values()]
    searched = False
    unsure = any(not part.closed and part.known < part.bound for part in parts)
    if search is not None and unsure and (total > highest or every):
        again = search()
        searched = True
        better = _welfare_inside(components, again.coalitions)
        for k, part in enumerate(parts):
            limit = again.bounds.get(frozenset(part.members))
            if limit is not None and not part.closed:
                bound = max(min(part.bound, math.ceil(Fraction(limit) * unit)), better[k])
                parts[k] = replace(part, bound=bound, known=max(part.known, better[k]))
    return ProvenBound(tuple(parts), unit, tuple(rejected), searched)


def _welfare_inside(
    components: Sequence["Component"], coalitions: Iterable[Coalition]
) -> list[int]:
    """Return the welfare of coalitions by component, in units of the consortium."""
    home = {name: k for k, group in enumerate(coalitions) for name in group}
    return [
        component.welfare([home.get(name, -k) for k, name in enumerate(component.members, 1)])
        for component in components
    ]


def _about(entry: PriceProof) -> str:
    first = entry.members[0] if entry.members else "nobody"
    return f"the proof about {first} and {max(len(entry.members) - 1, 0)} others"


class ExactConsortium:
    """Both graphs with integer benefits, in units of 1 / `unit`."""

    def __init__(
        self, benefit: BenefitGraph, competition: CompetitionGraph, fewest_members: int
    ) -> None:
        self.names = benefit.participants
        self.fewest_members = fewest_members
        place = {name: k for k, name in enumerate(self.names)}
        n = len(self.names)
        self.rivals: list[set[int]] = [set() for _ in range(n)]
        for a, b in competition.pairs:
            self.rivals[place[a]].add(place[b])
            self.rivals[place[b]].add(place[a])
        edges = [
            (place[source], place[target], weight.as_integer_ratio())
            for source, target, weight in benefit.edges()
        ]
        # Every benefit is an integer, and so is half of it. Prices are rounded up to integers; the
        # factor makes that too little to matter.
        self.unit = (1 << PRICE_BITS) * max((ratio[1] for _, _, ratio in edges), default=1)
        self.gives: list[dict[int, int]] = [{} for _ in range(n)]
        self.takes: list[dict[int, int]] = [{} for _ in range(n)]
        for j, i, (top, bottom) in edges:
            if i not in self.rivals[j]:  # what competitors could give each other never counts
                self.gives[j][i] = self.takes[i][j] = top * (self.unit // bottom)
        self.group = competing_groups(self.rivals)

    def components(self) -> "Iterable[Component]":
        """Yield the sets of participants that cannot gain from one another.

        A participant without a giver or a taker among its independents is alone in every valid
        partition; leaving it out may deprive others of theirs. A coalition across two sets without
        benefits between them could be split without loss. Where more than two members are demanded,
        its parts could be too small; then only competition separates.
        """
        alive = set(range(len(self.names))) - self._without_enough()
        doubtful = list(alive)
        while doubtful:
            i = doubtful.pop()
            if i in alive and (alive.isdisjoint(self.gives[i]) or alive.isdisjoint(self.takes[i])):
                alive.discard(i)
                doubtful += [*self.gives[i], *self.takes[i]]
        while alive:
            found = [min(alive)]
            alive.discard(found[0])
            for i in found:  # grows while it is walked: breadth first
                if self.fewest_members > 2:
                    near = alive - self.rivals[i]
                else:
                    near = alive.intersection((*self.gives[i], *self.takes[i]))
                alive -= near
                found += sorted(near)
            yield Component(self, sorted(found))

    def _without_enough(self) -> set[int]:
        """Return the participants with independents in too few groups for the members demanded."""
        if self.fewest_members <= 2:
            return set()
        sizes = Counter(self.group)
        alone = set()
        for i, rivals in enumerate(self.rivals):
            met = Counter(self.group[j] for j in rivals)
            excluded = sum(count == sizes[group] for group, count in met.items())
            if len(sizes) - excluded < self.fewest_members:
                alone.add(i)
        return alone


# The bound on one component -----------------------------------------------------------------------


class Component:
    """Participants that have to be judged together, numbered from 0."""

    def __init__(self, consortium: ExactConsortium, rows: Sequence[int]) -> None:
        self.members = tuple(consortium.names[i] for i in rows)
        self._unit = consortium.unit
        place = {i: k for k, i in enumerate(rows)}
        self._wide_group = [consortium.group[i] for i in rows]
        self._takes = [_renumbered(consortium.takes[i], place) for i in rows]
        self._gives = [_renumbered(consortium.gives[i], place) for i in rows]
        self._rivals = [{place[j] for j in consortium.rivals[i] if j in place} for i in rows]
        self._links = ComponentLinks(
            rivals=[as_set(rivals) for rivals in self._rivals],
            givers=[as_set(takes) for takes in self._takes],
            takers=[as_set(gives) for gives in self._gives],
            fewest_members=consortium.fewest_members,
        )

    @property
    def _n(self) -> int:
        return len(self.members)

    def in_units(self, value: float) -> int:
        """Return a number in units of the component, rounded down."""
        return math.floor(Fraction(value) * self._unit)

    def welfare(self, labels: Sequence[int]) -> int:
        """Return the sum of the benefits between members with the same label."""
        return sum(
            benefit
            for i, taken in enumerate(self._takes)
            for j, benefit in taken.items()
            if labels[i] == labels[j]
        )

    def plain_prices(self) -> list[float]:
        """Return prices that are high enough for every coalition: half of the plain bound."""
        halves = (sum(self._largest(self._mutual(i))) for i in range(self._n))
        return [float(Fraction(half, 2 * self._unit)) for half in halves]

    def plain_bound(self) -> int:
        """Return a bound for which nothing needs to be proven.

        A coalition has at most one member of each group of competitors. So a participant receives
        at most the largest benefit from each group, gives at most the largest to each, and the same
        holds for both together, which count every benefit twice.
        """
        received, given, both = 0, 0, 0
        for i in range(self._n):
            received += sum(self._largest(self._takes[i]))
            given += sum(self._largest(self._gives[i]))
            both += sum(self._largest(self._mutual(i)))
        return min(received, given, both // 2)

    def _largest(self, benefits: Mapping[int, int]) -> Iterable[int]:
        largest: dict[int, int] = {}
        for j, benefit in benefits.items():
            group = self._wide_group[j]
            largest[group] = max(largest.get(group, 0), benefit)
        return largest.values()

    def _mutual(self, i: int) -> dict[int, int]:
        """Return what a participant and each other one give each other."""
        mutual = dict(self._takes[i])
        for j, benefit in self._gives[i].items():
            mutual[j] = mutual.get(j, 0) + benefit
        return mutual

    def highest_welfare(self, allowance: Allowance) -> int:
        """Return the highest welfare of a valid partition, by comparing all of them.

        The last participant of a set is alone or in one of the valid coalitions of which it is the
        last; the rest is a smaller set.
        """
        coalitions: list[list[tuple[Set, int]]] = []
        sets = [(0, 0)]  # all sets of pairwise independent participants, with their values
        for i in range(self._n):
            allowance.spend()
            joined = [
                (members | 1 << i, value + sum(mutual.get(j, 0) for j in participants_of(members)))
                for mutual in (self._mutual(i),)
                for members, value in sets
                if not members & self._links.rivals[i]
            ]
            coalitions.append([one for one in joined if self._links.is_valid(one[0])])
            sets += joined
        best: dict[Set, int] = {0: 0}

        def solve(left: Set) -> int:
            if left not in best:
                allowance.spend()
                last = left.bit_length() - 1
                highest = solve(left ^ 1 << last)
                for members, value in coalitions[last]:
                    if not members & ~left:
                        highest = max(highest, value + solve(left ^ members))
                best[left] = highest
            return best[left]

        return solve((1 << self._n) - 1)

    def confirm(self, proof: PriceProof, allowance: Allowance) -> None:
        """Confirm that the prices prove the bound.

        Raises
        ------
        BetterPartitionError
            If a valid partition has a higher welfare than the bound.
        ProofError
            If the prices prove nothing, or not within the steps allowed.
        """
        prices, triples = self._exact_prices(proof)
        values, right_sides = self._remaining_values(proof, allowance)
        bound = self.in_units(proof.at_most)
        # The slacks of a partition with a welfare above the bound sum to less than this.
        gap = sum(prices) + sum(price for _, price in triples) + right_sides - bound
        group = competing_groups(self._rivals)
        listing = Listing(self._links, group, values, prices, triples, max(gap, 0), allowance)
        listed = listing.coalitions()
        negative = next((members for members, slack in listed if slack < 0), None)
        if negative is not None:
            names = named([self.members[i] for i in participants_of(negative)])
            raise ProofError(f"the coalition {names} is worth more than its prices")
        if gap <= 0:
            return
        for found in combined(listed, prices, gap, allowance):
            labels = list(range(self._n))
            for members in found:
                for i in participants_of(members):
                    labels[i] = self._n + members
            # Triples that no coalition pays for, and inequalities that are not tight, are not
            # among the slacks, so compare again.
            if self.welfare(labels) > bound:
                raise BetterPartitionError(Fraction(self.welfare(labels), self._unit))

    def _exact_prices(self, proof: PriceProof) -> tuple[list[int], list[tuple[Set, int]]]:
        """Return the prices as integers, rounded up, and the triples as sets with their prices."""
        place = {name: k for k, name in enumerate(self.members)}
        stated = (*proof.prices, *proof.triple_prices, *proof.row_prices, proof.at_most)
        if not all(math.isfinite(price) and price >= 0 for price in stated):
            raise ProofError("a price is negative or not a number")
        if len(proof.prices) != len(proof.members) or len(proof.members) != self._n:
            raise ProofError("it has not one price for each participant")
        prices = [0] * self._n
        for name, price in zip(proof.members, proof.prices, strict=True):
            prices[place[name]] = math.ceil(Fraction(price) * self._unit)
        triples = []
        for names, price in zip(proof.triples, proof.triple_prices, strict=True):
            if len(set(names)) != 3 or not place.keys() >= set(names):
                raise ProofError("a triple is not three of its participants")
            rounded = math.ceil(Fraction(price) * self._unit)
            triples.append((as_set(place[name] for name in names), rounded))
        return prices, triples

    def _remaining_values(
        self, proof: PriceProof, allowance: Allowance
    ) -> tuple[list[dict[int, int]], int]:
        """Return what prices of inequalities leave of the values of pairs, and what these cost.

        A value may be negative. Pairs of competitors are in no coalition, so theirs do not matter.
        """
        values = [self._mutual(i) for i in range(self._n)]
        if len(proof.rows) != len(proof.row_prices):
            raise ProofError("it has not one price for each inequality")
        place = {name: k for k, name in enumerate(self.members)}
        number = [place[name] for name in proof.members]
        cost = 0
        pairs = 0
        for text, stated in zip(proof.rows, proof.row_prices, strict=True):
            try:
                row = read_inequality(text, number)
            except NoInequalityError as error:
                raise ProofError(str(error)) from None
            helps = 0
            if isinstance(row, SquareInequality):
                terms = row.terms()
            else:
                givers, takers = self._takes[row.centre], self._gives[row.centre]
                terms = row.terms(givers, takers)
                helps = {"givers": len(givers), "takers": len(takers)}.get(row.kind, 0)
            allowance.spend(1 + (row.size + helps) // STEPS_PER_TERM)
            price = self.in_units(stated)
            cost += price * row.right_side
            for (i, j), factor in terms:
                if j not in self._rivals[i]:
                    pairs += j not in values[i]
                    if pairs > MOST_PAIRS:
                        raise ProofError(
                            f"its inequalities are over more than {MOST_PAIRS:,} pairs"
                        )
                    values[i][j] = values[j][i] = values[i].get(j, 0) - price * factor
        return values, cost


def _renumbered(benefits: Mapping[int, int], place: Mapping[int, int]) -> dict[int, int]:
    return {place[j]: benefit for j, benefit in benefits.items() if j in place}

"""Probabilities under uncertain benefits, derived again from the estimates and their errors.

The formulas are those of `fedegoists.graphs.uncertain_benefits`, programmed once more with plain
numbers and none of its code, so that an error there cannot hide itself in a certificate.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist

Edge = tuple[str, str]

STANDARD = NormalDist()
LISTED_ABOVE = STANDARD.inv_cdf(0.95)
WORD = (1 << 64) - 1


class Likelihoods:
    """What estimates say: for each pair a probability that the benefit is real, and its size."""

    def __init__(
        self,
        participants: Sequence[str],
        estimates: Mapping[Edge, tuple[float, float]],
        null_share: float | None = None,
    ) -> None:
        self.participants = tuple(participants)
        self.estimates = dict(estimates)
        pairs = len(participants) * (len(participants) - 1)
        listed = {edge: one for edge, one in estimates.items() if _listed(*one)}
        derived = 0.5
        if pairs:
            derived = min((pairs - len(listed) + 1) / (0.95 * pairs), pairs / (pairs + 1))
        self.derived_share = derived
        self.null_share = derived if null_share is None else null_share
        self.real = {edge: self._probability(*one) for edge, one in listed.items()}
        self.promised = {edge: p * estimates[edge][0] for edge, p in self.real.items()}

    def _probability(self, weight: float, error: float) -> float:
        if error == 0:
            return 1.0
        z = weight / error
        slab = (1 - self.null_share) * STANDARD.cdf(z) / 6
        spike = self.null_share * STANDARD.pdf(z)
        return slab / (slab + spike)

    def after_measuring(self, edge: Edge, *, real: bool) -> "Likelihoods":
        """Return what would be known if a benefit were measured: it is as estimated, or none."""
        known = {**self.estimates, edge: (self.estimates[edge][0] if real else 0.0, 0.0)}
        return Likelihoods(self.participants, known, self.null_share)

    def receives(self, member: str, group: Iterable[str]) -> float:
        """Return the probability that a member receives a benefit from another."""
        return 1 - math.prod(1 - self.real.get((other, member), 0.0) for other in group)

    def gives(self, member: str, group: Iterable[str]) -> float:
        """Return the probability that a member gives a benefit to another."""
        return 1 - math.prod(1 - self.real.get((member, other), 0.0) for other in group)

    def safety(self, group: Sequence[str]) -> float:
        """Return a lower bound on the probability that nobody rides free in a coalition."""
        if len(group) < 2:
            return 1.0
        return math.prod(self.receives(one, group) * self.gives(one, group) for one in group)

    def expected(self, group: Iterable[str]) -> float:
        """Return the promised benefits inside a coalition."""
        inside = set(group)
        return math.fsum(w for (j, i), w in self.promised.items() if j in inside and i in inside)

    def scenarios(self, count: int, seed: int) -> Iterator[dict[Edge, float]]:
        """Draw the scenarios of a certificate: the benefits that are real, with their sizes."""
        n = len(self.participants)
        place = {name: k for k, name in enumerate(self.participants)}
        for k in range(count):
            drawn = {}
            for (source, target), probability in self.real.items():
                number = 2 * (k * n * n + place[source] * n + place[target])
                if _fraction(number, seed) < probability:
                    size = self._size((source, target), _fraction(number + 1, seed))
                    drawn[source, target] = size
            yield drawn

    def _size(self, edge: Edge, fraction: float) -> float:
        weight, error = self.estimates[edge]
        if error == 0:
            return weight
        low = STANDARD.cdf(-weight / error)
        size = weight + error * STANDARD.inv_cdf(low + fraction * (1 - 2 * low))
        return max(size, 1e-9 * weight)


def welfare_without_riders(
    benefits: Mapping[Edge, float], coalitions: Iterable[Sequence[str]]
) -> float:
    """Return the benefits inside the coalitions in which nobody rides free."""
    home = {name: k for k, group in enumerate(coalitions) for name in group}
    members = {k: {name for name, own in home.items() if own == k} for k in set(home.values())}
    inside: dict[int, list[tuple[Edge, float]]] = {k: [] for k in members}
    for (source, target), weight in benefits.items():
        if home[source] == home[target]:
            inside[home[source]].append(((source, target), weight))
    total = []
    for k, edges in inside.items():
        givers, takers = {edge[0] for edge, _ in edges}, {edge[1] for edge, _ in edges}
        if givers == takers == members[k]:
            total += [weight for _, weight in edges]
    return math.fsum(total)


def _listed(weight: float, error: float) -> bool:
    return weight > 0 if error == 0 else weight / error > LISTED_ABOVE


def _fraction(number: int, seed: int) -> float:
    """Return one number of the generator SplitMix64 as a fraction between 0 and 1."""
    x = ((number + 1) * 0x9E3779B97F4A7C15 + seed) & WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    x ^= x >> 31
    return ((x >> 11) + 0.5) / 2**53

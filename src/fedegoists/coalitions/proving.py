"""Proving an upper bound: from the prices of a search to a proof that anybody can confirm.

The search ends with prices (`exact.column_generation`). Here they are turned into the entries of a
certificate, each confirmed by the independent checker (`proof.price_proof`) before it is stated, so
that an honest certificate cannot fail its check.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.proof.price_proof import (
    MOST_EXHAUSTED,
    MOST_STEPS,
    Allowance,
    BetterPartitionError,
    Component,
    ExactConsortium,
    PriceProof,
    ProofError,
)

OPEN_STEPS = MOST_STEPS // 2
"""Steps to confirm prices that leave a gap anyway."""

MIXTURES = (0.08, 0.16, 0.3, 0.5)
"""Prices of the search can take too long to confirm. Mixed with this fraction of the prices of the
plain bound, they prove less, and faster."""

MOST_RAISES = 20
"""Partitions better than the bound only by rounding, each of which raises it."""


def prove(formation: Formation) -> tuple[PriceProof, ...]:
    """Return a proof of the formation's upper bound, or of one as low as can be confirmed.

    Components that the checker exhausts, or in which the coalitions reach the plain bound, need no
    entry.
    """
    consortium = ExactConsortium(formation.benefit, formation.competition, formation.fewest_members)
    by_member = {name: part for part in formation.prices for name in part.members}
    proof = []
    for component in consortium.components():
        part = by_member.get(component.members[0])
        if part is None or len(component.members) <= MOST_EXHAUSTED:
            continue
        reached = _reached(component, formation.coalitions)
        if component.plain_bound() <= reached:
            continue
        part = _restricted(part, component.members)
        closed = component.in_units(part.at_most * (1 - 1e-9)) <= reached
        entry = _confirmed(component, part, MOST_STEPS if closed else OPEN_STEPS)
        if entry is not None:
            proof.append(entry)
    return tuple(proof)


def _reached(component: Component, coalitions: Iterable[Coalition]) -> int:
    home = {name: k for k, group in enumerate(coalitions) for name in group}
    return component.welfare([home[name] for name in component.members])


def _restricted(part: PriceProof, members: Sequence[str]) -> PriceProof:
    """Return the prices of some participants: they are as high for all coalitions of these."""
    price = dict(zip(part.members, part.prices, strict=True))
    inside = set(members)
    triples = [
        (triple, own)
        for triple, own in zip(part.triples, part.triple_prices, strict=True)
        if own > 0 and inside.issuperset(triple)
    ]
    return replace(
        part,
        members=tuple(members),
        prices=tuple(price.get(name, 0.0) for name in members),
        triples=tuple(triple for triple, _ in triples),
        triple_prices=tuple(own for _, own in triples),
    )


def _confirmed(component: Component, part: PriceProof, steps: int) -> PriceProof | None:
    """Return prices and a bound that the checker confirms, or None."""
    entry = _raised(component, part, steps)
    if entry is not None:
        return entry
    safe = component.plain_prices()
    for mixture in MIXTURES:
        mixed = [
            (1 - mixture) * price + mixture * plain
            for price, plain in zip(part.prices, safe, strict=True)
        ]
        own = [(1 - mixture) * price for price in part.triple_prices]
        total = math.fsum((*mixed, *own)) * (1 + 2.0**-50)
        entry = replace(part, prices=tuple(mixed), triple_prices=tuple(own), at_most=total)
        try:
            component.confirm(entry, Allowance(OPEN_STEPS))
        except ProofError:
            continue
        return entry
    return None


def _raised(component: Component, part: PriceProof, steps: int) -> PriceProof | None:
    """Return the prices with the bound of the search, or the lowest above it that they prove.

    The search may end with a partition that others exceed by less than its numbers are rounded.
    """
    entry = replace(part, at_most=math.nextafter(part.at_most, math.inf))
    for _ in range(MOST_RAISES):
        try:
            component.confirm(entry, Allowance(steps))
        except BetterPartitionError as better:
            entry = replace(entry, at_most=math.nextafter(float(better.welfare), math.inf))
        except ProofError:
            return None
        else:
            return entry
    return None

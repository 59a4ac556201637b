"""Proving an upper bound: from the prices of a search to a proof that anybody can confirm.

The search ends with prices: of participants and triples (`exact.column_generation`), and of
inequalities over pairs (`exact.pair_relaxation`). The first often prove the lower bound, and can
take long to confirm; the second are only added up. Each entry of a certificate is confirmed by both
checkers (`proof.price_proof`, `proof.check`) before it is stated, so that an honest certificate
cannot fail its check, and the lowest bound is stated that they confirm in few steps.
"""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact.best_partition import pair_prices, scaled_to_one
from fedegoists.coalitions.exact.solvers import has_solver
from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.proof import check
from fedegoists.coalitions.proof.coalition_listing import Allowance, ProofError
from fedegoists.coalitions.proof.price_proof import (
    MOST_EXHAUSTED,
    BetterPartitionError,
    Component,
    ExactConsortium,
    PriceProof,
)

PROOF_STEPS, CHECK_STEPS = 10_000_000, 40_000_000
"""Steps that a proof may take the package's checker and the stand-alone one: four seconds at most,
and less than one for most proofs of 50 participants."""

MIXTURES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""Prices of the search can take too long to confirm. Mixed with this fraction of the prices of the
plain bound, they prove less, and faster."""

EASED = (0.6, 0.3)
"""Where the search has proven more than its prices alone, confirming that can take too long. These
fractions of the way up to what the prices sum to are tried; the lower, the longer it takes."""

NEAR = 1e-9
"""A bound that is higher by at most this fraction is as good, where it is not reached."""

RELAXATION_SECONDS = 10.0
"""Work to find prices of pairs where the search did not need any, but its proof is too long."""

MOST_RAISES = 20
"""Partitions better than the bound only by rounding, each of which raises it."""


def prove(formation: Formation) -> tuple[PriceProof, ...]:
    """Return a proof of the formation's upper bound, or of one as low as can be confirmed.

    Components that the checker exhausts, or in which the coalitions reach the plain bound, need no
    entry.
    """
    consortium = ExactConsortium(formation.benefit, formation.competition, formation.fewest_members)
    stand_alone = None
    proof = []
    for component in consortium.components():
        parts = [one for one in formation.prices if component.members[0] in one.members]
        if not parts or len(component.members) <= MOST_EXHAUSTED:
            continue
        reached = component.welfare(_labels(component, formation.coalitions))
        plain = component.plain_bound()
        if plain <= reached or _no_lower(component, parts, plain, reached):
            continue
        stand_alone = stand_alone or _read_again(formation)
        entry = _Confirmed(component, stand_alone).lowest(parts, reached, formation)
        if entry is not None:
            proof.append(entry)
    return tuple(proof)


def _no_lower(component: Component, parts: Sequence[PriceProof], plain: int, reached: int) -> bool:
    """Whether the bounds of the search take next to nothing off the plain one."""
    bounds = [one.at_most for one in parts]
    bounds += [_summed(one).at_most for one in parts if not one.rows]
    lowest = component.in_units(min(bounds))
    whole = all(set(one.members) == set(component.members) for one in parts)
    return whole and plain - lowest <= NEAR * (plain - reached)


def _read_again(formation: Formation) -> check.BothGraphs:
    """Return the graphs as the stand-alone checker reads them from a certificate."""
    document = {
        "benefit": formation.benefit.to_dict(),
        "competition": formation.competition.to_dict(),
        "fewest_members": formation.fewest_members,
    }
    return check.BothGraphs(json.loads(json.dumps(document)))


def _labels(component: Component, coalitions: Iterable[Coalition]) -> list[int]:
    home = {name: k for k, group in enumerate(coalitions) for name in group}
    return [home[name] for name in component.members]


class _Confirmed:
    """Proofs for one component that both checkers confirm within the steps allowed."""

    def __init__(self, component: Component, stand_alone: check.BothGraphs) -> None:
        self._component = component
        self._stand_alone = stand_alone
        self._part = sum(1 << stand_alone.number[name] for name in component.members)

    def lowest(
        self, parts: Sequence[PriceProof], reached: int, formation: Formation
    ) -> PriceProof | None:
        """Return the lowest bound on the component that can be confirmed, or None."""
        component = self._component
        of_coalitions = [_restricted(one, component.members) for one in parts if not one.rows]
        of_pairs = [one for one in parts if one.rows and one.members == component.members]
        short = [self._holds(_summed(one)) for one in of_coalitions]
        found = [
            self._lowered(one) if fine else None
            for one, fine in zip(of_coalitions, short, strict=True)
        ]
        found += [self._raised(one) for one in of_pairs]
        closed = min(component.in_units(one.at_most * (1 - NEAR)) for one in parts) <= reached
        proven = any(
            one and component.in_units(one.at_most * (1 - NEAR)) <= reached for one in found
        )
        if not (of_pairs or proven or (found[0] and not closed)):
            found += [self._raised(one) for one in _relaxed(component, formation)]
        best = min((one for one in found if one), key=lambda one: one.at_most, default=None)
        for part, fine in () if proven else zip(of_coalitions, short, strict=True):
            better = self._eased(part, best) if fine else self._mixed(part, best)
            best = better or best
        return best

    def _holds(self, entry: PriceProof) -> bool:
        """Whether both checkers confirm an entry."""
        try:
            self._component.confirm(entry, Allowance(PROOF_STEPS))
        except ProofError:
            return False
        return self._holds_alone(entry)

    def _holds_alone(self, entry: PriceProof) -> bool:
        """Whether the stand-alone checker confirms an entry."""
        written = json.loads(json.dumps(entry.to_dict()))
        try:
            check.priced_bound(self._stand_alone, self._part, written, check.StepCount(CHECK_STEPS))
        except check.RefutedError:
            return False
        return True

    def _lowered(self, part: PriceProof) -> PriceProof | None:
        """Return the prices with the bound of the search, if it is lower than their sum.

        They are known to prove their sum.
        """
        summed = _summed(part)
        return summed if summed.at_most <= part.at_most else self._raised(part)

    def _raised(self, part: PriceProof) -> PriceProof | None:
        """Return the prices with the bound of the search, or the lowest above that they prove.

        The search may end with a partition that others exceed by less than its numbers are rounded.
        """
        entry = replace(part, at_most=math.nextafter(part.at_most, math.inf))
        for _ in range(MOST_RAISES):
            try:
                self._component.confirm(entry, Allowance(PROOF_STEPS))
            except BetterPartitionError as better:
                entry = replace(entry, at_most=math.nextafter(float(better.welfare), math.inf))
            except ProofError:
                return None
            else:
                return entry if self._holds_alone(entry) else None
        return None

    def _eased(self, part: PriceProof, best: PriceProof | None) -> PriceProof | None:
        """Return the prices with a bound between that of the search and their sum.

        They are known to prove their sum.
        """
        summed = _summed(part)
        if best is not None and best.at_most <= part.at_most * (1 + NEAR):
            return None
        confirmed = summed if best is None or summed.at_most < best.at_most else None
        for fraction in EASED:
            way_up = fraction * (summed.at_most - part.at_most)
            entry = replace(part, at_most=part.at_most + way_up)
            if best is not None and entry.at_most >= best.at_most:
                continue
            if not self._holds(entry):
                break
            confirmed = entry
        return confirmed

    def _mixed(self, part: PriceProof, best: PriceProof | None) -> PriceProof | None:
        """Mix in as little of the prices of the plain bound as makes the proof short enough.

        Where the least mixture is too long, and the largest is too, so are those between.
        """
        mixtures = [self._mixture(part, one) for one in MIXTURES]
        lower = [one for one in mixtures if best is None or one.at_most < best.at_most]
        if not lower:
            return None
        if self._holds(lower[0]):
            return lower[0]
        if len(lower) == 1 or not self._holds(mixtures[-1]):
            return None
        return next((one for one in lower[1:] if one is mixtures[-1] or self._holds(one)), None)

    def _mixture(self, part: PriceProof, mixture: float) -> PriceProof:
        """Return the prices with this fraction of those of the plain bound."""
        mixed = zip(part.prices, self._component.plain_prices(), strict=True)
        prices = tuple((1 - mixture) * price + mixture * plain for price, plain in mixed)
        triple_prices = tuple((1 - mixture) * price for price in part.triple_prices)
        return _summed(replace(part, prices=prices, triple_prices=triple_prices))


def _summed(part: PriceProof) -> PriceProof:
    """Return the prices with their sum as the bound: no coalitions have to be put together."""
    total = math.fsum((*part.prices, *part.triple_prices)) * (1 + 2.0**-50)
    return replace(part, at_most=total)


def _relaxed(component: Component, formation: Formation) -> list[PriceProof]:
    """Find prices of pairs now."""
    from fedegoists.coalitions.exact.pair_relaxation import MOST_PARTICIPANTS, PairRelaxation

    n = len(component.members)
    if n > MOST_PARTICIPANTS or not has_solver():
        return []
    benefit, names = formation.benefit, component.members
    rows = [benefit.participants.index(name) for name in names]
    rivals = formation.competition.matrix[np.ix_(rows, rows)]
    usable = np.where(rivals, 0.0, benefit.weights[np.ix_(rows, rows)])
    scaled, exponent, lost = scaled_to_one(usable)
    if lost > 0:
        return []
    effort = Effort(RELAXATION_SECONDS, time.perf_counter() + 2 * RELAXATION_SECONDS)
    relaxation = PairRelaxation(scaled + scaled.T, usable > 0, rivals, 0.0, effort)
    relaxation.run()
    found = pair_prices(relaxation, list(range(n)), exponent)
    return [
        PriceProof(
            names,
            tuple(found.prices),
            found.upper_bound,
            rows=found.rows,
            row_prices=found.row_prices,
        )
    ]


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

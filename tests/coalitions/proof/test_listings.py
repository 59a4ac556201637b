"""Both checkers list exactly the valid coalitions with a slack below the gap."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph
from fedegoists.coalitions.proof import check, coalition_listing
from fedegoists.coalitions.proof.coalition_listing import (
    Allowance,
    ComponentLinks,
    Listing,
    ProofError,
    combined,
    competing_groups,
)
from fedegoists.coalitions.proof.price_proof import ExactConsortium
from tests.instances import graphs

PRICE = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0, 1.5, 2.0])


def both_listings(benefit, competition, component, prices, triples, lowered, gap):
    """Return what each checker lists, as sets of (coalition, slack).

    `lowered` is what prices of inequalities take from the value of a pair, as a dictionary.
    """
    document = {"benefit": benefit.to_dict(), "competition": competition.to_dict()}
    alone = check.BothGraphs(json.loads(json.dumps(document)))
    values = [component._mutual(i) for i in range(len(component.members))]
    for (i, j), amount in lowered.items():
        if j not in component._rivals[i]:
            values[i][j] = values[j][i] = values[i].get(j, 0) - amount
    group_of = competing_groups(component._rivals)
    listing = Listing(component._links, group_of, values, prices, triples, gap, Allowance())
    package = listing.coalitions()
    number = [alone.number[name] for name in component.members]

    def placed(group):
        return sum(1 << number[k] for k in range(len(number)) if group >> k & 1)

    part = placed((1 << len(number)) - 1)
    listed = check.listed(
        alone,
        part,
        {number[i]: {number[j]: v for j, v in own.items()} for i, own in enumerate(values)},
        dict(zip(number, prices, strict=True)),
        [(placed(triple), price) for triple, price in triples],
        gap,
        check.StepCount(),
    )
    own = {(placed(group), slack) for group, slack in package}
    return own, {(group, slack) for slack, group in listed}, values, placed


def by_definition(component, prices, triples, values, gap, placed):
    """Try all sets of two or more."""
    found = set()
    n = len(prices)
    for size in range(2, n + 1):
        for some in itertools.combinations(range(n), size):
            group = sum(1 << i for i in some)
            pairs = list(itertools.combinations(some, 2))
            if any(j in component._rivals[i] for i, j in pairs) or not component._links.is_valid(
                group
            ):
                continue
            slack = sum(prices[i] for i in some) - sum(values[i].get(j, 0) for i, j in pairs)
            slack += sum(price for triple, price in triples if (triple & group).bit_count() > 1)
            if slack < gap:
                found.add((placed(group), slack))
    return found


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_nothing_is_forgotten_and_nothing_added(data):
    benefit, competition = data.draw(graphs(min_n=3, max_n=7))
    for component in ExactConsortium(benefit, competition, 1).components():
        n, unit = len(component.members), component._unit
        prices = [int(data.draw(PRICE) * unit) for _ in range(n)]
        triples = [
            (sum(1 << i for i in triple), int(data.draw(PRICE) * unit))
            for triple in itertools.combinations(range(n), 3)
            if data.draw(st.integers(0, 3)) == 0
        ]
        lowered = {
            pair: int(data.draw(st.sampled_from([-0.7, -0.1, 0.2, 1.0])) * unit)
            for pair in itertools.combinations(range(n), 2)
            if data.draw(st.integers(0, 3)) == 0
        }
        gap = int(data.draw(PRICE) * unit) + data.draw(st.sampled_from([0, 1]))
        package, alone, values, placed = both_listings(
            benefit, competition, component, prices, triples, lowered, gap
        )
        expected = by_definition(component, prices, triples, values, gap, placed)
        assert package == expected
        assert alone == expected


def test_a_slack_that_equals_the_gap_is_not_below_it():
    """a and b are worth 4 with prices of 2 and 3, so the slack of both is 1; a triple adds 5."""
    names = ["a", "b", "c"]
    pairs = [(one, other, 2) for one, other in itertools.permutations(names, 2)]
    benefit, rivals = BenefitGraph.from_edges(pairs, names), CompetitionGraph([("b", "c")], names)
    (component,) = ExactConsortium(benefit, rivals, 1).components()
    unit = component._unit
    prices = [2 * unit, 3 * unit, 9 * unit]
    for more, triples in ((0, []), (5, [(0b111, 5 * unit)])):
        slack = (1 + more) * unit
        for gap, expected in ((slack, set()), (slack + 1, {(0b11, slack)})):
            package, alone, _, _ = both_listings(
                benefit, rivals, component, prices, triples, {}, gap
            )
            assert package == alone == expected


def all_combinations(left, sets):
    """Return all ways to cover each bit of `left` once with some sets."""
    if not left:
        return {frozenset()}
    low = left & -left
    return {
        frozenset({one}) | rest
        for one in sets
        if one & low and not one & ~left
        for rest in all_combinations(left & ~one, sets)
    }


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_coalitions_are_put_together_in_every_way_that_the_gap_allows(data):
    benefit, competition = data.draw(graphs(min_n=2, max_n=6))
    n = benefit.n
    slacks = {1 << i: data.draw(st.integers(0, 6)) for i in range(n)}
    groups = st.integers(1, 2**n - 1).filter(lambda group: group.bit_count() > 1)
    for group in data.draw(st.sets(groups, max_size=15)):
        slacks[group] = data.draw(st.integers(0, 9))
    gap = data.draw(st.integers(1, 12))
    expected = {
        chosen
        for chosen in all_combinations(2**n - 1, slacks)
        if sum(slacks[group] for group in chosen) < gap
    }
    listed = [(group, slack) for group, slack in slacks.items() if group.bit_count() > 1]
    prices = [slacks[1 << i] for i in range(n)]
    found = [frozenset(one) for one in combined(listed, prices, gap, Allowance())]
    assert len(found) == len(set(found))
    assert set(found) == expected

    document = {"benefit": benefit.to_dict(), "competition": competition.to_dict()}
    alone = check.BothGraphs(json.loads(json.dumps(document)))
    options = {
        i: [(slack, group) for group, slack in slacks.items() if group >> i & 1] for i in range(n)
    }
    bound = int(data.draw(PRICE) * 2 * alone.unit)
    nothing = dict.fromkeys(range(n), 0)
    welfare = [
        -sum(check.slack_of(group, alone.value, nothing, []) for group in chosen)
        for chosen in expected
    ]
    exceeded = any(own > bound for own in welfare)
    assert check.combines(alone, 2**n - 1, options, gap, bound, check.StepCount()) == exceeded


def everybody(n, prices, triples=(), gap=1):
    """A listing of n participants of whom each two give each other one."""
    whole = (1 << n) - 1
    others = [whole ^ 1 << i for i in range(n)]
    links = ComponentLinks([0] * n, others, others, 1)
    values = [{j: 2 for j in range(n) if j != i} for i in range(n)]
    return Listing(links, list(range(n)), values, prices, triples, gap, Allowance())


def test_a_triple_that_is_priced_twice_has_both_prices():
    """Two of three participants are worth 2, all three 6."""
    prices, triple = [1, 1, 1], 0b111
    once = everybody(3, prices, [(triple, 4)]).coalitions()
    twice = everybody(3, prices, [(triple, 1), (triple, 3)]).coalitions()
    assert sorted(once) == sorted(twice)
    # Slacks are 2 + 4 - 2 = 4 for two and 3 + 4 - 6 = 1 for three: none is below the gap.
    assert once == []
    assert everybody(3, prices, [(triple, 1), (triple, 2)]).coalitions() == [(0b111, 0)]


def test_what_would_fill_the_memory_is_no_proof(monkeypatch):
    monkeypatch.setattr(coalition_listing, "MOST_PARTICIPANTS", 3)
    with pytest.raises(ProofError, match="at most 3 participants"):
        everybody(4, [3] * 4)
    monkeypatch.setattr(coalition_listing, "MOST_TRIPLES", 1)
    with pytest.raises(ProofError, match="more than 1 triples"):
        everybody(3, [1] * 3, [(0b111, 1), (0b011, 1)])
    monkeypatch.setattr(coalition_listing, "MOST_PARTICIPANTS", 12)
    monkeypatch.setattr(coalition_listing, "MOST_WAITING", 100)
    with pytest.raises(ProofError, match="more memory"):
        everybody(12, [0] * 12).coalitions()

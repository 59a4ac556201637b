"""The quick upper bound: against its definition, and in memory that grows with the links."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings

from fedegoists import BenefitGraph, CompetitionGraph, form, verify
from fedegoists.coalitions.upper_bound import competing_groups, sparse_upper_bound
from tests.instances import graphs


def by_definition(benefit, competition, fewest_members):
    """The largest benefit from, to and with each group of competitors, added up."""
    rivals = competition.matrix
    usable = np.where(rivals, 0.0, benefit.weights)
    groups = competing_groups(rivals)
    if fewest_members > 2:
        partners = sum((~rivals[group]).any(axis=0).astype(int) for group in groups)
        alone = np.asarray(partners) < fewest_members
        usable[alone, :] = usable[:, alone] = 0.0
    mutual = usable + usable.T
    sums = (
        sum(usable[group].max(axis=0).sum() for group in groups),
        sum(usable[:, group].max(axis=1).sum() for group in groups),
        sum(mutual[group].max(axis=0).sum() for group in groups) / 2,
    )
    return min(sums)


@pytest.mark.parametrize("fewest_members", [1, 3, 4])
@given(graphs(min_n=1))
@settings(max_examples=60, deadline=None)
def test_it_is_the_smallest_of_three_sums(fewest_members, instance):
    benefit, competition = instance
    found = sparse_upper_bound(benefit.entries, competition.entries, fewest_members)
    assert found == pytest.approx(by_definition(*instance, fewest_members), rel=1e-9)


@given(graphs(min_n=1))
@settings(max_examples=60, deadline=None)
def test_all_in_a_group_compete_and_everybody_is_in_one(instance):
    rivals = instance[1].matrix
    groups = competing_groups(rivals)
    assert sorted(i for group in groups for i in group) == list(range(len(rivals)))
    assert all(rivals[a, b] for group in groups for a in group for b in group if a != b)


def test_ten_thousand_participants_need_memory_for_their_links_only():
    """Pairs that help each other; neighbours compete. A matrix would take 800 MB."""
    n = 10_000
    names = [f"v{i}" for i in range(n)]
    edges = [(i, i ^ 1, 1.0) for i in range(n)]
    rivals = [(i, i + 1) for i in range(1, n - 1, 2)]
    tracemalloc.start()
    try:
        benefit = BenefitGraph.from_edges(edges, names)
        competition = CompetitionGraph(rivals, names)
        formation = form(benefit, competition, "stable")
        checked = verify(benefit, competition, formation.coalitions)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert checked.ok
    assert formation.welfare == n
    assert formation.upper_bound == pytest.approx(n)
    assert peak < 250e6

"""The search for large components, on components small enough to know the truth."""

import pytest
from hypothesis import given, settings

from fedegoists import form, verify
from fedegoists.coalitions import partition_search
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import best_partition
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.reduction import SparseSubproblem, usable_entries
from fedegoists.coalitions.exact.sparse_search import SparseSearch
from tests.instances import best_welfare, graphs, is_valid, random_graphs


def searched(benefit, competition, fewest_members=1, work=0.05, seed=0):
    weights = usable_entries(benefit.entries, competition.entries)
    problem = SparseSubproblem(weights, competition.entries, seed, fewest_members)
    alone = [[i] for i in range(benefit.n)]
    incumbent = Incumbent(weights, alone, float(weights.values.sum()) + 1.0)
    SparseSearch(problem, incumbent, Effort(work)).run()
    return incumbent


@pytest.mark.parametrize("fewest_members", [1, 3])
@given(graphs(min_n=2, max_n=7))
@settings(max_examples=60, deadline=None)
def test_every_coalition_is_valid(fewest_members, instance):
    partition = searched(*instance, fewest_members).partition
    assert sorted(i for group in partition for i in group) == list(range(instance[0].n))
    assert all(is_valid(group, *instance, fewest_members) for group in partition)


def test_it_finds_the_optimum_of_small_components():
    found = 0
    for seed in range(10):
        instance = random_graphs(9, 0.5, 0.2, seed=seed)
        best = best_welfare(*instance)
        value = searched(*instance, work=0.5).value
        assert value <= best * (1 + 1e-9)
        found += value >= best * (1 - 1e-9)
    assert found >= 8


def test_the_same_seed_gives_the_same_partition():
    instance = random_graphs(40, 0.2, 0.1, seed=1)
    one, two = searched(*instance, seed=3), searched(*instance, seed=3)
    assert one.partition == two.partition


def test_a_large_component_is_searched_and_the_notes_say_so(monkeypatch):
    for module in (best_partition, partition_search):
        monkeypatch.setattr(module, "LARGEST", 20)
    instance = random_graphs(60, 0.1, 0.05, seed=2)
    stable = form(*instance, "stable")
    formation = form(*instance, time_limit=2)
    assert formation.welfare > stable.welfare
    assert any("too many for the exact search" in note for note in formation.notes)
    assert verify(*instance, formation.coalitions).ok
    assert formation.certificate.check().ok


def test_large_components_with_tables_are_searched_by_links_first(monkeypatch):
    """With no effort left for the other searches, the links alone improve the partition."""
    seen = []
    monkeypatch.setattr(best_partition, "MANY", 20)
    run = SparseSearch.run

    def noted(self):
        run(self)
        seen.append(self)

    monkeypatch.setattr(SparseSearch, "run", noted)
    benefit, competition = random_graphs(30, 0.2, 0.2, seed=1)
    formation = form(benefit, competition, time_limit=2)
    assert seen
    assert formation.welfare >= form(benefit, competition, "stable").welfare
    assert not verify(benefit, competition, formation.coalitions).violations

"""Other goals than welfare: the fairest partition, and the fewest alone."""

import numpy as np
import pytest

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form, verify, what_if
from fedegoists.coalitions import OBJECTIVES
from fedegoists.coalitions.exact.fairest_partition import fairer
from fedegoists.errors import SettingsError
from tests.instances import as_positions, is_valid, partitions, random_graphs, welfare


def valid_partitions(benefit, competition):
    for partition in partitions(list(range(benefit.n))):
        if all(is_valid(group, benefit, competition) for group in partition):
            yield partition


def sorted_utilities(partition, benefit) -> list[float]:
    got = [sum(benefit.weights[j, i] for j in group) for group in partition for i in group]
    return sorted(round(float(value), 9) for value in got)


def alone(partition) -> int:
    return sum(len(group) == 1 for group in partition)


@pytest.mark.parametrize("density", [0.25, 0.5, 1.0])
@pytest.mark.usefixtures("way")
def test_fair_is_the_highest_of_all_sorted_utilities(density):
    for seed in range(8):
        benefit, competition = random_graphs(7, density, 0.3, seed)
        formation = form(benefit, competition, objective="fair", time_limit=20)
        assert formation.proven, seed
        best = max(sorted_utilities(p, benefit) for p in valid_partitions(benefit, competition))
        reached = as_positions(formation.coalitions, benefit.participants)
        assert sorted_utilities(reached, benefit) == pytest.approx(best, abs=1e-8), seed


@pytest.mark.parametrize("density", [0.2, 0.4])
@pytest.mark.usefixtures("way")
def test_participation_is_fewest_alone_then_most_welfare(density):
    for seed in range(8):
        benefit, competition = random_graphs(7, density, 0.3, seed)
        formation = form(benefit, competition, objective="participation", time_limit=20)
        assert formation.proven, seed
        fewest, highest = min(
            (alone(p), -welfare(p, benefit)) for p in valid_partitions(benefit, competition)
        )
        reached = as_positions(formation.coalitions, benefit.participants)
        assert alone(reached) == fewest, seed
        assert formation.welfare == pytest.approx(-highest, rel=1e-9), seed


def example():
    """b and c compete for a, who gives most together with b; d can only join c.

    By hand: {a, b} is worth 10. {a, c, d} is worth 2 + 2 + 1 with nobody but b alone. Alone are
    c and d in the first case, b in the second.
    """
    edges = [("a", "b", 5), ("b", "a", 5), ("a", "c", 1), ("c", "a", 1), ("c", "d", 2)]
    names = ["a", "b", "c", "d"]
    benefit = BenefitGraph.from_edges([*edges, ("d", "a", 1)], names)
    return benefit, CompetitionGraph([("b", "c"), ("b", "d")], names)


def test_goals_differ():
    instance = example()
    assert form(*instance).coalitions == (("a", "b"), ("c",), ("d",))
    for objective in ("fair", "participation"):
        formation = form(*instance, objective=objective)
        assert formation.coalitions == (("a", "c", "d"), ("b",)), objective
        assert formation.welfare == 5
        assert formation.objective == objective
        assert formation.proven
        assert not formation.optimal
        assert formation.upper_bound >= 10


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_goal_gives_valid_and_stable_coalitions_at_size(objective):
    instance = random_graphs(40, 0.2, 0.2, seed=1)
    formation = form(*instance, objective=objective, time_limit=1.5)
    checked = verify(*instance, formation.coalitions)
    assert checked.ok, str(checked)
    assert formation.proven or any("not proven" in n or "limit" in n for n in formation.notes)


def test_what_is_fairer():
    def utilities(*values: float) -> np.ndarray:
        return np.array(values, dtype=float)

    assert fairer(utilities(3, 1, 2), utilities(9, 1, 1))
    assert fairer(utilities(1, 0), utilities(0, 0))
    assert not fairer(utilities(2, 1), utilities(1, 2))
    assert not fairer(utilities(0, 9), utilities(1, 1))


def test_the_goal_is_in_the_certificate_and_kept_by_what_if(tmp_path):
    formation = form(*example(), objective="participation")
    formation.certificate.save(tmp_path / "certificate.json")
    certificate = Certificate.load(tmp_path / "certificate.json")
    assert certificate.objective == "participation"
    assert certificate.check().ok
    assert certificate.formation().objective == "participation"
    after = what_if(formation, remove=[("b", "d")]).after
    assert after.objective == "participation"


def test_a_goal_needs_method_best():
    with pytest.raises(SettingsError, match="the objective 'fair' needs method 'best'"):
        form(*example(), "stable", objective="fair")
    with pytest.raises(SettingsError, match="unknown objective 'profit'; objectives are welfare"):
        form(*example(), objective="profit")


def test_fair_is_proven_and_right_beside_a_huge_benefit():
    """a and b give each other far more than anybody else; still nobody needs to be alone."""
    names = ["a", "b", "c", "d"]
    for huge in (10.0, 1e10):
        edges = [("a", "b", huge), ("b", "a", huge)]
        edges += [(x, y, 1.5) for x, y in (("a", "c"), ("c", "a"), ("b", "d"), ("d", "b"))]
        benefit = BenefitGraph.from_edges(edges, names)
        rivals = CompetitionGraph([("c", "d"), ("a", "d"), ("b", "c")], names)
        formation = form(benefit, rivals, objective="fair")
        assert formation.coalitions == (("a", "c"), ("b", "d"))
        assert formation.best_by_objective


@pytest.mark.usefixtures("way")
def test_participation_ties_are_broken_by_welfare_beside_a_huge_benefit():
    """0 and 1 would give each other 1e12, but together leave 2 alone, who has only 0."""
    n, huge = 8, 1e12
    for seed in range(6):
        rng = np.random.default_rng(seed)
        weights = np.where(rng.random((n, n)) < 0.5, rng.random((n, n)), 0.0)
        np.fill_diagonal(weights, 0.0)
        rivals = np.triu(rng.random((n, n)) < 0.4, 1)
        weights[:3] = weights[:, :3] = 0.0
        rivals[:3] = rivals[:, :3] = False
        weights[0, 1] = weights[1, 0] = huge
        weights[0, 2] = weights[2, 0] = 0.5
        weights[0, 3] = weights[3, 2] = 0.1
        rivals[1, 2:] = True
        benefit, competition = BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T)
        formation = form(benefit, competition, objective="participation", time_limit=20)
        fewest, highest = min(
            (alone(p), -welfare(p, benefit)) for p in valid_partitions(benefit, competition)
        )
        assert alone(as_positions(formation.coalitions, benefit.participants)) == fewest, seed
        assert formation.welfare == pytest.approx(-highest, rel=1e-9), seed
        assert formation.proven, seed

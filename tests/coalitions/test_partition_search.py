"""The searches of the formation methods: objectives, limits and interruptions."""

import itertools

import numpy as np
import pytest

from fedegoists import BenefitGraph, Certificate, CompetitionGraph, form, verify, what_if
from fedegoists.coalitions import OBJECTIVES
from fedegoists.coalitions.exact import best_partition as optimum
from fedegoists.coalitions.exact.best_partition import (
    load_searches,
)
from fedegoists.errors import SettingsError
from tests.instances import (
    apart,
    as_positions,
    assert_sound,
    random_graphs,
    valid_partitions,
    welfare,
)


def alone(partition) -> int:
    return sum(len(group) == 1 for group in partition)


def example():
    """b and c compete for a, who gives most together with b; d can only join c.

    By hand: {a, b} is worth 10. {a, c, d} is worth 2 + 2 + 1 with nobody but b alone. Alone are
    c and d in the first case, b in the second.
    """
    edges = [("a", "b", 5), ("b", "a", 5), ("a", "c", 1), ("c", "a", 1), ("c", "d", 2)]
    names = ["a", "b", "c", "d"]
    benefit = BenefitGraph.from_edges([*edges, ("d", "a", 1)], names)
    return benefit, CompetitionGraph([("b", "c"), ("b", "d")], names)


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
        # Beside 1e12 the numbers of the search are too coarse to prove anything about the rest.
        assert formation.proven or formation.welfare > huge, seed


def of_very_different_size(n: int):
    """A tenth of the benefits is a hundred million times as large as the others."""
    rng = np.random.default_rng(n)
    weights = rng.random((n, n)) * np.where(rng.random((n, n)) < 0.1, 1e8, 1.0)
    weights[rng.random((n, n)) > 0.5] = 0.0
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < 0.2, 1)
    return BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    "instance",
    [
        pytest.param(random_graphs(100, 0.5, 0.15, seed=1), id="100"),
        pytest.param(apart(5, 14, 0.25), id="5 times 14"),
        pytest.param(of_very_different_size(24), id="very different weights"),
    ],
)
def test_the_time_limit_holds(objective, instance, clock):
    """A machine so slow that each look at the clock takes 20 ms: few looks follow the deadline."""
    load_searches()
    clock.tick = 0.02
    began = clock.now
    formation = form(*instance, objective=objective, time_limit=1.0)
    assert clock.now - began < 1.0 + 30 * clock.tick
    assert verify(*instance, formation.coalitions).ok


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_interruption_returns_a_valid_partition(objective):
    instance = random_graphs(40, 0.4, 0.2, seed=2)
    calls = 0

    def progress(_welfare: float, _bound: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    formation = form(*instance, objective=objective, time_limit=20, progress=progress)
    assert verify(*instance, formation.coalitions).ok
    assert any("interrupted" in note for note in formation.notes)
    assert not formation.proven


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_interruption_while_compiling_returns_the_stable_partition(objective, monkeypatch):
    instance = random_graphs(40, 0.4, 0.2, seed=2)

    def compiling() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimum, "load_searches", compiling)
    formation = form(*instance, objective=objective, time_limit=20)
    assert verify(*instance, formation.coalitions).ok
    assert formation.notes[0] == "interrupted; this is the best partition found until then"
    assert not formation.proven
    if objective == "welfare":
        assert formation.welfare >= form(*instance, "stable").welfare


@pytest.mark.parametrize("calls", [1, 5, 40])
def test_an_interruption_returns_the_best_so_far(calls):
    instance = random_graphs(60, 0.4, 0.2, seed=2)
    seen = []

    def progress(welfare: float, bound: float) -> None:
        seen.append((welfare, bound))
        if len(seen) == calls:
            raise KeyboardInterrupt

    formation = form(*instance, time_limit=20, progress=progress)
    assert_sound(formation)
    assert any("interrupted" in note for note in formation.notes)
    assert len(seen) == calls
    assert formation.welfare >= seen[-1][0] * (1 - 1e-9)
    assert formation.welfare >= form(*instance, "stable").welfare


def test_progress_never_gets_worse():
    seen: list[tuple[float, float]] = []
    formation = form(
        *random_graphs(30, 0.5, 0.2, seed=1), progress=lambda *values: seen.append(values)
    )
    assert seen
    for (reached, bound), (later, lower) in itertools.pairwise(seen):
        assert later >= reached * (1 - 1e-12)
        assert lower <= bound * (1 + 1e-9)
    assert seen[-1][0] <= formation.welfare * (1 + 1e-12)


def test_the_partition_is_in_terms_of_names():
    formation = form(*random_graphs(10, 0.6, 0.2, seed=4))
    groups = as_positions(formation.coalitions, formation.participants)
    assert sorted(i for group in groups for i in group) == list(range(10))

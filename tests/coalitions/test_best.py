"""Method best: optimal where it says so, never above its bound, and an answer at any moment."""

import itertools
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.pair_model import solve_pairs
from fedegoists import BenefitGraph, CompetitionGraph, form, verify
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import enumeration
from fedegoists.coalitions.exact.best_partition import (
    best_partition,
    load_searches,
)
from fedegoists.coalitions.exact.column_generation import ColumnGeneration
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.upper_bound import quick_upper_bound
from fedegoists.coalitions.welfare import welfare
from tests.instances import (
    as_positions,
    best_welfare,
    graphs,
    is_valid,
    random_graphs,
    utility,
)


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.random((n, n))


def heavy_tailed(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.pareto(1.2, (n, n))


def rows_summing_to_one(rng: np.random.Generator, n: int) -> np.ndarray:
    weights = rng.random((n, n))
    return weights / weights.sum(axis=1, keepdims=True)


LAWS = [uniform, heavy_tailed, rows_summing_to_one]


def consortium(law, n: int, seed: int):
    """A random instance: density 0.1 to 1, competition 0.05 to 0.4, weights by a law."""
    rng = np.random.default_rng([seed, n])
    edges = rng.random((n, n)) < rng.choice([0.1, 0.3, 0.6, 1.0])
    weights = np.where(edges, law(rng, n), 0.0)
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < rng.choice([0.05, 0.2, 0.4]), 1)
    return BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T)


def assert_sound(formation) -> None:
    checked = verify(formation.benefit, formation.competition, formation.coalitions)
    assert checked.ok, str(checked)
    assert formation.upper_bound >= formation.welfare


# Optimal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.usefixtures("way")
def test_agrees_with_brute_force(law):
    for seed in range(25):
        instance = consortium(law, 5 + seed % 4 if seed else 9, seed)
        formation = form(*instance, time_limit=20)
        assert formation.optimal, seed
        assert formation.welfare == pytest.approx(best_welfare(*instance), rel=1e-9), seed
        assert_sound(formation)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.usefixtures("way")
def test_agrees_with_the_plain_pair_model(law):
    """500 instances in all, n = 5 to 11; wherever the pair model proves, both agree."""
    compared = 0
    for seed in range(167):
        instance = consortium(law, 5 + seed % 7, seed)
        formation = form(*instance, time_limit=20)
        assert_sound(formation)
        peer = solve_pairs(instance[0].weights, instance[1].matrix, seconds=5, work=1e9, seed=0)
        assert peer.partition is not None
        reached = sum(utility(group, instance[0]) for group in peer.partition)
        assert formation.upper_bound >= reached * (1 - 1e-9), seed
        if peer.optimal:
            compared += 1
            assert formation.optimal, seed
            assert formation.welfare == pytest.approx(reached, rel=1e-9), seed
    assert compared > 150


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("participation", [False, True])
def test_listing_agrees_with_the_compiled_search(law, participation, monkeypatch):
    """In welfare, in how many are together, and in that this is proven."""
    load_searches()
    for seed in range(20):
        benefit, competition = consortium(law, 8 + seed % 7, seed)
        alone = [[i] for i in range(benefit.n)]
        keep = [[i, i + 1] for i in range(0, benefit.n - 1, 2)] if seed % 2 else []
        found = []
        for small in (enumeration.SMALL, 0):
            monkeypatch.setattr(enumeration, "SMALL", small)
            found.append(
                best_partition(
                    benefit.weights,
                    competition.matrix,
                    [alone],
                    seconds=20,
                    deadline=np.inf,
                    seed=0,
                    keep=keep,
                    participation=participation,
                )
            )
            monkeypatch.undo()
        listed, compiled = found
        assert listed.optimal, seed
        assert compiled.optimal, seed
        assert all(is_valid(group, benefit, competition) for group in listed.partition)
        assert sum(utility(g, benefit) for g in listed.partition) == pytest.approx(
            sum(utility(g, benefit) for g in compiled.partition), rel=1e-9
        )
        together = [sum(len(g) for g in o.partition if len(g) > 1) for o in found]
        assert not participation or together[0] == together[1], seed


@pytest.mark.usefixtures("way")
def test_of_equally_good_partitions_the_one_to_keep_is_kept():
    """A ring of six where everybody gives both neighbours 1; only neighbours do not compete.

    By hand: the coalitions are the six pairs of neighbours, and there are two best partitions.
    """
    load_searches()
    ring = np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1)
    rivals = (ring == 0) & ~np.eye(6, dtype=bool)
    alone = [[i] for i in range(6)]
    for keep in ([[0, 1], [2, 3], [4, 5]], [[1, 2], [3, 4], [0, 5]]):
        optimum = best_partition(
            ring, rivals, [alone], seconds=20, deadline=np.inf, seed=0, keep=keep
        )
        assert optimum.optimal
        assert sorted(optimum.partition) == sorted(keep)


def test_weights_of_very_different_size():
    """Two who would gain 1e300 but are in no coalition together do not hide what others gain."""
    names = ["a", "b", "c", "d", "e"]
    edges = [("a", "b", 1e-9), ("b", "a", 1e-9), ("b", "c", 1e-9), ("c", "b", 3e-9)]
    edges += [("a", "d", 1e300), ("d", "e", 1e300), ("e", "b", 1e300)]
    rivals = CompetitionGraph([("a", "c"), ("a", "e"), ("d", "b"), ("c", "e")], names)
    formation = form(BenefitGraph.from_edges(edges, names), rivals)
    assert ("b", "c") in formation.coalitions
    assert formation.optimal
    assert_sound(formation)


def test_a_few_participants_need_nothing_compiled():
    """Whatever is asked about the example banks, Numba is not even imported."""
    code = (
        "import sys\n"
        "from fedegoists import audit_core, form, what_if\n"
        "from fedegoists.examples import banks\n"
        "graphs = banks()\n"
        "for objective in ('welfare', 'fair', 'participation'):\n"
        "    formation = form(*graphs, objective=objective)\n"
        "    assert formation.proven\n"
        "    assert formation.certificate.check().ok\n"
        "    what_if(formation, leaves=['Juniper Bank'])\n"
        "    audit_core(*graphs, formation.coalitions)\n"
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("seed", range(4))
def test_cuts_and_closing_are_sound_where_the_linear_program_is_not_integral(seed):
    """Dense instances of 18, where mixtures of coalitions are worth more than any partition."""
    instance = random_graphs(18, 1.0, 0.3, seed)
    formation = form(*instance, time_limit=20)
    assert formation.optimal
    assert_sound(formation)
    peer = solve_pairs(instance[0].weights, instance[1].matrix, seconds=20, work=1e9, seed=0)
    if peer.optimal:
        assert formation.welfare == pytest.approx(peer.upper_bound, rel=1e-9)


# Adversarial families --------------------------------------------------------------------------


def multipartite(parts: int, size: int):
    """Everybody competes with everybody of another part: the parts are the coalitions."""
    n = parts * size
    part = np.arange(n) // size
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 1.0, (n, n))
    np.fill_diagonal(weights, 0.0)
    return BenefitGraph(weights), CompetitionGraph.from_numpy(part[:, None] != part[None, :])


def test_complete_multipartite_competition():
    instance = multipartite(5, 8)
    formation = form(*instance, time_limit=20)
    assert formation.optimal
    assert sorted(map(len, formation.coalitions)) == [8] * 5
    assert_sound(formation)


def test_disjoint_rivals_choose_one_of_each_pair():
    """By hand: ten pairs of competitors, all weights 1: two coalitions of ten, 2 · 10 · 9."""
    n = 20
    weights = np.ones((n, n)) - np.eye(n)
    instance = BenefitGraph(weights), CompetitionGraph([(2 * k, 2 * k + 1) for k in range(10)], n)
    formation = form(*instance, time_limit=20)
    assert formation.welfare == 180
    assert formation.optimal
    assert_sound(formation)


@pytest.mark.usefixtures("way")
def test_near_equal_weights():
    rng = np.random.default_rng(5)
    n = 14
    weights = 1 + 1e-7 * rng.random((n, n))
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < 0.3, 1)
    instance = BenefitGraph(weights), CompetitionGraph.from_numpy(rivals | rivals.T)
    formation = form(*instance, time_limit=20)
    assert_sound(formation)
    peer = solve_pairs(instance[0].weights, instance[1].matrix, seconds=20, work=1e9, seed=0)
    assert formation.upper_bound >= peer.upper_bound * (1 - 1e-9)
    assert formation.welfare == pytest.approx(peer.upper_bound, rel=1e-9)


def test_free_riders_that_look_like_gains():
    """Each of four mutual pairs has an admirer that gives nothing, and a donor that gets nothing.

    By hand: the pairs are worth 2 each and may all unite for 0.1 between neighbours, 3 times;
    admirers and donors, however much they would add, are free riders.
    """
    edges = []
    for k in range(4):
        a, b, admirer, donor = (4 * k + x for x in range(4))
        edges += [(a, b, 1.0), (b, a, 1.0), (a, admirer, 50.0), (donor, b, 50.0)]
        if k:
            edges.append((4 * k - 4, a, 0.1))
    names = [f"v{i}" for i in range(16)]
    instance = BenefitGraph.from_edges(edges, names), CompetitionGraph([], names)
    formation = form(*instance, time_limit=20)
    assert formation.welfare == pytest.approx(8.3)
    assert formation.optimal
    assert_sound(formation)


@pytest.mark.usefixtures("way")
def test_a_circle_that_pays_only_as_a_whole():
    """A ring of nine without any mutual pair: no proper part of it is a coalition."""
    weights = np.roll(np.eye(9), 1, axis=1)
    formation = form(BenefitGraph(weights), CompetitionGraph([], 9))
    assert formation.welfare == 9
    assert formation.optimal


@pytest.mark.usefixtures("way")
def test_disconnected_graphs_add_up():
    one, other = random_graphs(12, 0.5, 0.2, 1), random_graphs(12, 0.5, 0.2, 2)
    zeros = np.zeros((12, 12))
    weights = np.block([[one[0].weights, zeros], [zeros, other[0].weights]])
    rivals = np.block([[one[1].matrix, zeros > 0], [zeros > 0, other[1].matrix]])
    both = form(BenefitGraph(weights), CompetitionGraph.from_numpy(rivals), time_limit=20)
    alone = [form(*instance, time_limit=20) for instance in (one, other)]
    assert both.optimal
    assert both.welfare == pytest.approx(sum(f.welfare for f in alone), rel=1e-12)
    assert_sound(both)


# Bounds ----------------------------------------------------------------------------------------


@given(graphs(min_n=2, max_n=7))
@settings(max_examples=60, deadline=None)
def test_bounds_hold_however_little_work_is_done(instance):
    load_searches()
    benefit, competition = instance
    highest = best_welfare(benefit, competition)
    alone = [[i] for i in range(benefit.n)]
    for work in (0.0, 1e-3, 1e-2):
        optimum = best_partition(
            benefit.weights,
            competition.matrix,
            [alone],
            seconds=work,
            deadline=np.inf,
            seed=0,
        )
        assert optimum.upper_bound >= highest * (1 - 1e-12)
        assert all(is_valid(group, benefit, competition) for group in optimum.partition)
    assert quick_upper_bound(benefit.weights, competition.matrix) >= highest * (1 - 1e-12)


@pytest.mark.parametrize(("density", "competition"), [(1.0, 0.1), (0.3, 0.3), (0.1, 0.2)])
def test_no_bound_is_below_what_anything_reaches(density, competition):
    """Several limits, seeds and methods on the same instance of 40."""
    instance = random_graphs(40, density, competition, seed=3)
    formations = [
        form(*instance, seed=seed, time_limit=limit)
        for seed, limit in itertools.product(range(2), (0.05, 0.3, 1.0))
    ]
    formations += [form(*instance, method) for method in ("stable", "published")]
    reached = max(formation.welfare for formation in formations)
    assert all(formation.upper_bound >= reached for formation in formations)
    for formation in formations:
        assert_sound(formation)


# At any moment ---------------------------------------------------------------------------------


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


def test_weights_that_vanish_beside_a_useless_one_still_count():
    """0 would give 1 more than anything, but needs 3, who competes with 1."""
    n, huge, tiny = 16, 1e300, 1e-30
    rng = np.random.default_rng(1)
    weights = np.where(rng.random((n, n)) < 0.4, rng.random((n, n)) * tiny, 0.0)
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < 0.2, 1)
    weights[:, 0] = 0
    weights[3, 0] = weights[0, 3] = tiny
    weights[0, 1] = huge
    rivals[0, 1] = rivals[0, 3] = False
    rivals[1, 3] = True
    competition = CompetitionGraph.from_numpy(rivals | rivals.T)
    formation = form(BenefitGraph(weights), competition)
    plain = np.where(weights == huge, tiny, weights) / tiny
    expected = form(BenefitGraph(plain), competition)
    assert expected.optimal
    assert formation.welfare == pytest.approx(expected.welfare * tiny)
    assert formation.upper_bound >= formation.welfare


@pytest.mark.parametrize("seed", range(8))
def test_listing_rests_on_its_prices_however_good_the_bound(seed):
    """A start that can be improved, and a bound from elsewhere that is nearly tight."""

    n = 16
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random((n, n)) < 0.5, rng.random((n, n)), 0.0)
    np.fill_diagonal(weights, 0.0)
    rivals = np.triu(rng.random((n, n)) < 0.3, 1)
    rivals |= rivals.T
    deadline = time.perf_counter() + 60
    alone = [[i] for i in range(n)]
    best = best_partition(weights, rivals, [alone], seconds=30, deadline=deadline, seed=0)
    assert best.optimal
    value = welfare(weights, best.partition)
    incumbent = Incumbent(weights, alone, value * 1.0001)
    problem = Subproblem(weights, weights > 0, rivals)
    ColumnGeneration(problem, incumbent, Effort(30, deadline))._list(20_000)
    assert not incumbent.optimal or incumbent.value == pytest.approx(value)

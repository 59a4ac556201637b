"""Method best: optimal where it says so, never above its bound, and an answer at any moment."""

import itertools
import logging
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.pair_model import solve_pairs
from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions.exact import compiled
from fedegoists.coalitions.exact.best_partition import (
    best_partition,
    load_searches,
)
from fedegoists.coalitions.upper_bound import quick_upper_bound
from fedegoists.graphs.participant_graph import Entries
from tests.instances import (
    LAWS,
    assert_sound,
    best_welfare,
    consortium,
    graphs,
    is_valid,
    random_graphs,
    utility,
)


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
            Entries.of(ring),
            Entries.of(rivals),
            [alone],
            seconds=20,
            deadline=np.inf,
            seed=0,
            keep=keep,
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


@given(graphs(min_n=2, max_n=7))
@settings(max_examples=60, deadline=None)
def test_bounds_hold_however_little_work_is_done(instance):
    load_searches()
    benefit, competition = instance
    highest = best_welfare(benefit, competition)
    alone = [[i] for i in range(benefit.n)]
    for work in (0.0, 1e-3, 1e-2):
        optimum = best_partition(
            benefit.entries,
            competition.entries,
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


def test_compiling_first_is_announced(monkeypatch, caplog):
    load_searches()
    monkeypatch.setattr(compiled, "must_compile", lambda: True)
    with caplog.at_level(logging.WARNING, logger="fedegoists"):
        load_searches.__wrapped__()
    assert "not part of any time limit" in caplog.text
    caplog.clear()
    monkeypatch.setattr(compiled, "must_compile", lambda: False)
    load_searches.__wrapped__()
    assert not caplog.text

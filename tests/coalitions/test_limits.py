"""Time: limits hold for every objective, and where the clock decided, that is said."""

import logging
import time

import numpy as np
import pytest

from fedegoists import BenefitGraph, CompetitionGraph, form, verify
from fedegoists.coalitions import OBJECTIVES
from fedegoists.coalitions.effort import Effort
from fedegoists.coalitions.exact import best_partition as optimum
from fedegoists.coalitions.exact import compiled
from fedegoists.coalitions.exact import fairest_partition as fairness
from fedegoists.coalitions.exact import set_partitioning as closing
from fedegoists.coalitions.exact.best_partition import load_searches
from fedegoists.coalitions.exact.column_generation import ColumnGeneration
from fedegoists.coalitions.exact.fairest_partition import fairest_partition
from fedegoists.coalitions.exact.incumbent import Incumbent
from fedegoists.coalitions.exact.reduction import Subproblem
from fedegoists.coalitions.exact.restricted_master import RestrictedMaster
from tests.instances import random_graphs


def apart(parts: int, size: int, competition: float):
    """Several components that have nothing to do with one another."""
    n = parts * size
    weights, rivals = np.zeros((n, n)), np.zeros((n, n), dtype=bool)
    for k in range(parts):
        inside = slice(size * k, size * (k + 1))
        benefit, rival = random_graphs(size, 1.0, competition, seed=k)
        weights[inside, inside], rivals[inside, inside] = benefit.weights, rival.matrix
    return BenefitGraph(weights), CompetitionGraph.from_numpy(rivals)


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
def test_the_time_limit_holds(objective, instance):
    """Counted in processor time, which other work on the machine does not lengthen."""
    load_searches()
    start = time.process_time()
    formation = form(*instance, objective=objective, time_limit=1.0)
    assert time.process_time() - start < 1.05 + 0.1
    assert verify(*instance, formation.coalitions).ok


def test_a_solver_is_not_even_started_when_the_time_is_up():
    status, late, done = closing.solve_until(None, None, time.perf_counter() - 1, 10)
    assert late
    assert done == 0
    assert status == closing.load_solver().UNKNOWN


def test_the_second_solve_of_a_choice_has_only_what_the_first_left(monkeypatch):
    """Which of equal choices moves few is decided by a second solve, with the same deadline."""
    solve, deadlines = closing.solve_until, []

    def recorded(solver, model, deadline, work):
        result = solve(solver, model, deadline, work)
        deadlines.append((deadline, solver.parameters.max_time_in_seconds))
        time.sleep(0.3)
        return result

    monkeypatch.setattr(closing, "solve_until", recorded)
    columns = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0], [1, 0, 0, 1]], dtype=bool)
    keep = [[1, 2], [0, 3]]
    choice = closing.choose(
        columns,
        np.ones(4),
        at_most=2,
        deadline=time.perf_counter() + 30,
        work=10,
        seed=0,
        keep=keep,
    )
    assert choice.partition == [[0, 3], [1, 2]]
    (first, whole), (second, rest) = deadlines
    assert first == second
    assert rest < whole - 0.3 + 1e-9
    assert not choice.clock_ended
    late = closing.choose(
        columns,
        np.ones(4),
        at_most=2,
        deadline=time.perf_counter() + 0.2,
        work=10,
        seed=0,
        keep=keep,
    )
    assert late.clock_ended
    assert late.partition in ([[0, 1], [2, 3]], [[0, 3], [1, 2]])


def test_a_list_that_the_clock_cut_short_says_so():
    """Else the same seed would give another result on a slower machine, without a word."""
    load_searches()
    benefit, competition = random_graphs(16, 0.5, 0.3, seed=1)
    incumbent = Incumbent(benefit.weights, [[i] for i in range(16)], 1e3)
    effort = Effort(30, time.perf_counter() - 1)
    problem = Subproblem(benefit.weights, benefit.weights > 0, competition.matrix)
    generation = ColumnGeneration(problem, incumbent, effort)
    assert not generation._list(20_000)
    assert effort.clock_ended


def test_fairness_without_time_keeps_the_start_and_says_so(monkeypatch):
    def refuse(*_):
        raise AssertionError("there is no time for a solver")

    monkeypatch.setattr(fairness, "solve_until", refuse)
    benefit, competition = apart(3, 10, 0.4)
    alone = [[i] for i in range(benefit.n)]
    effort = Effort(10, time.perf_counter() - 1)
    partition, proven = fairest_partition(benefit.weights, competition.matrix, [alone], effort)
    assert sorted(partition) == alone
    assert not proven
    assert effort.clock_ended


def test_a_linear_program_without_time_keeps_its_prices(capfd):
    benefit, _ = random_graphs(60, 1.0, 0.1, seed=0)
    master = RestrictedMaster(benefit.weights + benefit.weights.T, 0.0)
    rng = np.random.default_rng(0)
    for _ in range(3):
        master.add(rng.random(60) < 0.3)
    value, prices = master.solve(10.0)
    for _ in range(3000):
        master.add(rng.random(60) < 0.3)
    later, same = master.solve(0.0)
    assert later >= value
    assert len(same) == 60
    assert (same >= 0).all()
    if later == np.inf:
        assert (same == prices).all()
    assert capfd.readouterr().err == ""


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

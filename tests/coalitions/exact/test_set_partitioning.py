"""The choice out of a list of coalitions: deadlines, and partitions to keep."""

import numpy as np

from fedegoists.coalitions.exact import set_partitioning
from fedegoists.coalitions.exact.set_partitioning import choose, partition_of, rows_of, solve_until
from fedegoists.coalitions.exact.solvers import load_solver

COLUMNS = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0], [1, 0, 0, 1]], dtype=bool)


def test_rows_and_partitions_by_hand():
    assert partition_of(COLUMNS[[2]]) == [[0], [1, 2], [3]]
    assert partition_of(COLUMNS[[]]) == [[0], [1], [2], [3]]
    assert rows_of([[0, 3], [1], [2]], COLUMNS) == [3]


def test_a_solver_is_not_even_started_when_the_time_is_up(clock):
    status, late, done = solve_until(None, None, clock.now - 1, 10)
    assert late
    assert done == 0
    assert status == load_solver().UNKNOWN


def test_the_second_solve_of_a_choice_has_only_what_the_first_left(monkeypatch, clock):
    """Which of equal choices moves few is decided by a second solve, with the same deadline."""
    deadlines = []

    def takes_300_ms(solver, model, deadline, work):
        result = solve_until(solver, model, deadline, work)
        deadlines.append((deadline, solver.parameters.max_time_in_seconds))
        clock.now += 0.3
        return result

    monkeypatch.setattr(set_partitioning, "solve_until", takes_300_ms)
    options = {"at_most": 2, "work": 10, "seed": 0, "keep": [[1, 2], [0, 3]]}
    choice = choose(COLUMNS, np.ones(4), deadline=clock.now + 30, **options)
    assert choice.partition == [[0, 3], [1, 2]]
    (first, whole), (second, rest) = deadlines
    assert first == second
    assert rest < whole - 0.3 + 1e-9
    assert not choice.clock_ended
    late = choose(COLUMNS, np.ones(4), deadline=clock.now + 0.2, **options)
    assert late.clock_ended
    assert late.partition in ([[0, 1], [2, 3]], [[0, 3], [1, 2]])

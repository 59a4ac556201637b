"""Without the extra ``exact`` coalitions are formed all the same, with a note."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedegoists import form, verify
from tests.instances import consortium, uniform

BLOCKED = """
import json, sys
for package in {packages!r}:
    sys.modules[package] = None
from fedegoists import form
from fedegoists.graphs import BenefitGraph, CompetitionGraph, CurveValues
from tests.instances import consortium, uniform
found = []
for n, objective in {asked!r}:
    benefit, competition = consortium(uniform, n, n)
    one = form(benefit, competition, objective=objective, time_limit=0.5)
    found.append([one.coalitions, one.welfare, one.optimal, one.upper_bound, list(one.notes)])
import numpy as np
n = 18
rng = np.random.default_rng(3)
values = CurveValues([200] * n, [1.0] * n, rng.normal(0.2, 0.6, (n, n)) * (1 - np.eye(n)))
free = CompetitionGraph([], values.participants)
one = form(values, free, time_limit=0.5)
found.append([one.coalitions, one.welfare, one.optimal, one.upper_bound, list(one.notes)])
print(json.dumps(found))
"""


def formed_without(*packages, asked):
    code = BLOCKED.format(packages=packages, asked=asked)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("packages", [("numba", "ortools", "matplotlib"), ("ortools",)])
def test_small_consortia_are_proven_and_large_ones_are_valid(packages):
    asked = [(10, "welfare"), (10, "fair"), (24, "welfare")]
    small, fair, large, values = formed_without(*packages, asked=asked)
    benefit, competition = consortium(uniform, 10, 10)
    best = form(benefit, competition)
    assert small[1] == pytest.approx(best.welfare)
    assert small[2]  # proven
    assert small[4] == []
    assert verify(benefit, competition, fair[0]).ok
    assert any("OR-Tools" in note for note in fair[4])

    benefit, competition = consortium(uniform, 24, 24)
    best = form(benefit, competition)
    assert verify(benefit, competition, large[0]).ok
    assert large[1] <= best.welfare * (1 + 1e-9) <= large[3] * (1 + 1e-9)
    # The search starts from what method stable finds, however little time it has.
    assert large[1] >= form(benefit, competition, "stable").welfare * (1 - 1e-9)
    note = next(one for one in large[4] if "OR-Tools" in one)
    assert "local search" in note
    assert "exact" in note
    assert ("Numba and OR-Tools are" in note) == ("numba" in packages)
    # 18 participants under learning curves are compared one by one with Numba, else searched.
    assert values[1] <= values[3] * (1 + 1e-9)
    assert any("Numba" in one for one in values[4]) == ("numba" in packages)


def test_with_all_packages_there_is_no_note():
    benefit, competition = consortium(uniform, 24, 24)
    assert form(benefit, competition).notes == ()

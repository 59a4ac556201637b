"""The library of instances is what its generator draws, and its bounds hold."""

import pytest

from benchmarks.instances.__main__ import ALL, FILES, as_clique_partitioning, known
from benchmarks.measure import random_consortium
from fedegoists.coalitions.proof.price_proof import proven_bound

ROWS = known()


def test_every_instance_has_a_file_and_a_row():
    assert {file.stem for file in FILES.iterdir()} == ALL.keys() == ROWS.keys()


@pytest.mark.parametrize("name", ALL)
def test_a_file_is_what_the_generator_draws(name):
    assert (FILES / f"{name}.txt").read_text(encoding="utf-8") == as_clique_partitioning(name)
    benefit, competition = random_consortium(*ALL[name], 0)
    assert (benefit.sha256, competition.sha256) == (ROWS[name]["benefit"], ROWS[name]["rivals"])
    assert float(ROWS[name]["welfare"]) <= float(ROWS[name]["bound"])


@pytest.mark.parametrize("name", [name for name, (n, *_) in ALL.items() if n == 10])
def test_the_smallest_optima_are_those_of_all_partitions(name):
    benefit, competition = random_consortium(*ALL[name], 0)
    alone = [(one,) for one in benefit.participants]
    best = float(proven_bound(benefit, competition, alone, []).welfare)
    assert float(ROWS[name]["welfare"]) == pytest.approx(best, rel=1e-12)

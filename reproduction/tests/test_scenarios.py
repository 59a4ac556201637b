"""Competition graphs of scenarios."""

from fedegoists.learning.datasets import load
from reproduction.scenarios import Scenario, competition_of


def test_competition_is_the_same_for_all_methods_and_grows_with_its_probability():
    data = load("synthetic-weak", seed=3)
    few, many = (
        set(competition_of(Scenario("synthetic-weak", (), p), 3, data).pairs)
        for p in ("0.1", "0.4")
    )
    assert few < many
    assert set(competition_of(Scenario("synthetic-weak", (), "published"), 3, data).pairs) == set(
        data.competition_pairs
    )

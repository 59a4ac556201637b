"""Kept stages: exactly what was made, and nothing where a file is damaged."""

import numpy as np
import pytest

from fedegoists.benefit import BenefitEstimate
from fedegoists.benefit.silo_queries import Cost
from fedegoists.consortium.stage_cache import StageStore

NAMES = ("North", "South")


def test_an_estimate_is_the_same_after_it_was_kept(tmp_path):
    rng = np.random.default_rng(0)
    runs = rng.random((3, 2, 2, 2)) / 3
    estimate = BenefitEstimate(
        NAMES, "transfer", runs, -runs, runs[0, 0],
        cost=Cost(3, 4, 5, 6), failures=("South: timeout",), absent=("South",),
    )  # fmt: skip
    store = StageStore(tmp_path)
    assert store.read("benefit", "k", str) is None
    store.write("benefit", "k", estimate.to_json())
    kept = store.read("benefit", "k", lambda text: BenefitEstimate.from_json(NAMES, text))
    for part in ("runs", "gains", "savings", "weights", "spread"):
        assert np.array_equal(getattr(kept, part), getattr(estimate, part))
    assert (kept.cost, kept.failures) == (estimate.cost, estimate.failures)
    assert kept.absent == estimate.absent
    assert kept.weights_csv() == estimate.weights_csv()


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null"])
def test_a_damaged_file_counts_as_missing(tmp_path, text):
    store = StageStore(tmp_path)
    store.write("benefit", "k", text)
    parse = BenefitEstimate.from_json
    assert store.read("benefit", "k", lambda own: parse(NAMES, own)) is None

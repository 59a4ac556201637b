"""Kept stages: exactly what was made, and nothing where a file is damaged."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
def test_a_result_of_another_form_counts_as_missing(tmp_path, text):
    store = StageStore(tmp_path)
    store.write("benefit", "k", text)
    parse = BenefitEstimate.from_json
    assert store.read("benefit", "k", lambda own: parse(NAMES, own)) is None


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(part=st.floats(0, 1, exclude_max=True), change=st.integers(1, 127))
def test_a_changed_byte_anywhere_makes_it_missing_loudly(tmp_path, caplog, part, change):
    store = StageStore(tmp_path)
    store.write("benefit", "k", "[0.25, 0.5]")
    assert store.read("benefit", "k", json.loads) == [0.25, 0.5]
    path = store.path("benefit", "k", "result.json")
    content = bytearray(path.read_bytes())
    content[int(part * len(content))] ^= change
    path.write_bytes(content)
    caplog.clear()
    assert store.read("benefit", "k", json.loads) is None
    assert "damaged, and moved aside; the stage is repeated" in caplog.text
    assert not path.exists()
    assert path.with_suffix(".damaged").exists()


def test_a_result_of_other_inputs_is_not_used(tmp_path):
    store = StageStore(tmp_path)
    store.write("benefit", "k", "1")
    store.write("benefit", "l", "2")
    shutil.copy(
        store.path("benefit", "l", "result.json"), store.path("benefit", "k", "result.json")
    )
    assert store.read("benefit", "k", json.loads) is None

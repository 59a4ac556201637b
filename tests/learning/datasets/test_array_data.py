"""Arrays of each organisation: right samples, divided by content or group, and clear refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load_arrays, load_own
from fedegoists.learning.datasets.schema import Schema


def table(seed, count=40, **more):
    rng = np.random.default_rng(seed)
    return {"inputs": rng.normal(50, 9, (count, 3)), "targets": np.arange(count) % 2, **more}


def places(data, silo):
    """The split of each sample of a silo, by its place among the organisation's own."""
    start = min(min(one) for one in data.silo(silo).parts if len(one))
    return {
        int(k) - start: split
        for split, positions in enumerate(data.silo(silo).parts)
        for k in positions
    }


def test_features_are_scaled_by_own_training_samples():
    data = load_arrays({"North": table(1), "South": table(2)}, "binary", classes=2)
    for name in data.participants:
        train = data.part(name, "train").inputs[0]
        assert np.allclose(train.mean(0), 0, atol=1e-5)
        assert np.allclose(train.std(0), 1, atol=1e-5)
    raw = load_arrays({"North": table(1)}, "binary", classes=2, standardise=False)
    assert np.allclose(raw.samples.inputs[0], table(1)["inputs"], atol=1e-4)


@given(st.permutations(range(40)))
def test_a_sample_keeps_its_split_in_any_order_and_company(order):
    alone = load_arrays({"North": table(1)}, "binary", classes=2)
    own = table(1)
    mixed = {key: values[order] for key, values in own.items()}
    together = load_arrays({"East": table(5), "North": mixed}, "binary", classes=2)
    before, after = places(alone, "North"), places(together, "North")
    assert {place: before[k] for place, k in enumerate(order)} == after


def test_groups_are_never_in_two_splits_and_the_same_as_in_a_table():
    groups = np.arange(40) // 2
    data = load_arrays({"North": table(1, groups=groups)}, "binary", classes=2)
    found = places(data, "North")
    assert all(found[2 * g] == found[2 * g + 1] for g in range(20))
    frame = pd.DataFrame(table(1)["inputs"], columns=["a", "b", "c"])
    frame["y"], frame["who"] = np.arange(40) % 2, groups
    schema = Schema(
        features=("a", "b", "c"), target="y", task="binary", classes=("0", "1"), group="who"
    )
    assert places(load_own({"North": frame}, schema), "North") == found


def test_copies_are_found_over_all_inputs():
    rng = np.random.default_rng(0)
    steps, static = rng.normal(size=(30, 4, 2)), rng.normal(size=(30, 2))
    steps[20:], static[20:] = steps[:10], static[:10]
    static[29] += 1  # only one of its inputs is a copy
    given = {"inputs": (steps, static), "targets": np.arange(30) % 2}
    data = load_arrays({"North": given}, "binary", classes=2)
    found = places(data, "North")
    assert all(found[k] == found[k + 20] for k in range(9))
    assert data.warnings[0].startswith("North: 9 samples have the same inputs as another sample")


def test_sequences_keep_missing_values_and_tables_are_filled():
    rng = np.random.default_rng(0)
    steps, static = rng.normal(size=(30, 4, 2)), rng.normal(size=(30, 2))
    steps[0, 1, 1] = np.nan
    y = np.arange(30) % 2
    data = load_arrays({"A": {"inputs": (steps, static), "targets": y}}, "binary", classes=2)
    assert [one.name for one in data.preparation] == ["hourly", "static"]
    assert np.isnan(data.samples.inputs[0]).sum() == 1
    flat = load_arrays({"A": {"inputs": steps[:, 1], "targets": y}}, "binary", classes=2)
    assert not np.isnan(flat.samples.inputs[0]).any()


def test_images_tokens_and_truths_stay_as_they_are():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 6, 6, 3), dtype=np.uint8)
    tokens = rng.integers(0, 90, (30, 5))
    given = {"inputs": (images, tokens, tokens[:, :1] > 40), "targets": np.arange(30) % 3}
    data = load_arrays({"North": given}, "classification", classes=3)
    assert (data.samples.inputs[0] == images).all()
    assert (data.samples.inputs[1] == tokens).all()
    assert data.samples.inputs[1].dtype == np.int64
    assert data.samples.inputs[2].dtype == np.float32


def test_names_of_classes_columns_of_frames_weights_and_survival():
    frame = pd.DataFrame(table(1)["inputs"], columns=["age", "crp", "bmi"])
    words = np.where(np.arange(40) % 2, "ill", "well")
    given = {"inputs": frame, "targets": words, "weights": 1 + np.arange(40)}
    data = load_arrays({"North": given}, "binary", classes=["well", "ill"])
    assert data.samples.targets.tolist() == [k % 2 for k in range(40)]
    assert data.preparation[0].columns == ("age", "crp", "bmi")
    assert data.samples.weights.tolist() == list(range(1, 41))
    times, events = np.linspace(1, 9, 40), np.arange(40) % 2
    data = load_arrays({"North": {**table(1), "targets": (times, events)}}, "survival")
    assert np.allclose(data.samples.targets, np.where(events, times, -times))


BAD = {
    "no dictionary": ([1, 2], "a list; expected a dictionary with inputs and targets"),
    "no targets": ({"inputs": np.ones((3, 2))}, "with the keys inputs; expected"),
    "unknown": (table(1, group=3), "unknown key 'group'; keys are inputs, targets, groups, we"),
    "words": ({**table(1), "inputs": [["a"]] * 40}, "input 0: it holds <U1, not numbers"),
    "flat": ({**table(1), "inputs": np.ones(40)}, r"the shape \(40,\); expected one row for"),
    "short": ({**table(1), "inputs": np.ones((39, 3))}, "input 0: 39 entries, but there are 40"),
    "infinite": (
        {**table(1), "inputs": np.full((40, 3), np.inf)},
        r"input 0: infinity at \(0, 0\); use NaN",
    ),
    "bytes": ({**table(1), "inputs": np.ones((40, 3), np.uint8)}, "are no images"),
    "class": ({**table(1), "targets": np.full(40, 2)}, "the class 2 at 0 is not declared"),
    "groups": (table(1, groups=[None] * 40), "groups: the one at 0 is missing"),
    "weights": (table(1, weights=np.zeros(40)), "weights: 0 at 0; weights are above 0"),
    "few weights": (table(1, weights=np.ones(4)), "weights: 4 entries, but there are 40 targets"),
    "shape": ({**table(1), "inputs": np.ones((40, 4))}, "differs from 'South' in shapes"),
    "kind": ({**table(1), "inputs": np.ones((40, 3), int)}, "differs from 'South' in kinds"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_told_with_its_organisation(case):
    given, message = BAD[case]
    with pytest.raises(DataError, match=f"organisation 'North'.*{message}"):
        load_arrays({"South": table(2), "North": given}, "binary", classes=2)


def test_problems_of_all_organisations_are_told_at_once():
    with pytest.raises(DataError, match=r"(?s)2 problems:.*'North'.*'West'"):
        load_arrays({"North": 3, "South": table(2), "West": {}}, "binary", classes=2)


@pytest.mark.parametrize(
    ("task", "classes", "message"),
    [
        ("clustering", None, "task is 'clustering'; tasks are classification, binary"),
        (None, None, "task is None"),
        ("binary", None, "a binary task needs their number, or a list"),
        ("regression", 2, "a regression task has no classes"),
        ("binary", ["a", "a"], "is there twice"),
    ],
)
def test_task_and_classes_belong_together(task, classes, message):
    with pytest.raises(DataError, match=message):
        load_arrays({"North": table(1)}, task, classes=classes)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.ones(40), "survival needs a tuple of times and events"),
        ((np.zeros(40), np.ones(40)), "times: 0 at 0; times are above 0"),
        ((np.ones(40), np.full(40, 2)), "events: 2 at 0; events are 0 or 1"),
        ((np.ones(40), np.ones(39)), "events: 39 entries, but there are 40"),
    ],
)
def test_times_and_events(targets, message):
    with pytest.raises(DataError, match=message):
        load_arrays({"North": {**table(1), "targets": targets}}, "survival")

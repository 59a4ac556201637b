"""Forests: the vector predicts as LightGBM does, and refuses what is no forest."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import SettingsError
from fedegoists.learning.boosting import (
    FIXED,
    complete_trees,
    cox_derivatives,
    grown_booster,
    rounded_down,
)
from fedegoists.learning.forest import Forest, is_forest, joined, malformed, mixtures
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import partial_likelihood
from tests.trees import FEATURES, forest, planted

pytest.importorskip("lightgbm")


def grown(task, outputs, depth=4, trees=20, rows=300, least=5):
    data = planted((rows,), task=task, tests=0)
    x, y = data.samples.inputs[0], data.samples.targets
    booster = grown_booster(
        x,
        y,
        np.zeros((rows, outputs)),
        task,
        trees=trees,
        rate=0.2,
        depth=depth,
        least=least,
        seed=3,
    )
    model = forest(outputs, members=2, trees=trees, depth=depth)
    found = complete_trees(booster, trees=trees, outputs=outputs, depth=depth, features=FEATURES)
    with torch.no_grad():
        for name, values in vars(found).items():
            getattr(model, name)[0] = torch.from_numpy(values)
    return booster, model, x


@pytest.mark.parametrize(
    ("task", "outputs"),
    [("binary", 1), ("classification", 3), ("regression", 1), ("survival", 1)],
)
def test_outputs_are_those_of_lightgbm(task, outputs):
    booster, model, x = grown(task, outputs)
    thresholds = model.threshold[0].detach().numpy().ravel()
    # Also at the thresholds themselves, where one bit decides about the side.
    edges = np.resize(thresholds, (200, FEATURES)).astype(np.float32)
    above = np.nextafter(edges, np.float32(np.inf))
    tiny = np.float32([0.0, -0.0, 1e-35, -1e-35, 1.1e-35, -1.1e-35])
    zeros = np.stack([np.roll(tiny, k) for k in range(FEATURES)])
    for inputs in (x, edges, above, zeros, np.full_like(x[:5], np.nan)):
        expected = booster.predict(inputs, raw_score=True).reshape(len(inputs), outputs)
        found = model(torch.tensor(inputs)).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert len({tuple(row) for row in found}) == 1


TIMES = st.lists(
    st.tuples(st.integers(1, 6), st.booleans(), st.floats(-3, 3), st.floats(0.5, 3)),
    min_size=2,
    max_size=12,
).filter(lambda rows: any(event for _, event, _, _ in rows))


@given(TIMES, st.booleans())
@settings(deadline=None, max_examples=60)
def test_derivatives_are_those_of_coxs_partial_likelihood(rows, weighted):
    """Against automatic derivatives of the loss, with equal times and weights."""
    times, events, risks, factors = (np.array(column, float) for column in zip(*rows, strict=True))
    targets = np.where(events > 0.5, times, -times)
    weights = torch.tensor(factors) if weighted else None

    def total(x):
        own = torch.ones(len(rows), dtype=torch.double) if weights is None else weights
        parts = partial_likelihood(x, torch.tensor(targets), own)
        # Parts are scaled by samples over events, with weights that are 1 on average.
        return (parts * own).sum() * own[torch.tensor(events) > 0.5].sum() / own.sum()

    point = torch.tensor(risks, requires_grad=True)
    (expected,) = torch.autograd.grad(total(point), point)
    curvature = torch.autograd.functional.hessian(total, torch.tensor(risks)).diagonal()
    first, second = cox_derivatives(risks, targets, factors if weighted else None)
    np.testing.assert_allclose(first, expected.numpy(), atol=1e-8)
    np.testing.assert_allclose(second, curvature.numpy(), atol=1e-8)


def test_trees_for_survival_start_from_the_model_so_far():
    """One tree of one leaf more on top of given risks is a Newton step from there."""
    data = planted((200,), task="survival", tests=0)
    x, y = data.samples.inputs[0], data.samples.targets
    given_risks = np.linspace(-1, 1, 200)
    booster = grown_booster(
        x, y, given_risks[:, None], "survival", trees=1, rate=1.0, depth=1, least=1, seed=3
    )
    first, second = cox_derivatives(given_risks, y.astype(float))
    (tree,) = booster.dump_model()["tree_info"]
    left = x[:, tree["tree_structure"]["split_feature"]] <= tree["tree_structure"]["threshold"]
    # LightGBM draws 80 % of the samples for a tree, so the leaves agree about.
    for side, own in ((left, "left_child"), (~left, "right_child")):
        step = -first[side].sum() / (second[side].sum() + FIXED["lambda_l2"])
        assert tree["tree_structure"][own]["leaf_value"] == pytest.approx(step, abs=0.25)


@given(st.floats(-1e6, 1e6, allow_nan=False), st.floats(-1e6, 1e6, width=32, allow_nan=False))
@settings(deadline=None)
def test_a_threshold_that_is_rounded_down_divides_32_bit_numbers_alike(threshold, value):
    assert (value <= threshold) == (value <= float(rounded_down(threshold)))


def test_a_tree_by_hand():
    """x0 ≤ 1 goes left; there is one more split on the right: x1 ≤ 2."""
    model = Forest(features=2, members=2, trees=1, depth=2)
    with torch.no_grad():
        model.feature[0, 0, 0] = torch.tensor([0.0, 2.0, 1.0])
        model.threshold[0, 0, 0] = torch.tensor([1.0, 0.0, 2.0])
        model.leaf[0, 0, 0] = torch.tensor([10.0, 10.0, 20.0, 30.0])
        model.leaf[1, 0, 0] = 100.0  # a tree without splits, of somebody else
        model.weight[:] = torch.tensor([0.75, 0.25])
        model.intercept[:] = 1.0
    x = torch.tensor([[1.0, 9.0], [1.5, 2.0], [1.5, 2.5]])
    assert model(x).tolist() == [[33.5], [41.0], [48.5]]


def vectors(model):
    schema = ParameterSchema.of(model)
    return schema, schema.flatten(dict(model.named_parameters()))


def test_joined_forests_keep_their_own_trees_and_weights_and_get_those_of_others():
    _, model, x = grown("binary", 1)
    schema, own = vectors(model)
    assert is_forest(schema)
    other = own.clone()
    schema.unflatten(other)["leaf"][0] *= 3.0
    both = schema.unflatten(joined(schema, own, other[None]))
    assert torch.equal(both["leaf"][1], 3 * model.leaf[0])
    assert torch.equal(both["leaf"][0], model.leaf[0])
    assert both["weight"].tolist() == [1.0, 0.0]
    inputs = torch.tensor(x[:10])
    alone = model(inputs)
    rows = mixtures(schema, own, other, torch.tensor([0.25, 1.0]))
    for row, factor in zip(rows, (1.5, 3.0), strict=True):
        mixed = torch.func.functional_call(model, schema.unflatten(row), (inputs,))
        torch.testing.assert_close(mixed, factor * alone)


@pytest.mark.parametrize(
    ("part", "value", "problem"),
    [
        ("feature", 99.0, "a tree splits on column 99 of 6"),
        ("feature", -1.0, "a tree splits on column -1 of 6"),
        ("feature", 1.5, "a tree splits on column 1.5 of 6"),
        ("threshold", torch.nan, "not finite"),
        ("leaf", torch.inf, "not finite"),
        ("leaf", 1e30, "a leaf of 1e+30"),
        ("weight", -0.5, "weights of contributors"),
    ],
)
def test_what_is_no_forest_is_named(part, value, problem):
    schema, vector = vectors(forest(members=2, trees=2))
    assert malformed(schema, vector, FEATURES) == ""
    schema.unflatten(vector)[part].flatten()[-1] = value
    assert problem in malformed(schema, vector, FEATURES)


def test_trees_of_any_depth_are_not_built():
    with pytest.raises(SettingsError, match="depth is 40; expected 1 to 10"):
        forest(depth=40)


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_row_of_weight_two_grows_the_trees_of_two_rows(task, monkeypatch):
    monkeypatch.setitem(FIXED, "bagging_fraction", 1.0)  # else other rows are left out
    data = planted((200,), task=task, tests=0)
    # Few different values, so that copies do not change the bins of LightGBM.
    x, y = data.samples.inputs[0].round(), data.samples.targets
    twice = np.arange(200) % 3 == 0

    def trees(rows, weights=None):
        given = {"trees": 5, "rate": 0.2, "depth": 3, "least": 1, "seed": 3}
        zero = np.zeros((len(rows), 1))
        return grown_booster(x[rows], y[rows], zero, task, weights=weights, **given).predict(x)

    rows = np.arange(200)
    weighted = trees(rows, np.where(twice, 2.0, 1.0).astype(np.float32))
    np.testing.assert_allclose(weighted, trees(np.sort(np.r_[rows, rows[twice]])), rtol=1e-5)
    assert np.abs(weighted - trees(rows)).max() > 0.01

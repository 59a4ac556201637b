"""Benefits between boosted trees, by the estimator ``transfer``."""

import numpy as np
import pytest
import torch

from fedegoists.benefit import LearnSettings, learn
from fedegoists.benefit.decoys import decoy
from fedegoists.federation import SimulatedFederation, TrainSettings
from fedegoists.learning.forest import malformed
from tests.trees import FEATURES, forest, planted, trained

pytest.importorskip("lightgbm")
LOCAL = TrainSettings(steps=30, batch_size=1_000_000, learning_rate=0.1)
SETTINGS = LearnSettings(estimator="transfer", local=LOCAL, repeats=2)


def silos(random=(2,)):
    model = forest(members=2, trees=30)
    return SimulatedFederation(planted((400, 400, 400), random=random), model)


def test_a_silo_with_random_labels_is_of_no_benefit():
    federation = silos()
    estimate = learn(federation, SETTINGS)
    gains = estimate.gains.mean((0, 1))  # over what shrinking alone saves
    assert gains[[0, 1], [1, 0]].min() > 0.05
    assert gains[2, :2].max() < 0.03
    assert np.all(estimate.weights[2, :2] < estimate.weights[[1, 0], [0, 1]])


class Watching(SimulatedFederation):
    """Notes every model that the first silo is asked about."""

    seen: list

    def call(self, requests, timeout=None):
        for name, request in requests.items():
            if name.name == "s0" and hasattr(request, "rows"):
                self.seen += list(request.rows)
        return super().call(requests, timeout)


def test_a_competitor_sees_a_decoy_which_is_a_forest():
    model = forest(members=2, trees=30)
    data = planted((100, 100, 100, 100))
    federation = Watching(data, model)
    federation.seen = []
    estimate = learn(federation, SETTINGS, apart=[("s0", "s1")], secret="s")
    assert not estimate.failures
    assert estimate.weights[1, 0] == estimate.weights[0, 1] == 0
    leaves = {
        tree.numpy().tobytes()
        for row in federation.seen
        for tree in federation.schema.unflatten(row)["leaf"][1].unbind()
        if tree.any()
    }
    alone = learn(SimulatedFederation(data, forest(members=2, trees=30)), SETTINGS)
    assert np.all(alone.weights[2:, 0] == pytest.approx(estimate.weights[2:, 0]))
    # The trees of s1, as it trains them, are nowhere among the models that s0 has seen.
    shown = Watching(data, forest(members=2, trees=30))
    shown.seen = []
    learn(shown, SETTINGS, secret="s")
    open_leaves = {
        tree.numpy().tobytes()
        for row in shown.seen
        for tree in shown.schema.unflatten(row)["leaf"][1].unbind()
        if tree.any()
    }
    hidden = open_leaves - leaves
    assert len(hidden) > 40  # two repeats of thirty trees; a few are the same in two silos
    assert len(leaves - open_leaves) > 40  # those of decoys


def test_a_decoy_is_a_forest_that_is_none_of_those_it_is_made_from():
    federation, outcome = trained(planted((100, 100, 100)), "local", rounds=4)
    schema, known = federation.schema, outcome.state.parameters
    start = schema.flatten(dict(forest(members=3, trees=50).named_parameters()))
    found = decoy(start, known, schema, torch.Generator().manual_seed(0))
    assert malformed(schema, found, FEATURES) == ""
    leaves = schema.unflatten(found)["leaf"][0, :20]
    assert leaves.flatten(1).any(1).all()
    for own in schema.unflatten(known)["leaf"][:, 0, :20]:
        assert not (leaves == own).all((1, 2)).any()
    again = decoy(start, known, schema, torch.Generator().manual_seed(0))
    assert torch.equal(found, again)


def test_trees_do_not_start_at_random():
    schema = silos().schema
    empty = schema.flatten(dict(forest(members=2, trees=30).named_parameters()))
    assert all(torch.equal(schema.drawn(seed), empty) for seed in (0, 7))

"""Bagging: trees of all members, weights of one's own."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import ttest_rel

from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, SimulatedFederation, TrainSettings
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Gradient, LocalTerms, Train
from fedegoists.methods import METHODS, RunSettings, run
from fedegoists.methods.failed_rounds import FailedRunError
from tests.silos import federation as network_federation
from tests.silos import initial
from tests.trees import QUICK, chosen_scores, forest, planted, trained

pytest.importorskip("lightgbm")


@pytest.mark.parametrize("task", ["binary", "classification", "regression", "survival"])
def test_bagging_beats_trees_alone_significantly(task):
    """Four small silos with one rule, over seeds."""
    alone, together = [], []
    sign = -1 if task == "regression" else 1
    for seed in range(4):
        data = planted((120,) * 4, seed, task, tests=400)
        for name, found in (("local", alone), ("bagging", together)):
            found += (sign * chosen_scores(*trained(data, name))).tolist()
    test = ttest_rel(together, alone, alternative="greater")
    assert test.pvalue < 0.01


def test_a_contributor_with_random_labels_is_not_used():
    for seed in range(3):
        federation, outcome = trained(planted((240,) * 4, seed, random=(3,)), "bagging")
        weights = federation.schema.unflatten(outcome.state.parameters)["weight"]
        # Slots are in the order of the others: s3 is the last one of everybody else.
        assert weights[:3, 3].max() < 0.15
        assert weights[:3, :3].sum(1).min() > 0.85
        # And others are of no use to the one with random labels, by much less than to each other.
        assert (1 - weights[:3, 0]).mean() > 0.3


def test_alone_and_over_a_border_nothing_is_exchanged():
    data = planted((100, 80, 90))
    names = [Participant(f"s{k}") for k in range(3)]
    federation, outcome = trained(data, "bagging", coalitions=[(names[0], names[1]), (names[2],)])
    _, local = trained(data, "local")
    assert torch.equal(outcome.state.parameters[2], local.state.parameters[2])
    leaves = federation.schema.unflatten(outcome.state.parameters)["leaf"]
    assert torch.equal(leaves[0, 1], leaves[1, 0])
    assert torch.equal(leaves[1, 1], leaves[0, 0])
    assert not leaves[:, 2].any()
    slot = federation.schema.size // 3
    sent = outcome.spent["bytes_sent"]
    assert sent[names[0]] == 5 * 4 * slot
    assert sent.get(names[2], 0) == 0


def test_one_round_by_hand():
    """Members grow trees as alone; then each model holds both, with weights of its own."""
    data = planted((80, 600))
    _, alone = trained(data, "local", rounds=1)
    federation, both = trained(data, "bagging", rounds=1)
    schema = federation.schema
    own, found = schema.unflatten(alone.state.parameters), schema.unflatten(both.state.parameters)
    for name in ("feature", "threshold", "leaf"):
        assert torch.equal(found[name][:, 0], own[name][:, 0])
        assert torch.equal(found[name][:, 1], own[name].flip(0)[:, 0])
    assert torch.equal(found["intercept"], own["intercept"])
    torch.testing.assert_close(found["weight"].sum(1), torch.ones(2))
    assert found["weight"][0, 1] > 0  # those of the large one


class Tampering(SimulatedFederation):
    """The first silo sends a tree that splits on a column that does not exist."""

    def call(self, requests, timeout=None):
        replies = super().call(requests, timeout)
        for name, reply in replies.items():
            if name.name == "s0" and isinstance(reply, Trained):
                parameters = reply.parameters.clone()
                parameters[0] = 4711.0
                replies[name] = reply.changed(parameters=parameters)
        return replies


def test_a_malformed_forest_is_refused_and_the_others_go_on():
    data = planted((100, 100, 100))
    model = forest(members=3, trees=50)
    federation = Tampering(data, model)
    start = federation.schema.flatten(dict(model.named_parameters())).expand(3, -1).clone()
    outcome = run(
        METHODS["bagging"](QUICK),
        federation,
        [federation.participants],
        start,
        RunSettings(rounds=2, seed=0),
    )
    failures = {(one.participant.name, one.detail) for _, one in outcome.failures}
    assert failures == {("s0", "a tree splits on column 4711 of 6")}
    features = federation.schema.unflatten(outcome.state.parameters)["feature"]
    assert features.max() == 6
    assert outcome.best_score[1][0] > 0.5
    leaves = federation.schema.unflatten(outcome.state.parameters)["leaf"]
    assert not leaves[1:, 1].any()  # the slot of s0 at the others
    assert leaves[1:, 0].any()


def test_a_silo_refuses_a_malformed_forest_from_the_server():
    federation, outcome = trained(planted((60, 60)), "local", rounds=1)
    rows = outcome.state.parameters.clone()
    rows[0, 0] = -3.0
    with pytest.raises(FailedRunError, match="no forest: a tree splits on column -3 of 6"):
        run(
            METHODS["local"](QUICK),
            federation,
            [(one,) for one in federation.participants],
            rows[:1].expand(2, -1).clone(),
            RunSettings(rounds=1, seed=0),
        )


def test_what_does_not_fit_is_refused():
    silos = network_federation("mlp")
    with pytest.raises(SettingsError, match=r'bagging joins boosted trees.* set model = "trees"'):
        METHODS["bagging"]().start(silos, [silos.participants], initial("mlp"), 0)
    data = planted((50, 50, 50))
    model = forest(members=2)
    federation = SimulatedFederation(data, model)
    start = federation.schema.flatten(dict(model.named_parameters())).expand(3, -1)
    with pytest.raises(SettingsError, match=r"a coalition has 3 members.*set members = 3"):
        METHODS["bagging"]().start(federation, [federation.participants], start, 0)


@pytest.mark.parametrize("name", [one for one in METHODS if one not in ("local", "bagging")])
def test_methods_for_networks_are_refused_with_the_reason(name):
    with pytest.raises(SettingsError, match=f"{name}: .* methods for trees are local, bagging"):
        trained(planted((50, 50)), name, rounds=1)


def test_a_silo_refuses_to_show_gradients_of_trees_or_to_add_to_them():
    federation, outcome = trained(planted((50, 50)), "local", rounds=1)
    one, row = federation.participants[0], outcome.state.parameters[0]
    for request in (
        Gradient(parameters=row, batch_size=8),
        Train(parameters=row, settings=QUICK, terms=LocalTerms(anchor=row, pull=0.1)),
    ):
        (failure,) = federation.call({one: request}).values()
        assert "the methods local and bagging work with them" in failure.detail


def test_a_full_forest_and_private_training_are_refused():
    data = planted((50, 50))
    with pytest.raises(FailedRunError, match="room for 50 trees of each participant, 50 are there"):
        trained(data, "local", rounds=11)
    private = TrainSettings(steps=2, learning_rate=0.1, clip=1.0, noise=1.0)
    with pytest.raises(FailedRunError, match="cannot be trained with privacy"):
        trained(data, "local", rounds=1, settings=private)


def test_a_silo_with_one_class_or_a_handful_of_rows_trains_all_the_same():
    data = planted((100, 14))
    targets = data.samples.targets.copy()
    targets[data.silos[1].all] = 1
    data = replace(data, samples=replace(data.samples, targets=targets))
    _, outcome = trained(data, "bagging")
    assert not outcome.failures
    assert outcome.state.parameters.isfinite().all()

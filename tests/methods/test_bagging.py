"""Bagging: trees of all members, weights of one's own."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, SimulatedFederation, TrainSettings
from fedegoists.federation.replies import Trained
from fedegoists.federation.requests import Gradient, LocalTerms, Train
from fedegoists.learning import boosting
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
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


def corners(sizes):
    """Silos whose three columns are −1 or 1, with twenty more samples for validation, and four."""
    rng = np.random.default_rng(4)
    parts, start = [], 0
    for k, size in enumerate(sizes):
        rows = np.arange(start, start + size + 24)
        parts.append(SiloIndices(f"s{k}", rows[:size], rows[size:-4], rows[-4:]))
        start += len(rows)
    x = rng.choice([-1.0, 1.0], size=(start, 3)).astype(np.float32)
    y = 1 + 2 * x[:, 0] - x[:, 1] * (x[:, 2] > 0) + 0.5 * rng.normal(size=start)
    data = Samples((x,), y.astype(np.float32))
    return SiloedData("corners", "regression", data, tuple(parts), None, "", ())


class Stumps:
    """What a member knows: its mean, everybody's trees, and weights."""

    def __init__(self, data, k, members):
        self.x, self.y = data.samples.inputs[0], data.samples.targets.astype(float)
        silo = data.silos[k]
        self.k, self.train, self.validation = k, silo.train, silo.validation
        self.mean = self.y[self.train].mean()
        self.trees = {j: [] for j in members}
        self.weights = {j: float(j == k) for j in members}

    def added(self, j, x):
        """T_j(x)."""
        found = np.zeros(len(x))
        for column, left, right in self.trees[j]:
            found += np.where(x[:, column] < 0, left, right)
        return found

    def outputs(self, x):
        return self.mean + sum(w * self.added(j, x) for j, w in self.weights.items())

    def grow(self, trees, rate):
        """LightGBM's split: the largest Σ G²/(n + 1), with G the sum of residuals in a leaf."""
        x = self.x[self.train]
        wrong = self.y[self.train] - self.outputs(x)
        for _ in range(trees):
            gains, leaves = [], []
            for column in x.T:
                sums = [wrong[side].sum() for side in (column < 0, column > 0)]
                counts = [side.sum() for side in (column < 0, column > 0)]
                leaves.append([g / (n + 1) for g, n in zip(sums, counts, strict=True)])
                gains.append(sum(g**2 / (n + 1) for g, n in zip(sums, counts, strict=True)))
            c = int(np.argmax(gains))
            left, right = (rate * value for value in leaves[c])
            self.trees[self.k].append((c, left, right))
            wrong = wrong - np.where(x[:, c] < 0, left, right)

    def weigh(self, other, caution):
        """The least of Σ (r + w d)²/(2 s) + caution · w, with r wrong by own trees, s = mean r²."""
        x, n = self.x[self.validation], len(self.validation)
        wrong = self.mean + self.added(self.k, x) - self.y[self.validation]
        apart = self.added(other, x) - self.added(self.k, x)
        square = np.mean(wrong**2)
        w = -(np.mean(wrong * apart) + caution * square / n) / np.mean(apart**2)
        self.weights = {self.k: 1 - np.clip(w, 0, 1), other: np.clip(w, 0, 1)}


def test_two_rounds_by_hand(monkeypatch):
    """Stumps and weights in numpy; without LightGBM's draws of samples and columns.

    Public code (Flower, NVIDIA FLARE) adds the trees of all with equal weights; here each member
    weighs those of others on its own validation samples, and boosts on its own mixture.
    """
    for name in ("bagging_fraction", "feature_fraction"):
        monkeypatch.setitem(boosting.FIXED, name, 1.0)
    data = corners((8, 60, 40))
    model = build_model("trees", 0, features=3, outputs=1, members=2, trees=9, depth=1, caution=0.2)
    federation = SimulatedFederation(data, model)
    a, b, c = federation.participants
    method = METHODS["bagging"](TrainSettings(steps=2, batch_size=10**6, learning_rate=0.4))
    start = federation.schema.flatten(dict(model.named_parameters())).expand(3, -1).clone()
    groups = [(a, b), (c,)]
    state = method.start(federation, groups, start, 5)
    know = [Stumps(data, 0, (0, 1)), Stumps(data, 1, (1, 0)), Stumps(data, 2, (2,))]
    every = np.array([[p, q, r] for p in (-1, 1) for q in (-1, 1) for r in (-1, 1)], np.float32)
    for _ in range(2):
        state, _ = method.round(federation, groups, state, 5)
        for one in know:
            one.grow(2, 0.4)
        know[0].trees[1], know[1].trees[0] = know[1].trees[1], know[0].trees[0]
        know[0].weigh(1, 0.2)
        know[1].weigh(0, 0.2)
        for one, row in zip(know, state.parameters, strict=True):
            parts = federation.schema.unflatten(row)
            found = torch.func.functional_call(model, parts, (torch.tensor(every),))
            # The search for weights ends where it gains less than 1e-7.
            np.testing.assert_allclose(found[:, 0].detach(), one.outputs(every), atol=2e-3)
    # The small one uses trees of the large one, and not only these.
    assert 0.1 < know[0].weights[1] < 0.9


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

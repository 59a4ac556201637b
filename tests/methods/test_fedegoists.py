"""FedEgoists by hand, and what may travel where."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedegoists.errors import SettingsError
from fedegoists.federation import Personal, TrainSettings
from fedegoists.learning.data import Samples
from fedegoists.methods import FedEgoists, Local
from tests.methods.hand import START, assert_close, descended, lines, played
from tests.silos import federation, groups, initial, participant, run, silos

SETTINGS = TrainSettings(steps=2, batch_size=64, learning_rate=0.1, momentum=0.5)


def edges_of(*named):
    return tuple((participant(j), participant(i)) for j, i in named)


EDGES = edges_of(("a", "b"), ("c", "b"), ("b", "c"))
METHOD = FedEgoists(
    SETTINGS, benefit=EDGES, own_weight=0.7, preference_rate=0.5, hidden=4, layers=2
)
GROUP = [["a", "b", "c"]]


class Network:
    """A hypernetwork with two hidden layers, forwards and backwards in numpy."""

    def __init__(self, tensors, row, inputs):
        self.w0, self.b0, self.w1, self.b1 = (
            tensors[f"network.{name}"][row].double().numpy().squeeze()
            for name in ("weight0", "bias0", "weight1", "bias1")
        )
        self.w0 = self.w0[:inputs]
        self.head, self.start = np.zeros((len(self.b1), 3)), START
        self.names = ("w0", "b0", "w1", "b1", "head", "start")

    def hidden(self, r):
        before0 = r @ self.w0 + self.b0
        z0 = np.where(before0 > 0, before0, 0.2 * before0)
        before1 = z0 @ self.w1 + self.b1
        return z0, np.where(before1 > 0, before1, 0.2 * before1)

    def generate(self, r):
        return self.start + self.hidden(r)[1] @ self.head

    def backwards(self, r, gradient):
        """Gradients of all parameters and of r, given that of h."""
        z0, z1 = self.hidden(r)
        back1 = self.head @ gradient * np.where(z1 > 0, 1, 0.2)
        back0 = self.w1 @ back1 * np.where(z0 > 0, 1, 0.2)
        slopes = (
            *(np.outer(r, back0), back0, np.outer(z0, back1), back1),
            *(np.outer(z1, gradient), gradient),
        )
        return dict(zip(self.names, slopes, strict=True)), self.w0 @ back0


def by_hand(silos_, drawn, rounds, preference_rate, way):
    """b minimises over itself, a and c, and c over itself and b; a learns alone."""
    members = {1: [1, 0, 2], 2: [2, 1]}
    preferences = {1: np.array([0.7, 0.15, 0.15]), 2: np.array([0.7, 0.3])}
    networks = {i: Network(drawn, i - 1, len(members[i])) for i in members}
    alone, expected = START, []
    for _ in range(rounds):
        alone = descended(lambda w: silos_.gradient(0, w), alone, [0.1, 0.1], 0.5)
        speeds = {i: dict.fromkeys(networks[i].names, 0.0) for i in members}
        for _ in range(2):
            for i, network in networks.items():
                r = preferences[i]
                h = network.generate(r)
                each = [silos_.gradient(j, h) for j in members[i]]
                total = sum(share * g for share, g in zip(r, each, strict=True))
                gain = 1 + np.sum(network.hidden(r)[1] ** 2)
                slopes, _ = network.backwards(r, total)
                for name, slope in slopes.items():
                    speeds[i][name] = 0.5 * speeds[i][name] + slope
                    moved = getattr(network, name) - 0.1 / gain * speeds[i][name]
                    setattr(network, name, moved)
                own = silos_.gradient(i, network.generate(r), "validation")
                if way == "alignment":  # minus the cosines of their gradients with the own one
                    slope = -np.array([g @ own / np.sqrt(g @ g * (own @ own)) for g in each])
                else:
                    slope = network.backwards(r, own)[1]
                r = np.clip(r - preference_rate * slope, 0.001, 1)
                preferences[i] = r / r.sum()
        models = [alone, *(networks[i].generate(preferences[i]) for i in members)]
        expected.append((models, preferences[1].copy(), preferences[2].copy()))
    return expected


@pytest.mark.parametrize("way", ["alignment", "hypernetwork"])
@pytest.mark.parametrize("preference_rate", [0.0, 0.5, 500.0])
def test_two_rounds_by_hand(preference_rate, way):
    """Hidden layers are read off after one step: behind a last layer of zero they do not move.

    The released code trains over all members of a coalition, not over contributors only, and takes
    these steps in addition to those of Local.
    """
    silos_ = lines((6, 3, 4))
    method = replace(METHOD, preference_rate=preference_rate, preferences=way)
    once = replace(method, settings=SETTINGS.changed(steps=1))
    for both in silos_.federations():
        drawn = played(once, both, GROUP, 1)[0][1].tensors
        expected = by_hand(silos_, drawn, 2, preference_rate, way)
        states, reports = played(method, both, GROUP, 2)
        for state, (models, b, c) in zip(states[1:], expected, strict=True):
            assert_close(state.parameters, models)
            assert_close(state.tensors["preferences"], [b, [*c, 0]])
        if preference_rate == 500:  # so fast that a preference falls to the least there is
            assert min(b.min(), c.min()) < 0.002
        # Two steps: a trains on its 6 samples and looks at b's model, b (3 samples) and c (4) look
        # at their own and each other's; and 3 validation samples for each step on preferences.
        checks = 2 if preference_rate else 0
        passes = {"a": 2 * 2 * 6, "b": 2 * 2 * 3 + checks * 3, "c": 2 * 2 * 4 + checks * 3}
        assert reports[1].sample_passes == passes
        # What a sends and receives for its own training does not travel; a model has 12 bytes.
        traffic = {"a": 2 * 12, "b": (2 * 2 + checks) * 12, "c": (2 * 2 + checks) * 12}
        assert reports[1].bytes_sent == reports[1].bytes_received == traffic


def test_the_first_step_follows_the_weighted_gradients_of_those_who_answer():
    """b − rate · (0.7 g_b + 0.15 g_c)/0.85 where a is silent."""
    silos_ = lines((6, 3, 4))
    g = [silos_.gradient(k, START) for k in range(3)]
    method = replace(METHOD, settings=SETTINGS.changed(steps=1), preference_rate=0.0)
    for behaviours, b in (
        ({}, 0.7 * g[1] + 0.15 * (g[0] + g[2])),
        ({"a": lambda operation, reply: {}}, (0.7 * g[1] + 0.15 * g[2]) / 0.85),
    ):
        for both in silos_.federations(behaviours=behaviours):
            states, reports = played(method, both, GROUP, 1)
            assert_close(states[1].parameters[1], START - 0.1 * b)
            assert_close(states[1].parameters[2], START - 0.1 * (0.7 * g[2] + 0.3 * g[1]))
            assert {f.participant.name for f in reports[0].failures} == set(behaviours)


def test_with_all_weight_on_oneself_it_is_local():
    for both in lines((6, 3, 4)).federations():
        egoists, reports = played(replace(METHOD, own_weight=1.0), both, GROUP, 3)
        alone, _ = played(Local(SETTINGS), both, GROUP, 3)
        assert torch.equal(egoists[3].parameters, alone[3].parameters)
        assert not reports[2].bytes_sent


def test_each_phase_has_a_schedule_of_its_own():
    """Eight steps in all, two a round: the first half, two rounds, is Local of four steps.

    Then the rate begins anew: 0.1 · (1 + cos(π t/4))/2 for t = 0 and 1 in the third round. Without
    contributors a trains alone throughout, with one cosine.
    """
    falling = SETTINGS.changed(total_steps=8)
    method = replace(METHOD, settings=falling, warm_up=0.5, generator="direct", preference_rate=0.0)
    silos_ = lines((6, 3, 4))
    for both in silos_.federations():
        warm, reports = played(method, both, GROUP, 3)
        short, _ = played(Local(SETTINGS.changed(total_steps=4)), both, GROUP, 2)
        alone, _ = played(Local(falling), both, GROUP, 3)
        assert torch.equal(warm[2].parameters[1:], short[2].parameters[1:])
        assert not reports[1].bytes_sent
        assert reports[2].bytes_sent.keys() == {"a", "b", "c"}
        assert torch.equal(warm[3].parameters[0], alone[3].parameters[0])
        rates = [0.1, 0.05 * (1 + np.cos(np.pi / 4))]
        for i, shares in ((1, {0: 0.15, 1: 0.7, 2: 0.15}), (2, {2: 0.7, 1: 0.3})):
            expected = descended(
                lambda w, own=shares: sum(r * silos_.gradient(j, w) for j, r in own.items()),
                warm[2].parameters[i].double().numpy(),
                rates,
                0.5,
            )
            assert_close(warm[3].parameters[i], expected)


@pytest.mark.parametrize(("warm_up", "rounds"), [(0.0, 0), (0.3, 1), (0.5, 2), (1.0, 4)])
def test_the_phases_have_all_steps_together(warm_up, rounds):
    falling = SETTINGS.changed(total_steps=8)
    first, warm, joint = replace(METHOD, settings=falling, warm_up=warm_up).phases()
    assert first == rounds
    assert warm.total_steps == max(2 * rounds, 1)
    assert joint.total_steps == max(8 - 2 * rounds, 1)
    assert METHOD.phases() == (0, SETTINGS, SETTINGS)  # without a total there is no warm-up


def test_contributors_are_benefit_edges_inside_the_coalition():
    a, b, c, d = names = tuple(map(participant, "abcd"))
    coalitions = [[c, a, b], [d]]
    some = FedEgoists(benefit=(*EDGES, (d, a), (a, d)))
    assert some.contributors(coalitions, names) == {b: [c, a], c: [b]}
    everybody = {a: [c, b], b: [c, a], c: [a, b]}
    assert replace(some, whole_coalition=True).contributors(coalitions, names) == everybody
    assert FedEgoists().contributors(coalitions, names) == everybody


def private_slopes(data, both, models, private):
    """The gradient of silo j's loss at model i with j's own output layer, as [i, j]."""
    slopes = torch.zeros(3, 3, models.shape[1])
    for i in range(3):
        for j, silo in enumerate(data.silos):
            mixed = torch.where(private, models[j], models[i]).requires_grad_()
            parts = both.schema.unflatten(mixed)
            x = torch.tensor(data.samples.inputs[0][silo.train])
            y = torch.tensor(data.samples.targets[silo.train])
            hidden = x @ parts["hidden.weight"].T + parts["hidden.bias"]
            hidden = torch.where(hidden > 0, hidden, 0.2 * hidden)
            output = hidden @ parts["output.weight"].T + parts["output.bias"]
            ((output[:, 0] - y) ** 2).mean().backward()
            slopes[i, j] = mixed.grad
    return slopes


def test_output_layers_stay_in_their_silos_and_learn_with_momentum():
    """A round of one step and one of two, by automatic differentiation.

    A contributor answers with its own output layer, and so each body follows all three. One's own
    output layer follows one's own gradients, with momentum and decay, from rest in every round.
    """
    data = silos("mlp", sizes=(40, 36, 38))
    once = TrainSettings(steps=1, batch_size=64, learning_rate=0.02, momentum=0.5, weight_decay=0.1)
    twice = once.changed(steps=2)
    method = FedEgoists(once, personal=("output.",), own_weight=0.6, preference_rate=0.0)
    own_layers = Personal(prefixes=("output.",), slot="fedegoists")
    coalitions = groups([["s0", "s1", "s2"]])
    shares = 0.2 + 0.4 * torch.eye(3)[..., None]
    for execution in ("looped", "stacked"):
        both = federation("mlp", data, execution=execution)
        private = both.schema.mask(["output."])

        def whole(state, both=both):
            rows = zip(both.participants, state.parameters, strict=True)
            return torch.stack([both.personal_model(name, row, own_layers) for name, row in rows])

        # Output layers that differ: everybody trains alone for a round first.
        state = method.start(both, coalitions, initial("mlp"), 5)
        warm, _ = replace(method, own_weight=1.0).round(both, coalitions, state, 5)
        before, memory = whole(warm), both.memory("fedegoists")
        slopes = private_slopes(data, both, before, private)
        bodies = before - 0.02 * ((shares * slopes).sum(1) + 0.1 * before)
        speed = slopes[range(3), range(3)] + 0.1 * before
        expected = torch.where(private, before - 0.02 * speed, bodies)
        after, report = method.round(both, coalitions, warm, 5)
        torch.testing.assert_close(whole(after), expected)
        # Three models without their output layers, there and back.
        size = 4 * 3 * int((~private).sum())
        assert report.bytes_sent == report.bytes_received == dict.fromkeys(both.participants, size)
        both.restore("fedegoists", memory)
        after, _ = replace(method, settings=twice).round(both, coalitions, warm, 5)
        slopes = private_slopes(data, both, expected, private)
        speed = slopes[range(3), range(3)] + 0.1 * expected + 0.5 * speed
        torch.testing.assert_close(whole(after)[:, private], (expected - 0.02 * speed)[:, private])


def test_output_layers_learn_as_stably_as_in_local_training():
    """A learning rate at which everybody can train alone."""
    quick = TrainSettings(steps=3, batch_size=32, learning_rate=0.05, momentum=0.9)
    method = FedEgoists(quick, personal=("output.",))
    for execution in ("looped", "stacked"):
        both = federation("mlp", execution=execution)
        outcome = run(method, both, [["s0", "s1", "s2"]], initial("mlp"), rounds=5, seed=5)
        losses = [row.value for row in outcome.rows if row.round == 5 and row.metric == "loss"]
        assert max(losses) < 10


def test_a_stopped_run_with_output_layers_continues_to_the_same_bytes(tmp_path):
    """The momentum of an output layer is not in the checkpoint: a round starts at rest."""
    quick = TrainSettings(steps=3, batch_size=32, learning_rate=0.05, total_steps=12)
    method = FedEgoists(quick, personal=("output.",), warm_up=0.25, hidden=8)
    args = ([["s0", "s1", "s2"]], initial("mlp"))
    whole = federation("mlp")
    straight = run(method, whole, *args, rounds=4, seed=5)
    path = tmp_path / "state.safetensors"
    run(method, federation("mlp"), *args, rounds=2, seed=5, checkpoint=path)
    resumed = federation("mlp")
    outcome = run(method, resumed, *args, rounds=4, seed=5, checkpoint=path)
    assert torch.equal(outcome.state.parameters, straight.state.parameters)
    assert outcome.rows == straight.rows
    assert whole.memory("fedegoists").keys() == resumed.memory("fedegoists").keys()
    for key, value in whole.memory("fedegoists").items():
        assert torch.equal(value, resumed.memory("fedegoists")[key])


NAMES = tuple(participant(f"s{k}") for k in range(4))
PAIRS = [(one, other) for one in NAMES for other in NAMES if one != other]


@pytest.mark.parametrize("personal", [(), ("output.",)])
@given(
    st.sets(st.sampled_from(PAIRS)),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
    st.sampled_from(NAMES),
)
@example({(NAMES[0], NAMES[1]), (NAMES[1], NAMES[2]), (NAMES[3], NAMES[0])}, [0] * 4, NAMES[0])
@settings(max_examples=6, deadline=None)
def test_nothing_travels_against_or_outside_the_benefit_graph(personal, edges, labels, changed):
    """Change one silo's data: who does not benefit from it inside the coalition has the same bytes.

    With output layers of their own it matters to those further along the edges too: a contributor
    answers with a layer that has followed its own contributors.
    """
    data = silos("mlp", sizes=(50, 45, 40, 48))
    inputs = data.samples.inputs[0].copy()
    silo = data.silos[NAMES.index(changed)]
    inputs[np.concatenate([silo.train, silo.validation])] *= -1.5
    other = replace(data, samples=Samples((inputs,), data.samples.targets))
    coalitions = [[n for n, x in zip(NAMES, labels, strict=True) if x == k] for k in set(labels)]
    inside = nx.DiGraph(
        (j, i) for j, i in edges if any(j in group and i in group for group in coalitions)
    )
    inside.add_nodes_from(NAMES)
    direct = set(inside.successors(changed))
    touched = nx.descendants(inside, changed) if personal else direct
    method = FedEgoists(
        TrainSettings(steps=2, batch_size=16, learning_rate=0.05),
        benefit=tuple(sorted(edges)),
        personal=personal,
        hidden=8,
    )
    for execution in ("looped", "stacked"):
        models = []
        for version in (data, other):
            both = federation("mlp", version, execution=execution)
            state = method.start(both, coalitions, initial("mlp", 4), 5)
            for _ in range(2):
                state, _ = method.round(both, coalitions, state, 5)
            models.append(
                {
                    name: both.personal_model(
                        name, row, Personal(prefixes=personal, slot=method.name)
                    )
                    if personal
                    else row
                    for name, row in zip(NAMES, state.parameters, strict=True)
                }
            )
        for name in NAMES:
            same = torch.equal(models[0][name], models[1][name])
            assert same or name == changed or name in touched
            assert not same or not (name == changed or name in direct)


@pytest.mark.slow
def test_alignment_finds_who_does_harm_and_the_published_way_does_not():
    """Eight in one coalition, four of them with all labels negated."""
    from fedegoists.learning.datasets import load
    from fedegoists.training.repetitions import Repetitions

    trials = Repetitions.simulated({0: load("synthetic-strong", seed=0)}, steps=400, device="cpu")
    silos_ = trials.federation
    group = [silos_.participants]
    shares = {}
    for way in ("alignment", "hypernetwork"):
        method = FedEgoists(trials.defaults.train, preferences=way)
        state = method.start(silos_, group, trials.initial, 0)
        for _ in range(trials.defaults.rounds):
            state, _ = method.round(silos_, group, state, 0)
        # Everybody stands first in its own row, then the others in order.
        preferences = state.tensors["preferences"].numpy()
        harmful = [
            preferences[i, 1:][[(j < 4) != (i < 4) for j in range(8) if j != i]].sum()
            for i in range(8)
        ]
        shares[way] = max(harmful)
    assert shares["alignment"] < 0.05
    assert shares["hypernetwork"] > 0.5


def test_a_benefit_graph_must_be_of_those_who_take_part():
    with pytest.raises(SettingsError, match="names 'x', which does not take part"):
        replace(METHOD, benefit=edges_of(("x", "a"))).contributors(
            groups(GROUP), tuple(map(participant, "abc"))
        )
    with pytest.raises(SettingsError, match="preferences is 'magic'; choose alignment or hyper"):
        FedEgoists(preferences="magic")

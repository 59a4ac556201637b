"""EgoMix by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, Personal, TrainSettings
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.methods import EgoMix, FedAvg, Local
from fedegoists.training.repetitions import Wanted
from tests.methods.hand import START, assert_close, descended, lines, played, starts
from tests.silos import groups, participant, run, simulated

ENDLESS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.0)
GROUPS = [["a", "b", "c"], ["d"]]
A = Participant("a")


def edges_of(*named):
    return tuple((participant(j), participant(i)) for j, i in named)


EDGES = edges_of("ba", "ca", "ab", "bc", "da")
SIZES = (6, 3, 4, 5)
STILL = {"outer": 0.0}
"""Nothing moves but in training."""
PLAIN = {"own": "nothing", "keep_momentum": False, **STILL}
"""Everything is mixed, as in FedAvg."""


def trained(silos, models, rates):
    return np.array(
        [
            descended(lambda w, k=k: silos.gradient(k, w), models[k], rates)
            for k in range(len(models))
        ]
    )


def normalised(matrix):
    return matrix / matrix.sum(1, keepdims=True)


def test_two_rounds_of_mixing_by_hand():
    """Row i mixes i and who benefits i, by samples; an edge from another coalition counts not."""
    silos = lines(SIZES)
    shares = normalised(
        np.array([[6, 3, 4, 0], [6, 3, 0, 0], [0, 3, 4, 0], [0, 0, 0, 5]], dtype=float)
    )
    models = [np.array([START] * 4)]
    for _ in range(2):
        models.append(shares @ trained(silos, models[-1], [0.1] * 3))
    for federation in silos.federations():
        method = EgoMix(ENDLESS, benefit=EDGES, **PLAIN)
        states, reports = played(method, federation, GROUPS, 2)
        for state, expected in zip(states, models, strict=True):
            assert_close(state.parameters, expected)
        assert reports[1].sample_passes == {"a": 18, "b": 9, "c": 12, "d": 15}
        assert reports[1].bytes_sent == reports[1].bytes_received == dict.fromkeys("abc", 12)


def test_three_phases_by_hand():
    """Two rounds alone, two of mixing from the start again, one of tuning at half the rate."""
    settings = TrainSettings(
        steps=3, batch_size=64, learning_rate=0.1, momentum=0.0, total_steps=15
    )
    silos = lines(SIZES)
    shares = normalised(np.array([[6, 3, 4], [6, 3, 4], [6, 3, 4]], dtype=float))

    def rates(rate, rounds, number):
        steps = range(3 * number, 3 * number + 3)
        return [0.5 * rate * (1 + np.cos(np.pi * t / (3 * rounds))) for t in steps]

    models = [np.array([START] * 4)]
    for number in range(2):
        models.append(trained(silos, models[-1], rates(0.1, 2, number)))
    # The last one has nobody to mix with: it keeps what it has, and rests.
    lonely = models[2][3]
    now = np.array([START] * 4)
    for number in range(2):
        now = trained(silos, now, rates(0.1, 2, number))
        now = np.vstack([shares @ now[:3], lonely])
        models.append(now)
    tuned = trained(silos, now, rates(0.05, 1, 0))
    models.append(np.vstack([tuned[:3], lonely]))
    for federation in silos.federations():
        method = EgoMix(settings, alone=0.4, tune=0.2, **PLAIN)
        assert [method.phase(k)[0] for k in range(5)] == ["alone"] * 2 + ["mixing"] * 2 + ["tuning"]
        states, reports = played(method, federation, GROUPS, 5)
        for state, expected in zip(states, models, strict=True):
            assert_close(state.parameters, expected)
        assert [set(report.sample_passes) for report in reports] == [set("abcd")] * 2 + [
            set("abc")
        ] * 3
        assert [bool(report.bytes_sent) for report in reports] == [False] * 2 + [True] * 2 + [False]


def test_the_first_phase_is_local_and_validation_chooses_among_all():
    """A harmful partner: what is kept is exactly what Local keeps with half of the steps."""
    half = TrainSettings(steps=4, batch_size=64, learning_rate=0.05, total_steps=40)
    whole = TrainSettings(steps=4, batch_size=64, learning_rate=0.05, total_steps=80)
    silos = lines((40, 40), slopes=[[1.0, 2.0], [-1.0, -2.0]])
    for personal in ((), ("output.bias",)):
        for federation in silos.federations():
            own = run(Local(half), federation, [["a"], ["b"]], starts(2), rounds=10, seed=3)
            mixed = run(
                EgoMix(whole, personal, alone=0.5, **PLAIN),
                federation,
                [["a", "b"]],
                starts(2),
                rounds=20,
                seed=3,
            )
            kept = mixed.best
            own_layers = personal and Personal(prefixes=personal, slot="egomix/best")
            if personal:
                kept = torch.stack(
                    [
                        federation.personal_model(participant(name), row, own_layers)
                        for name, row in zip("ab", kept, strict=True)
                    ]
                )
            torch.testing.assert_close(kept, own.best)
            assert max(mixed.best_round) <= 10
            assert mixed.spent["sample_passes"][A] == 2 * own.spent["sample_passes"][A]


def test_with_everybody_and_samples_it_is_fedavg():
    for federation in lines(SIZES).federations():
        mixed, _ = played(EgoMix(ENDLESS, **PLAIN), federation, GROUPS, 3)
        plain, _ = played(FedAvg(ENDLESS), federation, GROUPS, 3)
        torch.testing.assert_close(mixed[3].parameters, plain[3].parameters)


def test_the_bias_is_own_and_the_momentum_goes_on():
    """Two rounds by hand: weights and their momenta are mixed, biases and theirs are not."""
    settings = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.9)
    silos = lines(SIZES)
    shares = np.array([[6, 3, 4, 0], [6, 3, 4, 0], [6, 3, 4, 0], [0, 0, 0, 5]], dtype=float)
    shares = normalised(shares)
    models, speeds = np.array([START] * 4), np.zeros((4, 3))
    expected = []
    for _ in range(2):
        for k in range(4):
            for _ in range(3):
                speeds[k] = 0.9 * speeds[k] + silos.gradient(k, models[k])
                models[k] = models[k] - 0.1 * speeds[k]
        models[:, :2], speeds[:, :2] = shares @ models[:, :2], shares @ speeds[:, :2]
        expected.append(models.copy())
    for federation in silos.federations():
        states, reports = played(EgoMix(settings, **STILL), federation, GROUPS, 2)
        assert_close(states[1].parameters, expected[0])
        assert_close(states[2].parameters, expected[1])
        assert_close(states[2].tensors["momentum"], speeds)
        # A model and a momentum of three numbers each.
        assert reports[1].bytes_sent == dict.fromkeys("abc", 24)


def test_mixtures_move_on_over_rounds_by_hand():
    """Three rounds: what a mixture moved by goes on, but for who is alone."""
    silos = lines(SIZES)
    shares = normalised(np.array([[6, 3, 4, 0]] * 3 + [[0, 0, 0, 5]], dtype=float))
    models, velocity, expected = np.array([START] * 4), np.zeros((4, 3)), []
    for _ in range(3):
        mixed = shares @ trained(silos, models, [0.1] * 3)
        velocity = 0.7 * velocity + (mixed - models)
        models = mixed + 0.7 * velocity * np.array([[1], [1], [1], [0]])
        expected.append(models)
    for federation in silos.federations():
        method = EgoMix(ENDLESS, **{**PLAIN, "outer": 0.7})
        states, reports = played(method, federation, GROUPS, 3)
        for state, models in zip(states[1:], expected, strict=True):
            assert_close(state.parameters, models)
        # It is known where models are mixed, so nothing more travels.
        assert reports[2].bytes_sent == dict.fromkeys("abc", 12)


def test_mixtures_that_begin_anew_begin_at_rest():
    """After a phase alone, mixing is as if there had been no phase before, at its own rates."""
    settings = ENDLESS.changed(total_steps=12)
    moving = {**PLAIN, "outer": 0.5}
    for federation in lines(SIZES).federations():
        states, _ = played(EgoMix(settings, alone=0.5, **moving), federation, GROUPS, 4)
        fresh, _ = played(EgoMix(settings.changed(total_steps=6), **moving), federation, GROUPS, 2)
        assert not torch.equal(states[2].parameters[:3], fresh[0].parameters[:3])
        torch.testing.assert_close(states[4].parameters[:3], fresh[2].parameters[:3])


def test_who_only_contributes_does_not_move_on():
    """The last has nobody who benefits it: it trains as alone, and helps the others."""
    edges = edges_of("ba", "ab", "ca")
    for federation in lines((6, 3, 4)).federations():
        states, _ = played(EgoMix(ENDLESS, benefit=edges), federation, [["a", "b", "c"]], 3)
        alone, _ = played(Local(ENDLESS, keep_momentum=True), federation, [], 3)
        torch.testing.assert_close(states[3].parameters[2], alone[3].parameters[2])
        assert not torch.equal(states[3].parameters[:2], alone[3].parameters[:2])


def test_mixtures_of_which_nobody_answers_stay_where_they_are():
    silos, silent = lines((6, 3, 4)), {"a", "b"}
    broken = next(silos.federations(behaviours=dict.fromkeys(silent, lambda *_: {})))
    whole = next(silos.federations())
    method, coalitions = EgoMix(ENDLESS), groups([["a", "b"], ["c"]])
    states, _ = played(method, whole, coalitions, 2)
    after, report = method.round(broken, coalitions, states[2], 5)
    assert {failure.participant.name for failure in report.failures} == silent
    assert torch.equal(after.parameters[:2], states[2].parameters[:2])
    assert not torch.equal(after.parameters[2], states[2].parameters[2])
    again, _ = method.round(whole, coalitions, after, 5)
    assert not torch.equal(again.parameters[:2], after.parameters[:2])


def classes(counts):
    """Silos with so many training samples of each of three classes."""
    rng = np.random.default_rng(2)
    targets, parts, start = [], [], 0
    for k, own in enumerate(counts):
        labels = np.repeat(np.arange(3), own)
        targets += [labels, [0, 1, 2, 0, 1, 2]]
        rows = np.arange(start, start + len(labels) + 6)
        parts.append(SiloIndices("abc"[k], rows[:-6], rows[-6:-3], rows[-3:]))
        start += len(rows)
    y = np.concatenate(targets).astype(np.int64)
    x = rng.normal(size=(len(y), 2)).astype(np.float32)
    return SiloedData("c", "classification", Samples((x,), y), tuple(parts), 3, "", ())


COUNTS = np.array([[4, 2, 0], [1, 0, 3], [0, 5, 0]])
PAIR = groups([["a", "b"], ["c"]])


def logarithms(counts):
    """What the bias starts with, by hand: log((n_c + 1) / (n + 3))."""
    return np.log((counts + 1) / (counts.sum(-1, keepdims=True) + 3))


def bias_of(schema, rows):
    return schema.unflatten(rows)["output.bias"].numpy()


@pytest.mark.parametrize("execution", ["looped", "stacked"])
def test_biases_start_at_the_label_shares_of_their_silos(execution):
    model = build_model("mlp", 0, features=2, outputs=3)
    federation = simulated(classes(COUNTS), model, execution=execution)
    schema = federation.schema
    initial = schema.drawn(4).repeat(3, 1)
    state = EgoMix(ENDLESS).start(federation, PAIR, initial, 5)
    added = bias_of(schema, state.parameters - initial)
    np.testing.assert_allclose(added[:2], logarithms(COUNTS[:2]), rtol=1e-4)
    # Who is alone has nothing to agree on.
    assert not added[2].any()
    rest = torch.ones(schema.size, dtype=torch.bool) ^ schema.mask(["output.bias"])
    assert torch.equal(state.parameters[:, rest], initial[:, rest])
    plain = EgoMix(ENDLESS, prior=False).start(federation, PAIR, initial, 5)
    assert torch.equal(plain.parameters, initial)


@pytest.mark.parametrize("prefix", ["output.", "output.bias", ""])
def test_biases_that_stay_at_home_start_there(prefix):
    """The server sees nothing of them; the silo has them in its memory."""
    federation = simulated(classes(COUNTS), build_model("mlp", 0, features=2, outputs=3))
    schema, answers = federation.schema, []
    initial = schema.drawn(4).repeat(3, 1)
    whole = federation.call

    def call(requests, timeout=None):
        replies = whole(requests, timeout)
        answers.extend(one for one in replies.values() if one.operation == "add_prior")
        return replies

    federation.call = call
    home = tuple(map(participant, "ab"))
    method = EgoMix(ENDLESS, **({"personal": (prefix,)} if prefix else {"at_home": home}))
    state = method.start(federation, PAIR, initial, 5)
    assert torch.equal(state.parameters, initial)
    assert len(answers) == 2
    for name, one, counts in zip(home, answers, COUNTS, strict=False):
        assert not bias_of(schema, one.parameters[None]).any()
        personal = Personal(prefixes=(prefix,), slot="egomix")
        here = federation.personal_model(name, initial[0], personal)
        added = bias_of(schema, (here - initial[0])[None])[0]
        np.testing.assert_allclose(added, logarithms(counts), rtol=1e-4)


def test_after_a_phase_alone_biases_start_when_mixing_does():
    settings = ENDLESS.changed(total_steps=12)
    federation = simulated(classes(COUNTS), build_model("mlp", 0, features=2, outputs=3))
    initial = federation.schema.drawn(4)
    begun, _ = played(EgoMix(settings, alone=0.5), federation, PAIR, 4, initial)
    assert torch.equal(begun[0].parameters, initial.repeat(3, 1))
    fresh, _ = played(EgoMix(settings.changed(total_steps=6)), federation, PAIR, 2, initial)
    torch.testing.assert_close(begun[4].parameters[:2], fresh[2].parameters[:2])


def test_only_the_bias_is_not_mixed():
    federation = simulated(classes(COUNTS), build_model("mlp", 0, features=2, outputs=3))
    schema = federation.schema
    method = EgoMix(ENDLESS, **STILL)
    before = method.start(federation, PAIR, schema.drawn(4).repeat(3, 1), 5)
    apart, _ = Local(ENDLESS, keep_momentum=True).round(
        federation, [], replace(before, tensors=dict(before.tensors)), seed=5
    )
    mixed, _ = method.round(federation, PAIR, before, seed=5)
    own, ours = schema.unflatten(apart.parameters), schema.unflatten(mixed.parameters)
    for name in ("hidden.weight", "output.weight"):
        mean = (6 * own[name][0] + 4 * own[name][1]) / 10
        torch.testing.assert_close(ours[name][:2], torch.stack([mean, mean]))
    torch.testing.assert_close(ours["output.bias"], own["output.bias"])
    torch.testing.assert_close(mixed.parameters[2], apart.parameters[2])


class Layers(nn.Module):
    """Three logits: a body of two by two without a bias, and a head of three by two with one."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2, bias=False)
        self.output = nn.Linear(2, 3)

    def forward(self, x):
        return self.output(self.body(x))


def layers_gradient(data, k, w):
    """Of the mean cross-entropy, by the chain rule: softmax − one-hot goes back to head and body.

    Of the 13 numbers, four are of the body, six of the head and three of its bias.
    """
    rows = data.silos[k].train
    x, y = data.samples.inputs[0][rows].astype(float), data.samples.targets[rows]
    body, head, bias = w[:4].reshape(2, 2), w[4:10].reshape(3, 2), w[10:]
    z = x @ body.T
    likely = np.exp(z @ head.T + bias)
    slope = (likely / likely.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
    return np.concatenate([((slope @ head).T @ x).ravel(), (slope.T @ z).ravel(), slope.sum(0)])


def test_two_rounds_of_the_defaults_by_hand():
    """Everything at once: priors, own biases and both momenta."""
    counts = np.array([[4, 2, 1], [1, 2, 3], [2, 5, 2]])
    data, begin = classes(counts), np.linspace(-0.6, 0.9, 13)
    shares = normalised(np.array([[7, 6], [7, 6]], dtype=float))

    def mixed(vectors):
        """Rows of a and b; the bias of each stays, and c is alone."""
        found = vectors.copy()
        found[:2, :10] = shares @ vectors[:2, :10]
        return found

    models, speeds, velocity = np.array([begin] * 3), np.zeros((3, 13)), np.zeros((3, 13))
    models[:2, 10:] += logarithms(counts[:2])
    expected = [models]
    for _ in range(2):
        trained = models.copy()
        for k in range(3):
            for _ in range(3):
                speeds[k] = 0.9 * speeds[k] + layers_gradient(data, k, trained[k])
                trained[k] -= 0.1 * speeds[k]
        middle, speeds = mixed(trained), mixed(speeds)
        velocity = 0.5 * velocity + (middle - models)
        models = middle + 0.5 * velocity * np.array([[1], [1], [0]])
        expected.append(models)
    settings = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.9)
    for execution in ("looped", "stacked"):
        federation = simulated(data, Layers(), execution=execution)
        states, _ = played(EgoMix(settings), federation, [["a", "b"], ["c"]], 2, begin)
        for state, models in zip(states, expected, strict=True):
            assert_close(state.parameters, models)
        assert_close(states[2].tensors["momentum"], speeds)
        assert_close(states[2].tensors["velocity"][:2], velocity[:2])


def test_who_refuses_starts_without_a_prior_and_takes_part():
    silent = simulated(
        classes(COUNTS),
        build_model("mlp", 0, features=2, outputs=3),
        behaviours={"a": lambda request, reply: {} if request.operation == "add_prior" else reply},
    )
    initial = silent.schema.drawn(4).repeat(3, 1)
    method = EgoMix(ENDLESS)
    before = method.start(silent, PAIR, initial, 5)
    assert [failure.participant for failure in before.failures] == [A]
    assert torch.equal(before.parameters[0], initial[0])
    assert not torch.equal(before.parameters[1], initial[1])
    after, report = method.round(silent, PAIR, before, 5)
    assert not report.failures
    weights = silent.schema.unflatten(after.parameters)["output.weight"]
    torch.testing.assert_close(weights[0], weights[1])


def test_no_silo_is_asked_for_label_counts():
    asked = []

    def operations(federation, **settings):
        asked.clear()
        whole = federation.call
        federation.call = lambda requests: (
            asked.extend((name.name, one.operation) for name, one in requests.items())
            or whole(requests)
        )
        initial = federation.schema.drawn(0).repeat(len(federation.participants), 1)
        EgoMix(ENDLESS, **settings).start(federation, PAIR, initial, 0)
        return asked

    model = build_model("mlp", 0, features=2, outputs=3)
    assert operations(simulated(classes(COUNTS), model)) == [
        ("a", "add_prior"),
        ("b", "add_prior"),
    ]
    assert not operations(simulated(classes(COUNTS), model), prior=False)
    # A regression has no classes.
    assert not operations(next(lines(SIZES[:3]).federations()))


def test_nothing_travels_against_an_edge_with_momentum_and_labels_either():
    counts = np.array([[4, 2, 1], [1, 2, 3], [2, 5, 1]])
    settings = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.9)
    edges = edges_of("ba", "cb", "bc")
    method = EgoMix(settings, benefit=edges)
    model, results = build_model("mlp", 0, features=2, outputs=3), []
    for first in ([4, 2, 1], [1, 0, 6]):
        data = classes(np.vstack([first, counts[1:]]))
        federation = simulated(data, model, execution="looped")
        state = method.start(
            federation, groups([["a", "b", "c"]]), federation.schema.drawn(4).repeat(3, 1), 5
        )
        for _ in range(3):
            state, _ = method.round(federation, groups([["a", "b", "c"]]), state, seed=5)
        results.append(state)
    one, other = results
    for name in ("parameters", "momentum", "velocity"):
        assert torch.equal(one.tensors[name][1:], other.tensors[name][1:])
        assert not torch.equal(one.tensors[name][0], other.tensors[name][0])


def test_nothing_travels_against_an_edge():
    """The first is helped by the second and helps nobody: changing it changes only itself."""
    one = lines((6, 3, 4), seed=1)
    inputs = one.data.samples.inputs[0].copy()
    inputs[one.data.silos[0].train] *= -1.5
    edges = edges_of("ba", "cb", "bc")
    method = EgoMix(ENDLESS, benefit=edges)
    results = []
    for changed in (False, True):
        silos = lines((6, 3, 4), seed=1)
        if changed:
            object.__setattr__(silos.data.samples, "inputs", (inputs,))
        federation = next(silos.federations())
        results.append(played(method, federation, [["a", "b", "c"]], 3)[0][3].parameters)
    assert torch.equal(results[0][1:], results[1][1:])
    assert not torch.equal(results[0][0], results[1][0])


def test_the_benefit_graph_names_participants():
    federation = next(lines().federations())
    with pytest.raises(SettingsError, match="names 'z'"):
        EgoMix(ENDLESS, benefit=edges_of("za")).start(
            federation, groups([["a", "b"]]), starts(2), 0
        )


@pytest.mark.parametrize("name", ["weighting", "sharpness", "by_class"])
def test_a_setting_that_was_removed_is_named(name):
    with pytest.raises(SettingsError, match=f"'{name}' was removed: .* leave it out"):
        Wanted(("egomix",), {"egomix": {name: "samples"}})

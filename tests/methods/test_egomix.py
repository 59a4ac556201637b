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
from tests.methods.hand import START, assert_close, descended, lines, played, starts
from tests.methods.test_pfedgraph import cosine
from tests.silos import groups, participant, run, simulated

ENDLESS = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.0)
GROUPS = [["a", "b", "c"], ["d"]]
A = Participant("a")


def edges_of(*named):
    return tuple((participant(j), participant(i), weight) for j, i, weight in named)


NAMED = (("b", "a", 0.2), ("c", "a", 0.4), ("a", "b", 0.3), ("b", "c", 0.1), ("d", "a", 9.0))
EDGES = edges_of(*NAMED)
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
        method = EgoMix(ENDLESS, benefit=EDGES, weighting="samples", **PLAIN)
        states, reports = played(method, federation, GROUPS, 2)
        for state, expected in zip(states, models, strict=True):
            assert_close(state.parameters, expected)
        assert reports[1].sample_passes == {"a": 18, "b": 9, "c": 12, "d": 15}
        assert reports[1].bytes_sent == reports[1].bytes_received == dict.fromkeys("abc", 12)


@pytest.mark.parametrize("weighting", ["benefit", "updates", "labels"])
def test_weights_of_the_mixtures(weighting):
    silos = lines(SIZES, positives=(6, 1, 2, 5))
    after = trained(silos, [START] * 4, [0.1] * 3)
    updates = after - START
    counts = np.array([[0, 6], [2, 1], [2, 2], [0, 5]], dtype=float)
    edges = np.zeros((4, 4))
    for j, i, weight in NAMED:
        if "d" not in (i, j):
            edges["abcd".index(i), "abcd".index(j)] = weight
    if weighting == "benefit":
        affinity = edges / np.maximum(edges.max(1, keepdims=True), 1e-12)
    else:
        vectors = updates if weighting == "updates" else counts
        alike = np.array([[max(cosine(u, v), 0) for v in vectors] for u in vectors])
        affinity = (edges > 0) * alike**2
    if weighting == "benefit":
        affinity = affinity**2
    np.fill_diagonal(affinity, 1.0)
    expected = normalised(affinity * np.array(SIZES)) @ after
    for federation in silos.federations():
        method = EgoMix(ENDLESS, benefit=EDGES, weighting=weighting, sharpness=2.0, **PLAIN)
        states, _ = played(method, federation, GROUPS, 1)
        assert_close(states[1].parameters, expected)


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
        method = EgoMix(settings, weighting="samples", alone=0.4, tune=0.2, **PLAIN)
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
        mixed, _ = played(EgoMix(ENDLESS, weighting="samples", **PLAIN), federation, GROUPS, 3)
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
        states, reports = played(
            EgoMix(settings, weighting="samples", **STILL), federation, GROUPS, 2
        )
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
        method = EgoMix(ENDLESS, weighting="samples", **{**PLAIN, "outer": 0.7})
        states, reports = played(method, federation, GROUPS, 3)
        for state, models in zip(states[1:], expected, strict=True):
            assert_close(state.parameters, models)
        # It is known where models are mixed, so nothing more travels.
        assert reports[2].bytes_sent == dict.fromkeys("abc", 12)


def test_mixtures_that_begin_anew_begin_at_rest():
    """After a phase alone, mixing is as if there had been no phase before, at its own rates."""
    settings = ENDLESS.changed(total_steps=12)
    moving = {"weighting": "samples", **PLAIN, "outer": 0.5}
    for federation in lines(SIZES).federations():
        states, _ = played(EgoMix(settings, alone=0.5, **moving), federation, GROUPS, 4)
        fresh, _ = played(EgoMix(settings.changed(total_steps=6), **moving), federation, GROUPS, 2)
        assert not torch.equal(states[2].parameters[:3], fresh[0].parameters[:3])
        torch.testing.assert_close(states[4].parameters[:3], fresh[2].parameters[:3])


def test_who_only_contributes_does_not_move_on():
    """The last has nobody who benefits it: it trains as alone, and helps the others."""
    edges = edges_of(("b", "a", 1.0), ("a", "b", 1.0), ("c", "a", 1.0))
    for federation in lines((6, 3, 4)).federations():
        states, _ = played(
            EgoMix(ENDLESS, benefit=edges, weighting="samples"), federation, [["a", "b", "c"]], 3
        )
        alone, _ = played(Local(ENDLESS, keep_momentum=True), federation, [], 3)
        torch.testing.assert_close(states[3].parameters[2], alone[3].parameters[2])
        assert not torch.equal(states[3].parameters[:2], alone[3].parameters[:2])


def test_mixtures_of_which_nobody_answers_stay_where_they_are():
    silos, silent = lines((6, 3, 4)), {"a", "b"}
    broken = next(silos.federations(behaviours=dict.fromkeys(silent, lambda *_: {})))
    whole = next(silos.federations())
    method, coalitions = EgoMix(ENDLESS, weighting="samples"), groups([["a", "b"], ["c"]])
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


def test_classes_are_mixed_by_who_has_them_and_biases_start_at_label_shares():
    counts = np.array([[4, 2, 0], [1, 0, 3], [0, 5, 0]])
    data, model = classes(counts), build_model("mlp", 0, features=2, outputs=3)
    for execution in ("looped", "stacked"):
        federation = simulated(data, model, execution=execution)
        schema = federation.schema
        initial = schema.drawn(4).repeat(3, 1)
        method = EgoMix(ENDLESS, weighting="samples", **STILL)
        before = method.start(federation, groups([["a", "b"], ["c"]]), initial, 5)
        bias = schema.unflatten(before.parameters - initial)["output.bias"].numpy()
        shares = (counts + 1) / (counts.sum(1, keepdims=True) + 3)
        # Who is alone is not asked for its labels.
        np.testing.assert_allclose(bias[:2], np.log(shares[:2]), rtol=1e-4)
        assert not bias[2].any()
        alone = Local(ENDLESS, keep_momentum=True)
        apart, _ = alone.round(
            federation, [], replace(before, tensors=dict(before.tensors)), seed=5
        )
        mixed, _ = method.round(federation, groups([["a", "b"], ["c"]]), before, seed=5)
        own, ours = schema.unflatten(apart.parameters), schema.unflatten(mixed.parameters)
        body = (6 * own["hidden.weight"][0] + 4 * own["hidden.weight"][1]) / 10
        torch.testing.assert_close(ours["hidden.weight"][:2], torch.stack([body, body]))
        first, second = own["output.weight"][:2]
        # The first class: four and one; the second and third are with one of them only.
        rows = torch.stack([(4 * first[0] + second[0]) / 5, first[1], second[2]])
        torch.testing.assert_close(ours["output.weight"][:2], torch.stack([rows, rows]))
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
    """Everything at once: label weights, priors, heads by class, own biases and both momenta."""
    counts = np.array([[4, 2, 1], [1, 2, 3], [2, 5, 2]])
    data, begin = classes(counts), np.linspace(-0.6, 0.9, 13)
    sizes, alike = counts.sum(1), np.eye(3)
    alike[0, 1] = alike[1, 0] = cosine(counts[0], counts[1])
    of_body = normalised(alike[:2, :2] * sizes[:2])
    of_class = [normalised(alike[:2, :2] * counts[:2, c]) for c in range(3)]

    def mixed(vectors):
        """Rows of a and b; the bias of each stays, and c is alone."""
        found = vectors.copy()
        found[:2, :4] = of_body @ vectors[:2, :4]
        for c, shares in enumerate(of_class):
            places = [4 + 2 * c, 5 + 2 * c]
            found[:2, places] = shares @ vectors[:2, places]
        return found

    models, speeds, velocity = np.array([begin] * 3), np.zeros((3, 13)), np.zeros((3, 13))
    models[:2, 10:] += np.log((counts[:2] + 1) / (counts[:2].sum(1, keepdims=True) + 3))
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


def test_who_tells_no_labels_is_taken_to_have_all_alike():
    """It keeps a share in its own outputs, and in those of whom it helps."""
    counts = np.array([[4, 2, 0], [1, 0, 3], [0, 5, 0]])
    model = build_model("mlp", 0, features=2, outputs=3)
    silent = simulated(
        classes(counts),
        model,
        behaviours={"a": lambda request, reply: {} if request.operation == "describe" else reply},
    )
    schema, coalitions = silent.schema, groups([["a", "b"], ["c"]])
    initial = schema.drawn(4).repeat(3, 1)
    method = EgoMix(ENDLESS, weighting="samples", **STILL)
    before = method.start(silent, coalitions, initial, 5)
    assert [failure.participant for failure in before.failures] == [A]
    apart, _ = Local(ENDLESS, keep_momentum=True).round(silent, [], before, seed=5)
    mixed, _ = method.round(silent, coalitions, before, seed=5)
    own = schema.unflatten(apart.parameters)["output.weight"]
    ours = schema.unflatten(mixed.parameters)["output.weight"]
    # Two of each class against one, none and three.
    rows = torch.stack(
        [(2 * own[0, 0] + own[1, 0]) / 3, own[0, 1], (2 * own[0, 2] + 3 * own[1, 2]) / 5]
    )
    torch.testing.assert_close(ours[0], rows)
    torch.testing.assert_close(ours[1], rows)


def test_labels_are_not_asked_for_where_nothing_depends_on_them():
    asked = []
    federation = next(lines(SIZES).federations())
    whole = federation.call
    federation.call = lambda requests: (
        asked.append((sorted(requests), {one.operation for one in requests.values()}))
        or whole(requests)
    )
    EgoMix(ENDLESS, weighting="samples", prior=False, by_class=False).start(
        federation, groups(GROUPS), starts(4), 0
    )
    EgoMix(ENDLESS).start(federation, groups(GROUPS), starts(4), 0)
    assert asked == [([], set()), (list(map(participant, "abc")), {"describe"})]


def test_nothing_travels_against_an_edge_with_momentum_and_labels_either():
    counts = np.array([[4, 2, 1], [1, 2, 3], [2, 5, 1]])
    settings = TrainSettings(steps=3, batch_size=64, learning_rate=0.1, momentum=0.9)
    edges = edges_of(("b", "a", 1.0), ("c", "b", 1.0), ("b", "c", 1.0))
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
    edges = edges_of(("b", "a", 1.0), ("c", "b", 1.0), ("b", "c", 1.0))
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
        EgoMix(ENDLESS, benefit=edges_of(("z", "a", 1.0))).start(
            federation, groups([["a", "b"]]), starts(2), 0
        )

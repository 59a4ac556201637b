"""What a silo is shown while benefits are learned must not tell it who competes with it."""

import numpy as np
import pytest
import torch

from fedegoists.benefit import learn
from fedegoists.benefit.decoys import decoy, explained_part
from fedegoists.federation import Failure, Participant, Train
from fedegoists.learning.parameters import ParameterSchema
from tests.benefit.consortia import OTHER, TASK, federation, regressions
from tests.benefit.test_learning_benefit import quick

SECRET = "not told to silos"
TASKS = {"a1": TASK, "a2": TASK, "b1": OTHER, "b2": OTHER, "c": [2.0, 0.5, -1.0, 1.0]}
COLUMNS = len(TASKS) + 1  # everybody's model, and the start


class Recorder:
    """A federation that writes down what a silo is asked about, and in which some never answer."""

    def __init__(self, inner, watched, away=()):
        self.inner, self.watched = inner, Participant(watched)
        self.away = [Participant(name) for name in away]
        self.calls, self.models = [], []
        self.participants, self.schema = inner.participants, inner.schema
        self.task, self.device, self.deployed = inner.task, inner.device, inner.deployed

    def call(self, requests, timeout=None):
        replies = self.inner.call(requests, timeout)
        replies |= {name: Failure(name, "timeout") for name in self.away}
        own = requests[self.watched]
        if isinstance(own, Train):
            self.models.append(
                {n: r.parameters.clone() for n, r in replies.items() if n not in self.away}
            )
        rest = dict(own)
        if "parameters" in rest:
            self.calls.append((own.operation, rest.pop("parameters").clone(), rest))
        return replies

    @property
    def asked(self):
        """The rows of the calls about mixtures: (calls, sources, fractions, parameters)."""
        rows = [rows for operation, rows, _ in self.calls if operation == "evaluate"]
        mixtures = [row.reshape(-1, 4, row.shape[-1]) for row in rows if len(row) > 1]
        assert len(rows) == 2 * len(mixtures)  # as often about its own model alone
        return torch.stack(mixtures)


@pytest.fixture(scope="module")
def data():
    return regressions(TASKS, train=120)


def watched(data, apart, name="a2", secret=SECRET, away=(), **options):
    recorder = Recorder(federation(data, **options), name, away)
    estimate = learn(recorder, quick("transfer"), apart=apart, secret=secret)
    return recorder, estimate


def differing(one, two):
    """How many sources differ in each call."""
    return (one.asked != two.asked).flatten(2).any(2).sum(1).tolist()


@pytest.mark.parametrize("rivals", [["a1"], ["a1", "b2"], ["a1", "b1", "b2", "c"]])
def test_two_worlds_of_reports_look_the_same_to_a_silo(data, rivals):
    """With one secret, nothing differs but the decoys, and these are like nothing it knows."""
    plain, free = watched(data, [])
    hiding, kept = watched(data, [(name, "a2") for name in rivals])
    assert [(op, rows.shape, rest) for op, rows, rest in plain.calls] == [
        (op, rows.shape, rest) for op, rows, rest in hiding.calls
    ]
    assert differing(plain, hiding) == [len(rivals)] * 4
    for call, (before, after) in enumerate(zip(plain.asked, hiding.asked, strict=True)):
        models = torch.stack(list(plain.models[call // 2].values()))
        start = plain.calls[0 if call < 2 else 1][1]
        known = torch.cat([models, start[None]])
        replaced = (before != after).flatten(1).any(1)
        for place in range(COLUMNS):
            distance = (after[place, -1] - known).abs().amax(-1).min()
            # Whatever is shown is a model or the start; a decoy is none of them, nor are two alike.
            assert (distance > 1e-3) == replaced[place]
        ends = after[:, -1]
        assert torch.pdist(ends).min() > 1e-3
    # What is learned of all others is the same to the last bit.
    compete = np.zeros((5, 5), bool)
    for name in rivals:
        j = list(TASKS).index(name)
        compete[j, 1] = compete[1, j] = True
    assert not kept.weights[compete].any()
    assert np.array_equal(free.runs[..., ~compete], kept.runs[..., ~compete])
    assert np.array_equal(free.gains[..., ~compete], kept.gains[..., ~compete])


def test_a_silo_is_told_nothing_of_reports_about_others(data):
    plain, _ = watched(data, [], name="c")
    others, _ = watched(data, [("a1", "a2"), ("b1", "a1")], name="c")
    assert differing(plain, others) == [0] * 4


def test_a_competitors_data_changes_nothing_that_is_shown(data):
    """Change one's data: the other is asked about the very same models as before."""
    changed = regressions(TASKS | {"a1": [0.0, 3.0, 1.0, 1.0]}, train=120)
    for apart, count in (([], 1), ([("a2", "a1")], 0)):
        one, two = (watched(each, apart)[0] for each in (data, changed))
        assert differing(one, two) == [count] * 4


def test_decoys_stay_for_all_calls_of_a_repeat_and_when_it_is_learned_again(data):
    """One that is not there again would be known by it."""
    first, again = (watched(data, [("a1", "a2")])[0] for _ in range(2))
    assert differing(first, again) == [0] * 4
    for half, other in ((0, 1), (2, 3)):
        ends = [first.asked[call][:, -1] for call in (half, other)]
        assert not torch.equal(*ends)  # in another order
        distances = torch.cdist(*ends, compute_mode="donot_use_mm_for_euclid_dist")
        assert (distances.amin(1) < 1e-6).all()


def test_orders_depend_on_the_secret_and_differ_between_silos(data):
    """The seed, which silos are told, does not give them away."""

    def orders(name, secret):
        recorder, _ = watched(data, [], name=name, secret=secret)
        places = []
        for call, rows in enumerate(recorder.asked):
            models = torch.stack(list(recorder.models[call // 2].values()))
            distances = torch.cdist(models, rows[:, -1])
            places.append(tuple(distances.argmin(1).tolist()))
        return places

    seen = [orders("a2", SECRET), orders("a2", "another"), orders("a2", None), orders("c", SECRET)]
    assert len(set(map(tuple, seen))) == len(seen)
    assert all(sorted(set(order)) == sorted(order) for each in seen for order in each)


def test_looped_and_stacked_silos_are_shown_the_same(data):
    one, two = (
        watched(data, [("a1", "a2")], execution=execution)[0] for execution in ("looped", "stacked")
    )
    torch.testing.assert_close(one.asked, two.asked, rtol=1e-3, atol=1e-3)


def test_for_a_competitor_that_is_away_the_start_is_shown_as_to_everybody(data):
    """Others may know that it is away; something else in its place would tell them the rest."""
    plain, free = watched(data, [], away=("a1",))
    hiding, kept = watched(data, [("a1", "a2")], away=("a1",))
    assert differing(plain, hiding) == [0] * 4
    assert kept.absent == free.absent == ("a1",)
    assert np.array_equal(free.runs, kept.runs)


def test_a_decoy_is_no_sum_of_known_models_and_explained_as_badly_as_they_are():
    schema = ParameterSchema.of(
        torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 1))
    )
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(schema.size, generator=generator)
    common = torch.randn(3, schema.size, generator=generator)
    known = start + torch.randn(8, 3, generator=generator) @ common
    known += torch.randn(known.shape, generator=generator)
    expected = explained_part(known - start)
    assert 0.3 < expected < 0.95
    parts, lengths = [], []
    for _ in range(40):
        drawn = decoy(start, known, schema, generator)
        deviations = (known - known.mean(0)).mT
        off = drawn - known.mean(0)
        fit = torch.linalg.lstsq(deviations, off[:, None], driver="gelsd").solution
        parts.append(((deviations @ fit).norm() / off.norm()).square().item())
        lengths.append((drawn - start).norm().item())
    assert max(parts) < 0.99
    assert np.mean(parts) == pytest.approx(expected, abs=0.15)
    real = (known - start).norm(dim=-1)
    assert max(lengths) <= real.max() + 1e-3
    assert np.mean(lengths) == pytest.approx(real.mean(), rel=0.25)


def test_a_decoy_leaves_alone_what_nobody_moved():
    """A unit that no model changed, such as one without input, would show noise at once."""
    schema = ParameterSchema.of(torch.nn.Linear(6, 3))
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(schema.size, generator=generator)
    change = torch.randn(4, schema.size, generator=generator)
    change[:, :18].reshape(4, 3, 6)[:, :, 2] = 0.0
    drawn = decoy(start, start + change, schema, generator)
    moved = (drawn != start)[:18].reshape(3, 6)
    assert moved.all(0).tolist() == [True, True, False, True, True, True]

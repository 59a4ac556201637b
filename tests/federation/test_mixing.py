"""Weighted means of silos' models: by hand, with bounds and failures, and from contributions."""

import math

import numpy as np
import pytest
import torch

from fedegoists.errors import SettingsError
from fedegoists.federation import (
    LocalTerms,
    Participant,
    Personal,
    Train,
    Trained,
    TrainSettings,
    WithTimeout,
)
from fedegoists.federation.mixing import (
    MixtureStep,
    Sum,
    contribution,
    mix_plain,
    mixture,
    shortened,
    with_withheld,
)
from fedegoists.federation.seam import Failure
from fedegoists.learning.parameters import ParameterSchema
from tests.methods.hand import START, lines

A, B, C, D = map(Participant, "abcd")
ONE_STEP = TrainSettings(steps=1, batch_size=64, learning_rate=0.1, momentum=0.0)
REQUEST = Train(parameters=torch.tensor(START, dtype=torch.float32), settings=ONE_STEP)
REQUESTS = dict.fromkeys((A, B, C, D), REQUEST)


def models(silos):
    """The models after one step, by numpy."""
    return [START - 0.1 * silos.gradient(k, START) for k in range(4)]


def close(tensor, expected):
    torch.testing.assert_close(
        tensor.double(), torch.as_tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-6
    )


def test_means_by_hand():
    silos = lines((6, 3, 4, 5))
    a, b, _, d = models(silos)
    sums = [
        Sum((A, B, C), {A: 6, B: 3}, (A, C)),
        Sum((A, B, C), {A: 1, B: 1}, (B,)),
    ]
    for federation in silos.federations():
        mixed = federation.mix(REQUESTS, sums)
        mean = (6 * a + 3 * b) / 9
        close(mixed.means["parameters"], np.array([mean, (a + b) / 2, mean, d]))
        close(mixed.trained["parameters"], np.array(models(silos)))
        assert mixed.received == {A, B, C}
        assert mixed.sample_passes == {A: 6, B: 3, C: 4, D: 5}
        assert not mixed.norms  # measured only where a bound asks for it
        assert not mixed.at_home


def test_a_contributor_that_fails_has_no_part_and_still_receives():
    silos = lines((6, 3, 4, 5))
    _, b, c, _ = models(silos)
    for federation in silos.federations(
        behaviours={"a": lambda *_: Failure(A, "error", "no"), "d": lambda *_: None}
    ):
        mixed = federation.mix(
            REQUESTS,
            [Sum((A, B, C), {A: 6, B: 3, C: 4}, (A, B, C)), Sum((D,), {D: 1}, (D,))],
        )
        close(mixed.means["parameters"], np.array([(3 * b + 4 * c) / 7] * 3 + [START]))
        assert mixed.received == {A, B, C}  # no contributor to d's mean answered
        assert [failure.participant for failure in mixed.failures] == [A, D]
        assert mixed.losses.keys() == {B, C}


def test_long_updates_are_shortened_and_their_norms_told():
    silos = lines((6, 3, 4, 5))
    after = models(silos)
    lengths = [float(((w - START) ** 2).sum() ** 0.5) for w in after]
    bound = sorted(lengths[:2])[0] * 1.0001
    for federation in silos.federations():
        mixed = federation.mix(REQUESTS, [Sum((A, B), {A: 1, B: 1}, (A, B), bound=bound)])
        cut = [START + (w - START) * min(1, bound / n) for w, n in zip(after, lengths, strict=True)]
        close(mixed.means["parameters"][0], (cut[0] + cut[1]) / 2)
        assert mixed.norms == {A: pytest.approx(lengths[0]), B: pytest.approx(lengths[1])}
        unbound = federation.mix(REQUESTS, [Sum((A, B), {A: 1, B: 1}, (A,), bound=math.inf)])
        close(unbound.means["parameters"][0], (after[0] + after[1]) / 2)
        assert unbound.norms == mixed.norms


def test_short_updates_keep_their_bits():
    starts, trained = torch.rand(2, 50), torch.rand(2, 50)
    same, _ = shortened(starts, trained, torch.tensor([100.0, math.inf]))
    assert torch.equal(same, trained)


@pytest.mark.parametrize(
    ("sums", "problem"),
    [
        ([Sum((A, B), {A: 1, B: 1}, (A,)), Sum((A, B), {B: 1}, (A,))], "two means"),
        ([Sum((A, Participant("x")), {A: 1}, (Participant("x"),))], "'x'"),
    ],
)
def test_sums_that_make_no_sense_are_refused(sums, problem):
    (federation, _) = lines((6, 3, 4, 5)).federations()
    with pytest.raises(SettingsError, match=problem):
        federation.mix(REQUESTS, sums)


@pytest.mark.parametrize("weight", [-1.0, math.inf, math.nan])
def test_weights_are_finite_and_not_negative(weight):
    with pytest.raises(SettingsError, match="weights"):
        Sum((A,), {A: weight}, (A,))


def test_a_sum_stays_in_its_coalition():
    with pytest.raises(SettingsError, match="outside"):
        Sum((A, B), {A: 1, C: 1}, (A,))


SCHEMA = ParameterSchema(("body", "output.weight", "output.bias"), ((4,), (3, 2), (3,)))


class After:
    """A federation whose silos have given models and momenta after training."""

    schema = SCHEMA

    def __init__(self, vectors):
        self.vectors = vectors

    def call(self, requests, timeout=None):
        return {
            name: Trained(loss=0.0, samples=1, sample_passes=1, **self.vectors[name])
            for name in requests
        }


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_a_sum_of_contributions_gives_the_plain_mean(momentum, missing):
    generator = torch.Generator().manual_seed(0)
    names = (A, B, C)
    vectors = {
        name: {
            key: torch.randn(13, generator=generator)
            for key in (("parameters", "momentum") if momentum else ("parameters",))
        }
        for name in names
    }
    weights = {A: 3.0, B: 2.0} if missing else {A: 3.0, B: 2.0, C: 5.0}
    terms = LocalTerms(momentum=torch.zeros(13)) if momentum else None
    request = Train(parameters=torch.zeros(13), settings=ONE_STEP, terms=terms)
    plain = mix_plain(
        After(vectors),
        dict.fromkeys(names, request),
        [Sum(names, weights, (A,))],
    )
    shares = {name: weight / 10 for name, weight in {A: 3.0, B: 2.0, C: 5.0}.items()}
    total = sum(shares[name] * contribution(vectors[name]) for name in weights)
    means = mixture(SCHEMA, list(vectors[A]), total, sum(shares[name] for name in weights))
    for key, mean in means.items():
        close(mean, plain.means[key][0])


def test_a_sum_of_another_length_is_refused():
    with pytest.raises(SettingsError, match="12 numbers"):
        mixture(SCHEMA, ["parameters"], torch.zeros(12), 1.0)


def test_the_step_is_the_same_for_rows_and_for_one_vector():
    generator = torch.Generator().manual_seed(0)
    start, trained, mean, velocity = torch.randn(4, 3, 13, generator=generator)
    step = MixtureStep(own=("output.bias",), outer=0.5)
    models_, velocities = step.taken(SCHEMA, start, trained, mean, velocity)
    for k in range(3):
        model, own = step.taken(SCHEMA, start[k], trained[k], mean[k], velocity[k])
        assert torch.equal(model, models_[k])
        assert torch.equal(own, velocities[k])
    kept = step.with_own(SCHEMA, trained, mean)
    assert torch.equal(kept[:, :10], mean[:, :10])
    assert torch.equal(kept[:, 10:], trained[:, 10:])


def test_a_network_without_such_a_layer_has_nothing_of_its_own():
    schema = ParameterSchema(("body",), ((2,),))
    step = MixtureStep(own=("output.bias",))
    assert step.taken(schema, *torch.eye(4, 2)[:3], None)[0].tolist() == [0.0, 0.0]


def test_no_mix_waits_longer_than_the_timeout():
    class Waiting(After):
        participants = task = device = stream_name = memory = restore = None
        personal_model = deliver = samples = masks = consents = deployed = None

        def mix(self, requests, sums, timeout=None):
            return timeout

    assert WithTimeout(Waiting({}), 5.0).mix({}, []) == 5.0
    assert WithTimeout(Waiting({}), 5.0).mix({}, [], 2.0) == 2.0


def test_means_have_what_was_sent_and_no_momentum_where_silos_withhold_theirs():
    schema = ParameterSchema(("body", "output.bias"), ((1,), (1,)))
    personal = Personal(prefixes=("output.",), slot="slowmo")
    sent = Train(parameters=torch.tensor([1.0, 2.0]), settings=TrainSettings(), personal=personal)
    means = {"parameters": torch.tensor([5.0, 6.0]), "momentum": torch.tensor([7.0, 8.0])}
    taken = with_withheld(schema, sent, means)
    assert {name: own.tolist() for name, own in taken.items()} == {
        "parameters": [5.0, 2.0],
        "momentum": [7.0, 0.0],
    }

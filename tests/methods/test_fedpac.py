"""FedPAC by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.data import Samples
from fedegoists.methods import FedPAC, Local
from fedegoists.methods.fedpac import head_weights
from tests.methods.hand import (
    BODY,
    CHAIN_START,
    HEAD,
    Chain,
    assert_close,
    chains,
    descended,
    lines,
    played,
)
from tests.silos import Line, federation, initial, run, silos, simulated

SETTINGS = TrainSettings(steps=3, batch_size=64, learning_rate=0.2, momentum=0.5)
GROUP = [["a", "b"], ["c"]]
SILOS = lines((6, 4, 4), positives=(2, 3, 2))
SIZES = (6, 4)
LAM = 0.7


def samples(k):
    return SILOS.designs["train"][k][:, :2], SILOS.targets["train"][k]


def slope(k, v, centres, lam):
    """Of the mean of log(1 + exp(u)) − t u + λ (z − c_t)², with z = b · x and u = o z + c."""
    x, t = samples(k)
    z = x @ v[:2]
    error = (1 / (1 + np.exp(-(v[2] * z + v[3]))) - t) / len(t)
    away = 2 * lam * (z - np.where(t == 1, centres[1], centres[0])) / len(t)
    return np.array([*(x.T @ (v[2] * error + away)), error @ z, error.sum()])


def moving(part, k, centres, lam):
    return lambda v: part * slope(k, v, centres, lam)


def told(k, v):
    """The mean of z by class times the share, and the variance of these means."""
    x, t = samples(k)
    z = x @ v[:2]
    means = np.array([(z * (t == label)).sum() for label in (0, 1)]) / len(t)
    return means, ((z**2).mean() - (means**2).sum()) / len(t)


def by_hand(rounds):
    """A step with the head, two with the body; heads by the closed form for two members.

    Public code has a rate of its own for the head, sets weights of heads below 0.001 to zero, and
    holds a class without a centre near its own one; here it is free.
    """
    begin, centres, lam, found = [CHAIN_START] * 2, [0.0, 0.0], 0.0, []
    for _ in range(rounds):
        (one, v1), (two, v2) = (told(k, begin[k]) for k in range(2))
        apart = ((one - two) ** 2).sum()
        shares = [v1 / (v1 + v2 + apart), v2 / (v1 + v2 + apart)]  # of the other's head
        ends = []
        for k in range(2):
            of_head, of_body = (moving(part, k, centres, lam) for part in (HEAD, BODY))
            head = descended(of_head, begin[k], [0.2], 0.5)
            ends.append(descended(of_body, head, [0.2] * 2, 0.5))
        body = BODY * (6 * ends[0] + 4 * ends[1]) / 10
        heads = [
            HEAD * ((1 - share) * ends[k] + share * ends[1 - k]) for k, share in enumerate(shares)
        ]
        counts = sum(np.array([(samples(k)[1] == c).sum() for c in (0, 1)]) for k in range(2))
        sums = sum(len(samples(k)[1]) * told(k, ends[k])[0] for k in range(2))
        centres, lam = sums / counts, LAM
        begin = [body + head for head in heads]
        found.append((ends, begin, centres))
    return found


def test_three_rounds_by_hand():
    expected = by_hand(3)
    for both in chains(SILOS):
        method = FedPAC(SETTINGS, lam=LAM, head=0.3)
        states, reports = played(method, both, GROUP, 3, CHAIN_START)
        for state, (ends, begin, centres) in zip(states[1:], expected, strict=True):
            assert_close(state.parameters[:2], ends)
            assert_close(state.tensors["begin"][:2], begin)
            assert_close(state.tensors["centres"][:2], [centres] * 2)
        alone, _ = played(Local(SETTINGS), both, GROUP, 3, CHAIN_START)
        assert torch.equal(states[3].parameters[2], alone[3].parameters[2])
        assert not any(report.failures for report in reports)
        # Six models, or gradients, each way; two centres of one number, and two pulls.
        assert reports[1].bytes_sent == {"a": 6 * 16, "b": 6 * 16}
        assert reports[1].bytes_received == {"a": 6 * 16 + 16, "b": 6 * 16 + 16}
        # Two gradients twice, and a step of no length, over all samples.
        assert reports[1].sample_passes == {"a": 18 + 5 * 6, "b": 12 + 5 * 4, "c": 12}


def test_with_two_gradients_a_step_variances_still_take_one():
    """They are read off a loss; a second gradient would be of no use there."""
    for both in chains(SILOS):
        method = FedPAC(SETTINGS.changed(sam_radius=0.1), lam=LAM, head=0.3)
        _, reports = played(method, both, GROUP, 1, CHAIN_START)
        assert reports[0].sample_passes == {
            "a": 2 * 18 + 5 * 6,
            "b": 2 * 12 + 5 * 4,
            "c": 2 * 12,
        }


@given(
    st.integers(0, 2**31),
    st.lists(st.floats(0.0, 5.0), min_size=2, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_no_other_weights_have_less_variance_and_bias(seed, variances):
    rng = np.random.default_rng(seed)
    means = list(rng.normal(size=(len(variances), 3)))
    weights = head_weights(means, variances)
    np.testing.assert_allclose(weights.sum(1), 1)
    assert (weights >= 0).all()

    def value(i, alpha):
        return alpha**2 @ np.array(variances) + ((means[i] - alpha @ np.array(means)) ** 2).sum()

    for i, own in enumerate(weights):
        for other in rng.dirichlet(np.ones(len(variances)), 50):
            assert value(i, own) <= value(i, other) + 1e-9


@pytest.mark.parametrize("unit", [1e-15, 1.0, 1e12])
def test_heads_are_combined_in_any_unit(unit):
    """The first two are alike; the third is apart, and the fourth has no variance."""
    means = [unit * np.array([one]) for one in (0.0, 0.0, 9.0, 3.0)]
    found = head_weights(means, [unit**2, unit**2, unit**2, 0.0])
    expected = head_weights([one / unit for one in means], [1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(expected.sum(1), 1)


@pytest.mark.parametrize(("positives", "told"), [(1, False), (2, False), (3, True)])
def test_the_centre_of_few_samples_is_not_told(positives, told):
    """A class that has one sample has it as its centre; two members have two of five here."""
    few = lines((12, 10, 4), positives=(2, positives, 2))
    for both in chains(few):
        states, _ = played(FedPAC(SETTINGS, lam=LAM), both, GROUP, 1, CHAIN_START)
        centres, pulls = (states[1].tensors[name][:2] for name in ("centres", "pulls"))
        assert_close(pulls, [[LAM, LAM * told]] * 2)
        assert (centres[:, 1] != 0).all() == told
        assert (centres[:, 0] != 0).all()


def test_who_does_not_answer_keeps_its_model_and_the_others_go_on():
    for execution in ("looped", "stacked"):
        broken = simulated(SILOS.data, Chain(), execution=execution, behaviours={"b": lost})
        states, reports = played(FedPAC(SETTINGS), broken, GROUP, 2, CHAIN_START)
        assert {one.participant.name for one in reports[0].failures} == {"b"}
        assert_close(states[2].parameters[1], CHAIN_START)
        assert (states[2].parameters[0] != states[1].parameters[0]).any()
        assert states[2].tensors["begin"].isfinite().all()


@pytest.mark.parametrize("changed", range(5))
def test_nothing_crosses_a_coalition_border(changed):
    """Change one silo's data: everybody outside its coalition has the same bytes as before."""
    pairs = [["a", "d"], ["c"], ["b", "e"]]
    plain = lines((6, 4, 4, 5, 7), positives=(2, 3, 2, 1, 4))
    inputs = plain.data.samples.inputs[0].copy()
    inputs[plain.data.silos[changed].train] *= -1.5
    other = replace(
        plain, data=replace(plain.data, samples=Samples((inputs,), plain.data.samples.targets))
    )
    for one, two in zip(chains(plain), chains(other), strict=True):
        before, after = (
            played(FedPAC(SETTINGS), silos, pairs, 2, CHAIN_START)[0][2] for silos in (one, two)
        )
        own = next(group for group in pairs if "abcde"[changed] in group)
        for k, name in enumerate("abcde"):
            same = torch.equal(before.parameters[k], after.parameters[k])
            assert same == (name not in own)


def test_a_stopped_run_continues_to_the_same_bytes(tmp_path):
    method, path = FedPAC(SETTINGS), tmp_path / "state.safetensors"
    start = torch.tensor(CHAIN_START).float().expand(3, -1)
    silos = simulated(SILOS.data, Chain())
    whole = run(method, silos, GROUP, start, rounds=5, seed=5)
    run(method, simulated(SILOS.data, Chain()), GROUP, start, rounds=2, seed=5, checkpoint=path)
    again = simulated(SILOS.data, Chain())
    resumed = run(method, again, GROUP, start, rounds=5, seed=5, checkpoint=path)
    assert torch.equal(whole.state.parameters, resumed.state.parameters)
    assert (whole.rows, whole.spent) == (resumed.rows, resumed.spent)


def test_it_trains_convolutional_networks_alike_looped_and_stacked():
    data, ends = silos("cifar10-cnn"), []
    quick = FedPAC(SETTINGS.changed(batch_size=32, learning_rate=0.05))
    for execution in ("looped", "stacked"):
        both = federation("cifar10-cnn", data, execution=execution)
        row = initial("cifar10-cnn", 1)[0].numpy()
        states, _ = played(quick, both, [["s0", "s2"], ["s1"]], 2, row)
        ends.append(states[2].tensors)
    for key, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][key], rtol=1e-3, atol=5e-4)


def lost(request, reply):
    return reply.model_copy(
        update={k: v * np.nan for k, v in vars(reply).items() if isinstance(v, torch.Tensor)}
    )


@pytest.mark.parametrize(
    ("data", "model", "personal", "why"),
    [
        (SILOS, Line(2), (), "above other layers"),
        (SILOS, Chain(), ("output.",), "must not be personal"),
        (lines((6, 3)), Chain(), (), "regression has no classes"),
    ],
)
def test_models_and_tasks_it_cannot_work_with_are_refused(data, model, personal, why):
    federation = simulated(data.data, model)
    with pytest.raises(SettingsError, match=why):
        FedPAC(SETTINGS, personal=personal).check_model(federation)

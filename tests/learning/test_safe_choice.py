"""The choice of a member's model: doubt is in favour of the own one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.learning.safe_choice import SURE, paired_gain, pseudo_values, safe_choice
from fedegoists.learning.sample_scores import contributions

SAMPLES = st.integers(2, 60)
SEEDS = st.integers(0, 10_000)


def drawn(seed, samples, candidates=4, repetitions=1, gains=(0.0,)):
    """The own model's values, and those of candidates with some mean gains and any noise."""
    rng = np.random.default_rng(seed)
    own = [rng.normal(size=samples) for _ in range(repetitions)]
    found = {}
    for k in range(candidates):
        gain = gains[k % len(gains)] + rng.normal(scale=rng.uniform(0, 1))
        noise = rng.uniform(0.01, 3)
        found[f"c{k}"] = [one + gain + noise * rng.normal(size=samples) for one in own]
    return own, found


@settings(deadline=None)
@given(SEEDS, SAMPLES, st.integers(1, 3))
def test_nothing_is_chosen_whose_evidence_is_not_above_the_own_model_by_more_than_noise(
    seed, samples, repetitions
):
    own, candidates = drawn(seed, samples, repetitions=repetitions)
    chosen = safe_choice(own, candidates)
    bounds = {name: paired_gain(own, one).lower(SURE) for name, one in candidates.items()}
    if chosen is None:
        assert all(bound <= 0 for bound in bounds.values())
    else:
        gain = np.mean([one - base for one, base in zip(candidates[chosen], own, strict=True)])
        assert gain > 0
        assert bounds[chosen] == max(bounds.values()) > 0


@settings(deadline=None)
@given(SEEDS, SAMPLES)
def test_ties_go_home(seed, samples):
    own, candidates = drawn(seed, samples, candidates=0)
    shifted = np.random.default_rng(seed).permutation(samples)
    candidates["the same"] = [one.copy() for one in own]
    candidates["as good"] = [one[shifted] for one in own]  # other samples, the same metric
    assert safe_choice(own, candidates) is None


@settings(deadline=None)
@given(SEEDS, SAMPLES, st.permutations(["c0", "c1", "c2", "c3"]))
def test_names_and_their_order_do_not_matter(seed, samples, order):
    own, candidates = drawn(seed, samples, gains=(0.5,))
    chosen = safe_choice(own, candidates)
    assert safe_choice(own, {name: candidates[name] for name in order}) == chosen
    renamed = {f"new {name}": candidates[name] for name in candidates}
    assert safe_choice(own, renamed) == (None if chosen is None else f"new {chosen}")


@settings(deadline=None)
@given(SEEDS, st.permutations([-0.2, 0.1, 0.3, -0.05]))
def test_with_much_validation_data_the_best_is_chosen(seed, gains):
    rng = np.random.default_rng(seed)
    own = [rng.normal(size=100_000)]
    candidates = {gain: [own[0] + gain + rng.normal(size=100_000)] for gain in gains}
    assert safe_choice(own, candidates) == 0.3
    worse = {gain: one for gain, one in candidates.items() if gain < 0}
    assert safe_choice(own, worse) is None


def test_two_patients_of_thirty_do_not_make_a_sure_gain():
    own = np.repeat([0.0, 1.0], 15)
    one = own.copy()
    one[0] = 1.0
    assert safe_choice([own], {"one": [one]}) is None  # 1/30, and as large a standard error


def test_doubt_about_the_error_is_doubt_about_the_gain():
    own = np.zeros(40)
    better = np.tile([0.2, -0.15], 20) + np.eye(1, 40)[0]
    assert safe_choice([own], {"better": [better]}, 40) == "better"
    assert safe_choice([own], {"better": [better]}, 2) is None  # one degree of freedom
    assert safe_choice([own], {"better": [better + 9]}, 1) is None  # of one event nothing is known
    unknown = np.full(40, math.nan)
    assert safe_choice([own], {"unknown": [unknown]}) is None
    assert safe_choice([unknown], {"better": [better]}) is None
    assert safe_choice([own[:1]], {"better": [better[:1]]}) is None


@settings(deadline=None)
@given(SEEDS, st.integers(6, 40))
def test_the_jackknife_of_an_auc_has_its_known_error(seed, samples):
    """As DeLong's formula has: the jackknife's variance of an AUC is the same up to 1/n."""
    rng = np.random.default_rng(seed)
    targets = np.arange(samples) % 2
    pair = [rng.normal(size=samples) + targets for _ in range(2)]

    def auc(scores):
        def metric(rows):
            return float(contributions("binary", scores[rows], targets[rows])[0].mean())

        return metric

    one, other = (pseudo_values(auc(scores), samples) for scores in pair)
    found = paired_gain([other], [one])
    groups = [contributions("binary", scores, targets.astype(float)) for scores in pair]
    assert found.value == pytest.approx(groups[0][0].mean() - groups[1][0].mean(), abs=1e-9)
    if found.error > 1e-6:
        spread = math.sqrt(
            sum(np.var(a - b, ddof=1) / len(a) for a, b in zip(*groups, strict=True))
        )
        assert found.error == pytest.approx(spread, rel=4 / samples + 0.05)


def test_many_samples_are_left_out_in_parts():
    data = np.random.default_rng(0).normal(size=1050)
    values = pseudo_values(lambda rows: float(data[rows].mean()), len(data))
    assert len(values) == 100
    assert values.mean() == pytest.approx(data.mean(), abs=1e-2)
    error = values.std(ddof=1) / 10
    assert error == pytest.approx(data.std(ddof=1) / math.sqrt(1050), rel=0.25)

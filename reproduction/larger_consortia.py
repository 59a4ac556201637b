"""Partitions of larger consortia: whether more expected gain gives better models.

CIFAR-100 is divided among 20 and 40 participants by a Dirichlet distribution (β = 0.5), any two of
which compete with a probability of 0.3. Four partitions are compared, all of them chosen before any
coalition is trained and without test data:

- ``published``: Algorithm 1 of the paper, on the learned graph;
- ``additive``: the partition with the highest total benefit on the same graph;
- ``curves``: the one with the highest total expected gain, by learning curves at home;
- ``everybody``: the one with the most pairs in company, whoever they are.

Each is the best that was found in three seconds; only the first needs no search.

The learned graph is that of the Pareto hypernetwork, with the released code's threshold relative to
an equal preference, 0.95 / n. Everybody trains alone (Local) and, with EgoMix, in the coalitions of
each partition. A gain is the difference of the test accuracies, in points, at the steps that
validation data chooses. Participants without company gain nothing. A coalition that several
partitions have in common is trained once.

    python -m reproduction larger --device cuda
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from fedegoists.benefit import BenefitEstimate, learn_repetitions
from fedegoists.benefit.estimator_registry import CURVES
from fedegoists.coalitions import form
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.graphs import BenefitGraph, CompetitionGraph, CurveValues
from fedegoists.learning.data import SiloedData
from fedegoists.learning.estimates import Estimate, over_divisions
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.models import build_model
from fedegoists.learning.own_models import initial_parameters
from fedegoists.learning.safe_choice import Numbers, paired_gain
from fedegoists.methods import RunSettings, run
from fedegoists.methods.egomix import EgoMix
from fedegoists.methods.local import Local
from fedegoists.training.defaults import defaults_for, learn_settings
from fedegoists.training.repetitions import load_trainable
from reproduction.benefit_graphs import RELATIVE
from reproduction.record_files import read_records, records_csv
from reproduction.scenarios import Scenario, competition_of

__all__ = [
    "CHOICES",
    "REPETITIONS",
    "LargerSettings",
    "MemberGain",
    "consortia",
    "larger_page",
    "member_gains",
    "members_csv",
    "read_members",
]

REPETITIONS = {20: 5, 40: 3}
"""Repetitions by the number of participants."""
COMPETITION = "0.3"
PUBLISHED, ADDITIVE, EVERYBODY = "published", "additive", "everybody"
CHOICES = (PUBLISHED, ADDITIVE, CURVES, EVERYBODY)
SEARCH_SECONDS = 3.0
"""For each partition of more than 20 participants, which nobody can enumerate."""
POINTS = 100.0
ROUNDING = 1e-4
"""Points in sums of expected gains: the same partition, its members in another order."""

Partition = tuple[tuple[str, ...], ...]
Key = tuple[int, str]
"""A repetition and a choice."""
Shared = dict[tuple[int, frozenset[str]], tuple[Participant, ...]]
"""Coalitions as they are trained, by their repetition and members."""
Right = dict[Participant, Numbers]
"""For each test sample 1 if a participant's model is right about it, else 0."""
Told = Callable[[str], object]


@dataclass(frozen=True)
class LargerSettings:
    """How, and how long, everything is trained.

    Attributes
    ----------
    steps : int
        Training steps of models alone and in coalitions. Half of those at ten participants: each
        participant has less than half of the images.
    graph_steps : int
        Steps of the hypernetwork.
    """

    steps: int = 2000
    graph_steps: int = 1500
    device: str = "cpu"
    bf16: bool = False
    data_dir: Path | None = None


@dataclass(frozen=True)
class MemberGain:
    """A participant's gain in one partition, in points of accuracy.

    Attributes
    ----------
    coalition, members : int
        The number of its coalition in the partition, and how many there are in it.
    expected : float
        Its gain by the coalition values.
    gain, error : float
        Its gain over training alone, and the standard error over test images.
    train, test : int
        Its images.
    """

    participants: int
    repetition: int
    choice: str
    participant: str
    coalition: int
    members: int
    expected: float
    gain: float
    error: float
    train: int
    test: int


def consortia(count: int, settings: LargerSettings, repetitions: int) -> dict[int, SiloedData]:
    """Return the divided images of all repetitions."""
    return {
        seed: load_trainable(
            "cifar100",
            data_dir=settings.data_dir,
            seed=seed,
            partition="dirichlet",
            participants=count,
        )
        for seed in range(repetitions)
    }


def member_gains(
    data: Mapping[int, SiloedData], settings: LargerSettings, tell: Told = lambda _: None
) -> list[MemberGain]:
    """Learn, form coalitions, train, and return the gains of all participants.

    Parameters
    ----------
    data : mapping of int to SiloedData
        The participants of each repetition.
    """
    began = time.monotonic()
    rivals = {
        seed: competition_of(Scenario(one.name, competition=COMPETITION), seed, one)
        for seed, one in data.items()
    }
    graphs = _learned(data, settings, "hypernetwork", {})
    tell(f"graph learned after {time.monotonic() - began:.0f} s")
    estimates = _learned(data, settings, CURVES, rivals)
    tell(f"curves learned after {time.monotonic() - began:.0f} s")
    values: dict[int, CurveValues] = {}
    partitions: dict[Key, Partition] = {}
    for seed, one in data.items():
        found = estimates[seed].values
        assert found is not None  # this estimator learns them
        values[seed] = found
        learned = graphs[seed].graph(RELATIVE / len(one.participants))
        for choice, groups in chosen_partitions(learned, found, rivals[seed]).items():
            partitions[seed, choice] = groups
    tell(f"partitions found after {time.monotonic() - began:.0f} s")
    shared = shared_coalitions(partitions)
    trained = _trained(data, shared, settings)
    tell(f"trained after {time.monotonic() - began:.0f} s")
    return [
        gain
        for key, groups in partitions.items()
        for gain in _gains(key, groups, data[key[0]], values[key[0]], shared, trained)
    ]


def chosen_partitions(
    learned: BenefitGraph, values: CurveValues, rivals: CompetitionGraph
) -> dict[str, Partition]:
    """Return the partition of each choice."""
    names = learned.participants
    alike = BenefitGraph(1.0 - np.eye(len(names)), names)
    formed = {
        PUBLISHED: form(learned, rivals, "published"),
        ADDITIVE: form(learned, rivals, time_limit=SEARCH_SECONDS),
        CURVES: form(values, rivals, time_limit=SEARCH_SECONDS),
        EVERYBODY: form(alike, rivals, time_limit=SEARCH_SECONDS),
    }
    return {choice: formed[choice].coalitions for choice in CHOICES}


def _learned(
    data: Mapping[int, SiloedData],
    settings: LargerSettings,
    estimator: str,
    rivals: Mapping[int, CompetitionGraph],
) -> dict[int, BenefitEstimate]:
    """Learn the benefits of all repetitions at once.

    As in the tables, the hypernetwork knows of no competition.
    """
    first = next(iter(data.values()))
    learning = learn_settings(first, estimator)
    if estimator == CURVES:
        local = learning.local.changed(steps=settings.steps, total_steps=settings.steps)
        learning = learning.changed(local=local)
    else:
        least = min(learning.preference_steps, settings.graph_steps)
        steps = settings.graph_steps
        learning = learning.changed(steps=steps, preference_steps=least, repeats=1)
    labels = {str(seed): seed for seed in data}
    found = learn_repetitions(
        _federation({label: data[seed] for label, seed in labels.items()}, labels, settings),
        learning,
        apart={str(seed): one.pairs for seed, one in rivals.items()},
        secret="",
    )
    return {seed: found[str(seed)] for seed in data}


def _federation(
    data: Mapping[str, SiloedData], drawn_as: Mapping[str, int], settings: LargerSettings
) -> SimulatedFederation:
    first = next(iter(data.values()))
    return SimulatedFederation(
        data,
        build_model(defaults_for(first).model, 0, **model_options(first)),
        device=settings.device,
        bf16=settings.bf16,
        drawn_as=drawn_as,
    )


def _trained(
    data: Mapping[int, SiloedData], shared: Shared, settings: LargerSettings
) -> tuple[Right, Right]:
    """Train everybody alone, and all coalitions at once; return the test samples they get right.

    Those alone have their repetition as label, members of coalitions that of their coalition.
    """
    train = defaults_for(next(iter(data.values())), settings.steps).train
    singles = [
        (Participant(name, str(seed)),) for seed, one in data.items() for name in one.participants
    ]
    alone = _right(Local(train), singles, {str(seed): seed for seed in data}, data, settings)
    labels = {str(group[0].repetition): seed for (seed, _), group in shared.items()}
    return alone, _right(EgoMix(train), list(shared.values()), labels, data, settings)


def shared_coalitions(partitions: Mapping[Key, Partition]) -> Shared:
    """Return all coalitions of two or more by their repetition and members, each of them once.

    A coalition that a repetition has in several partitions has the label of the first.

    Examples
    --------
    >>> one, two = (("a", "b"), ("c",)), (("b", "a"), ("c", "d"))
    >>> list(shared_coalitions({(0, "x"): one, (0, "y"): two}).values())
    [('0 x/a', '0 x/b'), ('0 y/c', '0 y/d')]
    """
    found: Shared = {}
    for (seed, choice), groups in partitions.items():
        for group in groups:
            key = (seed, frozenset(group))
            if len(group) > 1 and key not in found:
                (found[key],) = Participant.groups([group], f"{seed} {choice}")
    return found


def _right(
    method: Local | EgoMix,
    coalitions: Sequence[tuple[Participant, ...]],
    labels: Mapping[str, int],
    data: Mapping[int, SiloedData],
    settings: LargerSettings,
) -> Right:
    """Train, and return which test samples each participant's chosen model gets right.

    Parameters
    ----------
    labels : mapping of str to int
        The repetition that each label has its samples, batches and initial model of.
    """
    inside = {one for group in coalitions for one in group}
    if not inside:
        return {}
    silos = {
        label: data[seed].restricted_to(
            [name for name in data[seed].participants if Participant(name, label) in inside]
        )
        for label, seed in labels.items()
    }
    federation = _federation(silos, labels, settings)
    first = next(iter(data.values()))
    defaults, options = defaults_for(first, settings.steps), model_options(first)
    models = {
        seed: initial_parameters(defaults.model, seed, options, federation.schema) for seed in data
    }
    start = torch.stack([models[labels[str(one.repetition)]] for one in federation.participants])
    running = RunSettings(rounds=defaults.rounds, seed=0, evaluate_every=defaults.evaluate_every)
    outcome = run(method, federation, coalitions, start.to(federation.device), running)
    found = {}
    for one, model in zip(federation.participants, outcome.best, strict=True):
        outputs, targets = federation.outputs(one, model, "test")
        found[one] = (outputs.argmax(1) == targets).double().cpu().numpy()
    return found


def _gains(
    key: Key,
    groups: Partition,
    data: SiloedData,
    values: CurveValues,
    shared: Shared,
    trained: tuple[Right, Right],
) -> list[MemberGain]:
    """Return the gains of all participants in one partition."""
    seed, choice = key
    alone, together = trained
    names, found = data.participants, []
    for number, group in enumerate(groups, 1):
        members = np.array([[name in group for name in names]])
        expected = dict(zip(names, values.gains(members)[0].tolist(), strict=True))
        places = {one.name: one for one in shared.get((seed, frozenset(group)), ())}
        for name in group:
            gain = Estimate(0.0, 0.0)
            if name in places:
                own = alone[Participant(name, str(seed))]
                gain = paired_gain([own], [together[places[name]]])
            silo = data.silo(name)
            about = (len(names), seed, choice, name, number, len(group), POINTS * expected[name])
            error, train, test = POINTS * gain.error, len(silo.train), len(silo.test)
            found.append(MemberGain(*about, POINTS * gain.value, error, train, test))
    return found


members_csv = partial(records_csv, MemberGain)
"""Return rows as CSV, see `reproduction.record_files`."""


read_members = partial(read_records, MemberGain)
"""Read what `members_csv` returned."""


def larger_page(gains: Sequence[MemberGain], origin: str) -> str:
    """Return the results as a page."""
    lines = [
        "# Larger consortia: does more expected gain give better models?",
        "",
        *(__doc__ or "").partition("\n\n")[2].partition("    python")[0].strip().splitlines(),
    ]
    for count in dict.fromkeys(one.participants for one in gains):
        own = [one for one in gains if one.participants == count]
        repetitions = len({one.repetition for one in own})
        lines += [
            "",
            f"## {count} participants, {repetitions} repetitions",
            "",
            "Means over all participants, in points of accuracy. Intervals are over repetitions "
            "(95 %, Nadeau and Bengio).",
            "",
            "| partition | coalitions | members of the largest | alone | expected gain | gain | "
            "less than `curves` |",
            "|---|---|---|---|---|---|---|",
            *(_choice_row(choice, own) for choice in CHOICES),
        ]
    right, pairs = agreeing_pairs(gains)
    lines += [
        "",
        "## Order",
        "",
        f"Of {pairs} pairs of different partitions of one repetition, the one with the higher "
        f"expected gain has the higher gain in {right}.",
        "",
        origin,
        "",
    ]
    return "\n".join(lines)


def _choice_row(choice: str, gains: Sequence[MemberGain]) -> str:
    """Return a partition's row, with its paired difference to the one by coalition values."""
    own = [one for one in gains if one.choice == choice]
    groups = {(one.repetition, one.coalition): one.members for one in own}
    count = len({one.repetition for one in own})
    ratio = sum(one.test for one in own) / sum(one.train for one in own)
    mean, best = mean_gains(own), mean_gains([one for one in gains if one.choice == CURVES])
    less = over_divisions([best[seed] - mean[seed] for seed in mean], ratio)
    cells = [
        f"{sum(members > 1 for members in groups.values()) / count:.1f}",
        f"{sum(max(m for (s, _), m in groups.items() if s == seed) for seed in mean) / count:.1f}",
        f"{sum(members == 1 for members in groups.values()) / count:.1f}",
        f"{statistics.fmean(one.expected for one in own):+.2f}",
        _interval(over_divisions(list(mean.values()), ratio)),
        "" if choice == CURVES else _interval(less),
    ]
    return f"| {choice} | " + " | ".join(cells) + " |"


def _interval(estimate: Estimate) -> str:
    between = estimate.interval()
    if not math.isfinite(between.low):
        return f"{between.value:+.2f}"
    return f"{between.value:+.2f} ({between.low:+.2f} to {between.high:+.2f})"


def mean_gains(gains: Iterable[MemberGain]) -> dict[int, float]:
    """Return the mean gain over all participants of each repetition."""
    found: dict[int, list[float]] = {}
    for one in gains:
        found.setdefault(one.repetition, []).append(one.gain)
    return {seed: statistics.fmean(own) for seed, own in found.items()}


def agreeing_pairs(gains: Iterable[MemberGain]) -> tuple[int, int]:
    """Return in how many pairs of partitions expected and realised gains agree, and all pairs."""
    totals: dict[tuple[int, int], dict[str, tuple[float, float]]] = {}
    for one in gains:
        own = totals.setdefault((one.participants, one.repetition), {})
        expected, gain = own.get(one.choice, (0.0, 0.0))
        own[one.choice] = expected + one.expected, gain + one.gain
    right = pairs = 0
    for own in totals.values():
        for first, second in combinations(own.values(), 2):
            if abs(first[0] - second[0]) > ROUNDING:
                pairs += 1
                right += (first[0] > second[0]) == (first[1] > second[1])
    return right, pairs

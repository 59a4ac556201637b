"""What Principle 1, no free riders, costs: the coalitions with it, without it, and nobody together.

Under the principle, every member of a coalition benefits another member and is benefited by
another one. Without it, competition alone separates participants: the partition with the highest
welfare is taken, whoever gives or receives. Such a partition exists in this comparison only.
A *rider* receives and gives nothing in it, and a *donor* gives and receives nothing.

Benefits are learned once in each repetition, by two estimators, and both partitions are formed
along the same benefits:

- `transfer`: a benefit graph. A benefit is an edge where it is shown with 95 % confidence, so a
  participant *gives nothing* as long as nothing is shown;
- `curves`: expected gains of all coalitions, the product's default. Giving nothing means that the
  others expect to gain as much without the participant. Nothing is demanded of a member's
  probability to gain, so that the principle alone makes the difference.

All participants train alone and, with the same settings, in the coalitions of both partitions. What
the principle costs is the gain over training alone without it minus that with it, in the units of
the test metric (a mean squared error with its sign turned), positive for a cost. A coalition that
both partitions have is trained once. Nothing was tuned, and everybody keeps the model that it
trained, as in the study of free riders.

    python -m reproduction principle-one
"""

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fedegoists.benefit import learn_repetitions
from fedegoists.coalitions.welfare import utilities_by
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.coalition_values import Benefits, pair_graph
from fedegoists.learning.data import SiloedData
from fedegoists.learning.own_models import model_parts
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import learn_settings
from fedegoists.training.repetitions import Repetitions, Wanted, train_methods
from fedegoists.training.summary import chosen_test_values
from reproduction.gains_study import GAIN_STUDIES
from reproduction.principle_one import Partition, best_with, best_without, positions, roles
from reproduction.record_files import read_records, records_csv

if TYPE_CHECKING:
    from fedegoists.benefit.silo_queries import Apart

__all__ = ["METHODS", "SOURCES", "TASKS", "MemberCost", "costs_csv", "costs_of", "read_costs"]

TASKS = ("synthetic-weak", "synthetic-strong", "heart", "eicu-demo", "tcga-brca")
REPORTED_ON = tuple(range(10))
METHODS = ("fedavg", "fedegoists", "egomix")
Source = Literal["transfer", "curves"]
SOURCES: tuple[Source, ...] = get_args(Source)
ALONE = "local"

Told = Callable[[str], object]
Tested = Mapping[Participant, float]


@dataclass(frozen=True)
class MemberCost:
    """One participant in the partitions with and without Principle 1.

    Attributes
    ----------
    source : str
        The estimator of the benefits along which both partitions were formed.
    role : str
        ``rider``, ``donor`` or ``member`` in the partition without the principle.
    members_with, members_without : int
        Members of its coalition, itself included.
    expected_with, expected_without : float
        Its utility by the benefits.
    gain_with, gain_without : float
        The gain of its test metric over training alone, higher is better.
    train, test : int
        Its samples.
    """

    task: str
    source: str
    repetition: int
    method: str
    participant: str
    role: str
    members_with: int
    members_without: int
    expected_with: float
    expected_without: float
    gain_with: float
    gain_without: float
    train: int
    test: int

    @property
    def cost(self) -> float:
        """What the principle costs it; not a number where the test metric is not defined."""
        return self.gain_without - self.gain_with


@dataclass(frozen=True)
class Compared:
    """The two partitions of one repetition."""

    benefits: Benefits
    competition: CompetitionGraph
    kept: Partition
    free: Partition


def costs_of(
    task: str,
    source: Source,
    repetitions: Iterable[int] = REPORTED_ON,
    methods: Sequence[str] = METHODS,
    *,
    steps: int | None = None,
    tell: Told = lambda _: None,
    load: Callable[..., SiloedData] | None = None,
) -> list[MemberCost]:
    """Learn benefits, form coalitions with and without the principle, train in both, and compare.

    Parameters
    ----------
    steps : int, optional
        Steps other than the task's.
    load : function, optional
        Loads the data instead of the task's own function.
    """
    study, began = GAIN_STUDIES[task], time.monotonic()
    data = {seed: (load or study.load)(data_dir=None, seed=seed) for seed in repetitions}
    first = next(iter(data.values()))
    federation = SimulatedFederation(data, model_parts(first, study.model))
    compared = _compared(data, federation, source, study.model)
    tell(f"{task}, {source}: partitions found after {time.monotonic() - began:.0f} s")
    trained = Repetitions.over(
        federation,
        first,
        list(data),
        steps=study.steps if steps is None else steps,
        model=study.model,
    )
    sign = 1.0 if federation.task.higher_is_better else -1.0
    alone = _tested((ALONE,), [(one,) for one in federation.participants], (), trained)[ALONE]
    gains = dict(_gains(methods, compared, trained, alone, sign))
    tell(f"{task}, {source}: trained after {time.monotonic() - began:.0f} s")
    rows = []
    for method in methods:
        for seed, one in compared.items():
            rows += _rows(task, source, seed, method, one, data[seed], gains)
    return rows


def _compared(
    data: Mapping[int, SiloedData], federation: SimulatedFederation, source: Source, model: str
) -> dict[int, Compared]:
    """Learn the benefits of all repetitions, and form the two partitions of each."""
    first = next(iter(data.values()))
    rivals = {
        seed: CompetitionGraph(one.competition_pairs, one.participants)
        for seed, one in data.items()
    }
    apart: Apart = {seed: graph.pairs for seed, graph in rivals.items()}
    settings = learn_settings(first, source, model=model)
    estimates = learn_repetitions(federation, settings, apart=apart, secret="")
    found = {}
    for seed, competition in rivals.items():
        values = estimates[seed].values
        benefits = estimates[seed].graph() if values is None else values
        kept, free = best_with(benefits, competition)[0], best_without(benefits, competition)[0]
        found[seed] = Compared(benefits, competition, kept, free)
    return found


def _gains(
    methods: Sequence[str],
    compared: Mapping[int, Compared],
    trained: Repetitions,
    alone: Tested,
    sign: float,
) -> Iterable[tuple[tuple[str, int, frozenset[str], str], float]]:
    """Yield the gain of every participant alone, which is none, and in every coalition, by method.

    What is trained in a coalition depends on nothing outside it; so what both partitions have in
    common is taken from the first, and cannot differ by rounding. Gains are not numbers where the
    test metric is not defined.
    """
    for one, value in alone.items():
        for method in methods:
            yield (method, int(one.repetition or 0), frozenset([one.name]), one.name), value - value
    edges = tuple(
        (Participant(j, seed), Participant(i, seed), weight)
        for seed, one in compared.items()
        for j, i, weight in _graph(one.benefits).edges()
    )
    known: set[tuple[int, frozenset[str]]] = set()
    for choice in ("kept", "free"):
        partitions: dict[int, Partition] = {
            seed: getattr(one, choice) for seed, one in compared.items()
        }
        fresh = {
            (seed, frozenset(group))
            for seed, groups in partitions.items()
            for group in groups
            if len(group) > 1
        } - known
        if not fresh:
            continue
        known |= fresh
        groups = [
            group
            for seed, partition in partitions.items()
            for group in Participant.groups(partition, seed)
        ]
        tested = _tested(methods, groups, edges, trained)
        for method in methods:
            for seed, group in fresh:
                for name in group:
                    one = Participant(name, seed)
                    gain = sign * (tested[method][one] - alone[one])
                    yield (method, seed, group, name), gain


def _graph(benefits: Benefits) -> BenefitGraph:
    return benefits if isinstance(benefits, BenefitGraph) else pair_graph(benefits)


def _tested(
    methods: Sequence[str],
    groups: list[tuple[Participant, ...]],
    edges: tuple[tuple[Participant, Participant, float], ...],
    trained: Repetitions,
) -> dict[str, dict[Participant, float]]:
    """Train, and return the test metrics of all participants, by method."""
    with tempfile.TemporaryDirectory() as folder:
        place = partial(_checkpoint, folder)
        wanted = Wanted(tuple(methods))
        outcomes = train_methods(wanted, trained, Decisions(groups, groups, edges), place)
    nothing = dict.fromkeys(trained.federation.participants, math.nan)
    return {
        method: nothing | chosen_test_values(outcome, trained.federation)
        for method, outcome in outcomes.items()
    }


def _checkpoint(folder: str, method: str) -> Path:
    return Path(folder, f"{method}.safetensors")


def _rows(
    task: str,
    source: str,
    seed: int,
    method: str,
    one: Compared,
    data: SiloedData,
    gains: Mapping[tuple[str, int, frozenset[str], str], float],
) -> list[MemberCost]:
    """Return the rows of all participants."""
    names = data.participants
    kinds = roles(one.benefits, one.competition, one.free)
    homes, utility = [], []
    for partition in (one.kept, one.free):
        homes.append({name: frozenset(group) for group in partition for name in group})
        expected = utilities_by(one.benefits, positions(partition, names))
        utility.append(dict(zip(names, expected.tolist(), strict=True)))
    sizes = data.sizes()
    return [
        MemberCost(
            *(task, source, seed, method, name, kinds[name]),
            members_with=len(homes[0][name]),
            members_without=len(homes[1][name]),
            expected_with=utility[0][name],
            expected_without=utility[1][name],
            gain_with=gains[method, seed, homes[0][name], name],
            gain_without=gains[method, seed, homes[1][name], name],
            train=sizes[name].train,
            test=sizes[name].test,
        )
        for name in names
    ]


costs_csv = partial(records_csv, MemberCost)
"""Return rows as CSV, see `reproduction.record_files`."""


read_costs = partial(read_records, MemberCost)
"""Read what `costs_csv` returned."""


def means(costs: Sequence[MemberCost], role: str | None = None) -> dict[int, float]:
    """Return what the principle costs on average, by repetition.

    Repetitions without a participant of this role, or whose test metrics are not defined, are left
    out.
    """
    by_repetition: dict[int, list[float]] = {}
    for one in costs:
        if role in (None, one.role) and math.isfinite(one.cost):
            by_repetition.setdefault(one.repetition, []).append(one.cost)
    return {seed: statistics.fmean(own) for seed, own in by_repetition.items()}


def welfare_lost(costs: Sequence[MemberCost]) -> dict[int, float]:
    """Return the fraction of the expected welfare that is lost, by repetition.

    Repetitions in which nobody could gain anything are left out.
    """
    found = {}
    for seed in sorted({one.repetition for one in costs}):
        own = [one for one in costs if one.repetition == seed]
        free = math.fsum(one.expected_without for one in own)
        if free > 0:
            found[seed] = 1 - math.fsum(one.expected_with for one in own) / free
    return found


def test_ratio(costs: Sequence[MemberCost]) -> float:
    """Return test samples by training samples where repetitions divide the same; else 0.

    With 0 the interval of Nadeau and Bengio is Student's: synthetic samples are drawn anew.
    """
    if all(one.task.startswith("synthetic") for one in costs):
        return 0.0
    return float(np.sum([one.test for one in costs]) / np.sum([one.train for one in costs]))

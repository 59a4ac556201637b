"""What one bad member costs the others, by method and by the rule that forms coalitions.

In every repetition one member, another one each time, behaves in one of five ways:

- *honest*;
- *one per cent*: it has 1 % of its training samples, ten at least, and takes part like everybody;
- *random labels*: its training and validation targets are shuffled, and it trains on them honestly;
- *scaled*: its updates and gradients are ten times as large;
- *flipped*: they point into the opposite direction.

Coalitions are formed by two rules. With *everybody*, all are taken to benefit all others, so that
competition alone separates members and the first principle, no free riders, is not checked. With
*learned*, benefits are learned (by `transfer`) while the member behaves as it does, and the best
coalitions along them are formed: whoever does not benefit anybody is in no coalition.

What the others lose is the mean over all other members of their test metric with an honest member
minus that with the bad one, in the units of the metric, positive for a loss. Nothing protects
training here besides the rule: neither bounds on norms nor robust sums, which `fedegoists run` has,
and nobody falls back to the own model. Nothing was tuned.

    python -m reproduction free-riders
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fedegoists.benefit import learn_repetitions
from fedegoists.coalitions import form
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.federation.behaviours import times
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning.data import Samples, SiloedData
from fedegoists.learning.own_models import model_parts
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import learn_settings
from fedegoists.training.repetitions import Repetitions, Wanted, train_methods
from fedegoists.training.summary import chosen_test_values
from reproduction.gains_study import GAIN_STUDIES
from reproduction.record_files import read_records, records_csv
from reproduction.table_results import interval

if TYPE_CHECKING:
    from fedegoists.benefit.silo_queries import Apart

__all__ = ["TASKS", "Loss", "losses_of", "rider_page"]

TASKS = ("synthetic-weak", "heart", "eicu-demo")
REPORTED_ON = tuple(range(10))
METHODS = (
    *("local", "fedavg", "fedavgm", "scaffold", "pfedgraph", "ditto", "fedfomo"),
    *("fedegoists", "egomix"),
)
Behaving = Literal["honest", "one per cent", "random labels", "scaled", "flipped"]
BEHAVIOURS: tuple[Behaving, ...] = get_args(Behaving)
Rule = Literal["everybody", "learned"]
RULES: tuple[Rule, ...] = get_args(Rule)
MISSING = "–"
"""What is not measured yet."""
INTERVALS = (
    "95 % intervals are over repetitions, by Student's t, and not corrected for patients that "
    "repetitions share."
)
DIVERGED = 1000.0
"""From here on, losses are written without digits behind the point."""
SCALE = 10.0
FEWEST = 10
"""Training samples that a member with one per cent of them has at least."""


@dataclass(frozen=True)
class Loss:
    """What the others of one repetition have with one bad member.

    Attributes
    ----------
    metric : float
        Mean test metric of all members but the bad one, higher is better.
    company : int
        Members in the bad one's coalition, itself included.
    """

    task: str
    repetition: int
    rule: str
    behaviour: str
    method: str
    metric: float
    company: int


def losses_of(
    task: str,
    repetitions: Iterable[int] = REPORTED_ON,
    methods: Sequence[str] = METHODS,
    *,
    behaviours: Sequence[Behaving] = BEHAVIOURS,
    rules: Sequence[Rule] = RULES,
    steps: int | None = None,
    tell: Callable[[str], object] = lambda _: None,
    load: Callable[..., SiloedData] | None = None,
) -> list[Loss]:
    """Train a task with a member that behaves in every way, by both rules.

    Parameters
    ----------
    methods, behaviours, rules : sequences
        Those to train; all if left out.
    steps : int, optional
        Steps other than the task's.
    load : function, optional
        Loads the data instead of the task's own function.
    """
    study, found = GAIN_STUDIES[task], []
    began = time.monotonic()
    known = {seed: (load or study.load)(data_dir=None, seed=seed) for seed in repetitions}
    bad = {seed: data.participants[seed % len(data.participants)] for seed, data in known.items()}
    for behaviour in behaviours:
        data = {seed: behaving(one, bad[seed], behaviour, seed) for seed, one in known.items()}
        factor = {"scaled": SCALE, "flipped": -1.0}.get(behaviour)
        parts = model_parts(next(iter(data.values())), study.model)
        federation = SimulatedFederation(
            data,
            parts,
            behaviours={}
            if factor is None
            else {Participant(name, seed): times(factor) for seed, name in bad.items()},
        )
        trained = Repetitions.over(
            federation,
            next(iter(data.values())),
            list(data),
            steps=study.steps if steps is None else steps,
            model=study.model,
        )
        for rule in rules:
            decisions = decided(data, federation, rule, study.model)
            company = {name: len(group) for group in decisions.final for name in group}
            with tempfile.TemporaryDirectory() as folder:
                place = partial(_checkpoint, folder)
                outcomes = train_methods(Wanted(tuple(methods)), trained, decisions, place)
            sign = 1.0 if federation.task.higher_is_better else -1.0
            for method, outcome in outcomes.items():
                tested = chosen_test_values(outcome, federation)
                for seed, name in bad.items():
                    others = [
                        sign * tested[one]
                        for one in federation.participants
                        if one.repetition == seed and one.name != name and one in tested
                    ]
                    mean = statistics.fmean(value for value in others if value == value)
                    size = company[Participant(name, seed)]
                    found.append(Loss(task, seed, rule, behaviour, method, mean, size))
            tell(f"{task}, {behaviour}, {rule}: {time.monotonic() - began:.0f} s")
    return found


def _checkpoint(folder: str, method: str) -> Path:
    return Path(folder, f"{method}.safetensors")


def behaving(data: SiloedData, name: str, behaviour: Behaving, seed: int) -> SiloedData:
    """Return data in which a member has few samples, or wrong targets."""
    rng = np.random.default_rng([seed, 7])
    (silo,) = (one for one in data.silos if one.name == name)
    if behaviour == "one per cent":
        count = min(len(silo.train), max(FEWEST, len(silo.train) // 100))
        few = replace(silo, train=np.sort(rng.choice(silo.train, count, replace=False)))
        return replace(data, silos=tuple(few if one is silo else one for one in data.silos))
    if behaviour == "random labels":
        targets = data.samples.targets.copy()
        for part in (silo.train, silo.validation):
            targets[part] = rng.permutation(targets[part])
        return replace(data, samples=Samples(data.samples.inputs, targets))
    return data


def decided(
    data: Mapping[int, SiloedData], federation: SimulatedFederation, rule: Rule, model: str
) -> Decisions:
    """Form the coalitions of all repetitions by a rule."""
    first = next(iter(data.values()))
    rivals = {
        seed: CompetitionGraph(one.competition_pairs, one.participants)
        for seed, one in data.items()
    }
    if rule == "learned":
        settings = learn_settings(first, "transfer", model=model)
        apart: Apart = {seed: graph.pairs for seed, graph in rivals.items()}
        estimates = learn_repetitions(federation, settings, apart=apart, secret="")
        graphs = {seed: estimates[seed].graph() for seed in data}
    else:
        graphs = {
            seed: BenefitGraph(1.0 - np.eye(len(one.participants)), one.participants)
            for seed, one in data.items()
        }
    groups: list[tuple[Participant, ...]] = []
    edges: list[tuple[Participant, Participant, float]] = []
    for seed, graph in graphs.items():
        groups += Participant.groups(form(graph, rivals[seed], "best").coalitions, seed)
        edges += [
            (Participant(j, seed), Participant(i, seed), weight) for j, i, weight in graph.edges()
        ]
    return Decisions(groups, groups, tuple(edges))


losses_csv = partial(records_csv, Loss)
"""Return rows as CSV, see `reproduction.record_files`."""


read_losses = partial(read_records, Loss)
"""Read what `losses_csv` returned."""


def rider_page(losses: Sequence[Loss], origin: str) -> str:
    """Return the results as a page."""
    lines = ["# What one bad member costs the others", ""]
    lines += (__doc__ or "").partition("\n\n")[2].partition("    python")[0].strip().splitlines()
    lines += ["", INTERVALS]
    for task in dict.fromkeys(one.task for one in losses):
        own = [one for one in losses if one.task == task]
        count = len({one.repetition for one in own})
        lines += ["", f"## {task}, {count} repetitions", ""]
        lines += _company(own)
        for rule in RULES:
            lines += ["", f"Loss of the others, coalitions by *{rule}*:", ""]
            lines += _losses([one for one in own if one.rule == rule])
    return "\n".join([*lines, "", origin, ""])


def _company(losses: Sequence[Loss]) -> list[str]:
    """Return how often the bad member is in company."""
    lines = [
        "The bad member is in a coalition with others, in how many repetitions:",
        "",
        f"| rule | {' | '.join(BEHAVIOURS)} |",
        "|---" * (len(BEHAVIOURS) + 1) + "|",
    ]
    for rule in RULES:
        cells = []
        for behaviour in BEHAVIOURS:
            own = {
                one.repetition: one.company > 1
                for one in losses
                if (one.rule, one.behaviour) == (rule, behaviour)
            }
            cells.append(f"{sum(own.values())} of {len(own)}" if own else MISSING)
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


def _losses(losses: Sequence[Loss]) -> list[str]:
    places = {(one.method, one.behaviour, one.repetition): one.metric for one in losses}
    methods = [name for name in dict.fromkeys(one.method for one in losses) if name != "local"]
    repetitions = sorted({one.repetition for one in losses})
    lines = [
        f"| method | honest, gain over Local | {' | '.join(BEHAVIOURS[1:])} |",
        "|---" * (len(BEHAVIOURS) + 1) + "|",
    ]
    for method in methods:
        pairs = [(("local", "honest"), (method, "honest"))]
        pairs += [((method, behaviour), (method, "honest")) for behaviour in BEHAVIOURS[1:]]
        cells = (
            _shown(
                [
                    places[*honest, one] - places[*other, one]
                    for one in repetitions
                    if (*honest, one) in places and (*other, one) in places
                ]
            )
            for other, honest in pairs
        )
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def _shown(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    mean, low, high = map(_number, interval(values))
    return f"{mean} ({low} to {high})"


def _number(value: float) -> str:
    """Return a number with three digits behind the point, or none where models have diverged."""
    return f"{value:+.3f}" if abs(value) < DIVERGED else f"{value:+,.0f}"

"""Free riders and copycats: found by the evidence, found by accounting, and at which price.

In every repetition one member, another one each time, behaves in one of four ways:

- *honest*;
- *random labels*: its training and validation targets are shuffled, and it trains on them honestly;
- *no update*: its model never changes, whatever it is asked for;
- *copycat*: it has the samples of another member instead of its own, divided anew.

*Evidence.* Benefits are learned while the member behaves as it does, by ``transfer`` and by
``curves``, and the best coalitions are formed. The member is found if it is in no coalition.

*Accounting.* All members train together by FedAvg, and tune at home, whatever the evidence says.
Contributions are measured as `fedegoists run` does with ``training.contributions``: by training
again without each member. A member is *accused* if the interval of what it gave, which holds for
all members of a coalition together with 95 %, is nowhere above zero, and *redundant* if its samples
agree with those of another member more closely than separate samples can (`redundant_members`).

*Price.* What the others lose as long as nobody acts: their mean test metric with the honest member
minus that with the other one, positive for a loss, in the units of the metric, with the
95 % interval of Nadeau and Bengio over divisions.

*Not blind.* The levels are 95 % and 1 %, as anywhere else. But two rules were changed after results
of these very repetitions were known: trainings are compared at the round that the loss prefers, not
the metric, by which a third of honest members alike were accused (commit `7a7ffdd7`); and intervals
hold for all members of a coalition together (`56d6d409`). So other data should confirm how few
false alarms there are.

Budgets are small: 600 steps, 100 with digits and in clean consortia. CIFAR-10 is divided among ten
silos with random shares of every class; there members tune for 100 steps, and evidence is by
``transfer`` with three repeats alone, as ``curves`` would cost more than all the rest. Digits and
clean consortia have no evidence.

*Clean consortia.* Everybody is honest: four to six silos with 60 to 200 samples of a noisy linear
rule of ten features, in every second consortium the same rule, in the others one of its own. Each
consortium has a seed of its own, and every alarm is a false one, at least as far as behaviour is
concerned: where rules differ, the others may indeed be better off without a member.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from fedegoists.benefit import learn_repetitions
from fedegoists.coalitions import form
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.federation.behaviours import times
from fedegoists.graphs import CompetitionGraph
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.estimates import over_divisions
from fedegoists.learning.own_models import model_parts
from fedegoists.methods import Outcome
from fedegoists.training.contributions import Contribution, contributions, left_out_in_turn
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import learn_settings
from fedegoists.training.redundancy import redundant_members
from fedegoists.training.repetitions import Repetitions, Wanted, train_methods
from fedegoists.training.summary import chosen_test_values
from reproduction.free_rider_study import behaving
from reproduction.gains_study import GAIN_STUDIES, GainStudy
from reproduction.record_files import read_records, records_csv

if TYPE_CHECKING:
    from fedegoists.benefit.silo_queries import Apart

__all__ = [
    "CLEAN",
    "CONTRIBUTION_TASKS",
    "MemberResult",
    "clean_consortium",
    "contribution_page",
    "contribution_rows",
    "members_csv",
    "read_members",
]

Behaving = Literal["honest", "random labels", "no update", "copycat"]
BEHAVIOURS: tuple[Behaving, ...] = get_args(Behaving)
FEATURES = 10
ESTIMATORS = ("transfer", "curves")
METHODS = ("fedavg", "fedavg+ft")
CLEAN = "clean"
PARTS: dict[str, tuple[range, ...]] = {
    **{task: (range(10),) for task in ("heart", "eicu-demo", "digits")},
    CLEAN: (range(100),),
    "cifar10": (range(5), range(5, 10)),
}
"""The repetitions of each task that are reported on, in parts that are measured at once."""
WITH_EVIDENCE: dict[str, tuple[str, ...]] = {
    "heart": ESTIMATORS,
    "eicu-demo": ESTIMATORS,
    "cifar10": ("transfer",),
}
"""The estimators by which benefits are learned; those of other tasks are not measured."""
IMAGES = "cifar10"
IMAGE_REPEATS = 3
"""Repeats of the evidence on images."""
IMAGE_TUNING, IMAGE_EVALUATIONS = 2, 4
"""Rounds of tuning on images, and rounds between two evaluations."""
MISSING = "–"
TEST_TO_TRAIN = {"heart": 0.213, "eicu-demo": 0.213, "digits": 0.334, "cifar10": 0.703}
"""Test samples for each training sample, by task."""


def digits_of(seed: int, count: int) -> SiloedData:
    """Return scikit-learn's digits in silos, at random."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    parts = np.array_split(rng.permutation(len(digits)), count)
    silos = tuple(
        SiloIndices(f"d{k + 1}", *np.split(rows, [int(0.6 * len(rows)), int(0.8 * len(rows))]))
        for k, rows in enumerate(parts)
    )
    samples = Samples((((images - 8) / 8).astype(np.float32),), digits.astype(np.int64))
    return SiloedData("digits", "classification", samples, silos, 10, "handwritten digits", ())


def _clean(*, seed: int, data_dir: object = None) -> SiloedData:
    del data_dir  # nothing is read
    return clean_consortium(seed)


def _eight_silos(*, seed: int, data_dir: object = None) -> SiloedData:
    del data_dir  # nothing is read
    return digits_of(seed, 8)


CONTRIBUTION_TASKS = {
    "heart": replace(GAIN_STUDIES["heart"], steps=600),
    "eicu-demo": replace(GAIN_STUDIES["eicu-demo"], steps=600),
    "digits": GainStudy(_eight_silos, "logistic", steps=100),
    CLEAN: GainStudy(_clean, "linear", steps=100),
    "cifar10": GainStudy(GAIN_STUDIES["cifar10-dirichlet"].load, steps=600),
}
"""The tasks by name, with budgets that a CPU can pay, and for images a GPU in minutes."""


def clean_consortium(number: int) -> SiloedData:
    """Return one of the consortia in which everybody is honest.

    All silos have the same linear rule if the number is even, otherwise each its own.
    """
    rng = np.random.default_rng([77, number])
    slopes = rng.normal(size=FEATURES)
    inputs, targets, silos, first = [], [], [], 0
    for k in range(int(rng.integers(4, 7))):
        size = int(rng.integers(60, 201))
        own = slopes + (rng.normal(size=FEATURES) / 2 if number % 2 else 0.0)
        inputs.append(rng.normal(size=(size, FEATURES)))
        targets.append(inputs[-1] @ own + rng.normal(size=size))
        parts = np.split(np.arange(first, first + size), [int(0.6 * size), int(0.8 * size)])
        silos.append(SiloIndices(f"s{k + 1}", *parts))
        first += size
    samples = Samples(
        (np.concatenate(inputs).astype(np.float32),), np.concatenate(targets).astype(np.float32)
    )
    return SiloedData("lines", "regression", samples, tuple(silos), None, "linear rules", ())


@dataclass(frozen=True)
class MemberResult:
    """What is known of one member of one repetition.

    Attributes
    ----------
    bad : int
        1 if it is the one that behaves.
    transfer, curves : int
        The size of its coalition by the evidence; 0 if that was not learned.
    accused : int
        1 if what it gave is clearly not positive.
    redundant : str
        The members with the same samples.
    metric : float
        Its test metric with FedAvg, higher is better.
    """

    task: str
    repetition: int
    behaviour: str
    method: str
    participant: str
    bad: int
    transfer: int
    curves: int
    gave: float
    low: float
    high: float
    accused: int
    redundant: str
    metric: float


def contribution_rows(
    task: str,
    behaviour: Behaving,
    repetitions: Iterable[int] = range(10),
    *,
    study: GainStudy | None = None,
    steps: int | None = None,
    estimators: Sequence[str] | None = None,
    device: str = "cpu",
    tell: Callable[[str], object] = lambda _: None,
) -> list[MemberResult]:
    """Learn benefits, train together with a member that behaves in a way, and account for it.

    Parameters
    ----------
    study, steps : optional
        Others than the task's own.
    device : str
        ``cpu``, ``cuda`` or ``cuda:1``. On a GPU all silos of all repetitions train at once.
    """
    if estimators is None:
        estimators = WITH_EVIDENCE.get(task, ())
    study, began = study or CONTRIBUTION_TASKS[task], time.monotonic()
    known = {seed: study.load(data_dir=None, seed=seed) for seed in repetitions}
    bad = {seed: data.participants[seed % len(data.participants)] for seed, data in known.items()}
    data = {seed: behaved(one, bad[seed], behaviour, seed) for seed, one in known.items()}
    first = next(iter(data.values()))
    parts = model_parts(first, study.model)
    still = {Participant(name, seed): times(0.0) for seed, name in bad.items()}
    federation = SimulatedFederation(
        data,
        parts,
        behaviours=still if behaviour == "no update" else {},
        device=device,
        bf16=device != "cpu",
    )
    tell(f"{task}, {behaviour}: {federation.engine.name}, {time.monotonic() - began:.0f} s")
    company = {one: _company(one, data, federation, study.model) for one in estimators}
    tell(f"{task}, {behaviour}: evidence after {time.monotonic() - began:.0f} s")
    trained = Repetitions.over(
        federation, first, list(data), steps=study.steps if steps is None else steps,
        model=study.model,
    )  # fmt: skip
    if task == IMAGES:
        shorter = replace(
            trained.defaults, tune_rounds=IMAGE_TUNING, evaluate_every=IMAGE_EVALUATIONS
        )
        trained = replace(trained, defaults=shorter)
    sign, found = 1.0 if federation.task.higher_is_better else -1.0, []
    for method, seed, members, tested in _accounted(trained, federation, data):
        for one in members:
            who = Participant(one.participant, seed)
            transfer, curves = (company.get(name, {}).get(who, 0) for name in ESTIMATORS)
            found.append(
                MemberResult(
                    task=task,
                    repetition=seed,
                    behaviour=behaviour,
                    method=method,
                    participant=one.participant,
                    bad=int(behaviour != "honest" and one.participant == bad[seed]),
                    transfer=transfer,
                    curves=curves,
                    gave=one.gave.value,
                    low=one.gave.low,
                    high=one.gave.high,
                    accused=int(one.gave_nothing),
                    redundant=";".join(one.redundant_with),
                    metric=sign * tested.get(who, float("nan")),
                )
            )
    tell(f"{task}, {behaviour}: accounted for after {time.monotonic() - began:.0f} s")
    return found


def behaved(data: SiloedData, name: str, behaviour: Behaving, seed: int) -> SiloedData:
    """Return data in which a member has wrong targets or the samples of another one."""
    if behaviour == "random labels":
        return behaving(data, name, behaviour, seed)
    if behaviour != "copycat":
        return data
    place = data.participants.index(name)
    source = data.silos[(place + 1) % len(data.silos)]
    rows = np.concatenate([source.train, source.validation, source.test])
    rows = np.random.default_rng([seed, 11]).permutation(rows)
    samples, ends = data.samples, np.cumsum([len(source.train), len(source.validation)])
    copied = SiloIndices(name, *np.split(len(samples) + np.arange(len(rows)), ends))
    again = samples.take(rows)
    whole = Samples(
        tuple(np.concatenate(both) for both in zip(samples.inputs, again.inputs, strict=True)),
        np.concatenate([samples.targets, again.targets]),
    )
    silos = tuple(copied if k == place else one for k, one in enumerate(data.silos))
    return replace(data, samples=whole, silos=silos)


def _company(
    estimator: str, data: Mapping[int, SiloedData], federation: SimulatedFederation, model: str
) -> dict[Participant, int]:
    """Return the sizes of coalitions that are formed by the evidence of an estimator."""
    rivals = {
        seed: CompetitionGraph(one.competition_pairs, one.participants)
        for seed, one in data.items()
    }
    first = next(iter(data.values()))
    repeats: dict[str, Any] = {"repeats": IMAGE_REPEATS} if first.name == IMAGES else {}
    settings = learn_settings(first, estimator, model=model, **repeats)
    apart: Apart = {seed: graph.pairs for seed, graph in rivals.items()}
    estimates = learn_repetitions(federation, settings, apart=apart, secret="")
    sizes: dict[Participant, int] = {}
    for seed, rivalry in rivals.items():
        estimate = estimates[seed]
        benefits = estimate.graph() if estimate.values is None else estimate.values
        for group in form(benefits, rivalry, "best").coalitions:
            sizes |= {Participant(name, seed): len(group) for name in group}
    return sizes


def _accounted(
    trained: Repetitions, federation: SimulatedFederation, data: Mapping[int, SiloedData]
) -> Iterator[tuple[str, int, list[Contribution], dict[Participant, float]]]:
    """Train all members of each repetition together, and without each.

    Yields, by method and repetition, what members gave and their test metrics.
    """
    groups = [
        tuple(Participant(name, seed) for name in one.participants) for seed, one in data.items()
    ]
    # Models are compared at the round that the loss prefers, as in a run.
    outcomes = _trained(("local", *METHODS), trained, groups)
    turns = [_trained(METHODS, trained, turn) for turn in left_out_in_turn(groups)]
    for seed, group in zip(data, groups, strict=True):
        places = [federation.participants.index(name) for name in group]
        models = torch.cat([one.best[places].cpu() for one in outcomes.values()])
        alike = redundant_members(federation, [group], models)
        for name in METHODS:
            without = [turn[name] for turn in turns[: len(group)]]
            members = contributions(federation, [group], outcomes[name], without, alike)
            yield name, seed, members, chosen_test_values(outcomes[name], federation)


def _trained(
    methods: tuple[str, ...], trained: Repetitions, groups: Sequence[tuple[Participant, ...]]
) -> dict[str, Outcome]:
    decisions = Decisions(list(groups), list(groups), None)
    return train_methods(Wanted(methods), trained, decisions, lambda _: None, choose_by="loss")


members_csv = partial(records_csv, MemberResult)
"""Return rows as CSV, see `reproduction.record_files`."""


read_members = partial(read_records, MemberResult)
"""Read what `members_csv` returned."""


def contribution_page(rows: Sequence[MemberResult], origins: Sequence[str]) -> str:
    """Return the results as a page."""
    lines = ["# Free riders, copycats and honest members", ""]
    lines += (__doc__ or "").partition("\n\n")[2].strip().splitlines()
    for task in dict.fromkeys(one.task for one in rows):
        own = [one for one in rows if one.task == task]
        count = len({one.repetition for one in own})
        if task == CLEAN:
            lines += ["", f"## {count} clean consortia", "", *_clean_table(own)]
            continue
        lines += ["", f"## {task}, {count} repetitions", "", *_evidence(own)]
        for method in METHODS:
            lines += ["", f"Accounting with {method}:", ""]
            lines += _accounts([one for one in own if one.method == method])
    return "\n".join([*lines, "", *origins, ""])


def _evidence(rows: Sequence[MemberResult]) -> list[str]:
    """Return how often the member is in no coalition by the evidence, and how often others are."""
    lines = [
        "In no coalition by the evidence, the member and, in brackets, the others:",
        "",
        f"| estimator | {' | '.join(BEHAVIOURS)} |",
        "|---" * (len(BEHAVIOURS) + 1) + "|",
    ]
    first = [one for one in rows if one.method == METHODS[0]]
    for name in ESTIMATORS:
        who, cells = _bad_ones(first), []
        for behaviour in BEHAVIOURS:
            own = [one for one in first if one.behaviour == behaviour and getattr(one, name)]
            bad = [getattr(one, name) == 1 for one in own if one.participant == who[one.repetition]]
            rest = [
                getattr(one, name) == 1 for one in own if one.participant != who[one.repetition]
            ]
            known = f"{sum(bad)} of {len(bad)} ({sum(rest)} of {len(rest)})"
            cells.append(known if own else MISSING)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _bad_ones(rows: Sequence[MemberResult]) -> dict[int, str]:
    """Return the member of each repetition that does not behave, where any does."""
    found = {one.repetition: one.participant for one in rows if one.bad}
    return {one.repetition: found.get(one.repetition, "") for one in rows}


def _accounts(rows: Sequence[MemberResult]) -> list[str]:
    lines = [
        "| behaviour | member accused | its rank, 1 gives least | others accused "
        "| member redundant | others redundant | loss of the others |",
        "|---" * 7 + "|",
    ]
    who = _bad_ones(rows)
    honest = {
        (one.repetition, one.participant): one.metric for one in rows if one.behaviour == "honest"
    }
    for behaviour in BEHAVIOURS:
        own = [one for one in rows if one.behaviour == behaviour]
        if not own:
            continue
        bad = [one for one in own if one.participant == who[one.repetition]]
        rest = [one for one in own if one.participant != who[one.repetition]]
        ranks = [
            1 + sum(o.gave < one.gave for o in rest if o.repetition == one.repetition)
            for one in bad
        ]
        losses = []
        for seed in {one.repetition for one in rest}:
            pairs = [
                honest[seed, one.participant] - one.metric
                for one in rest
                if one.repetition == seed and (seed, one.participant) in honest
            ]
            known = [value for value in pairs if value == value]
            losses += [statistics.fmean(known)] if known else []
        lost = MISSING
        if behaviour != "honest" and len(losses) > 1:
            found = over_divisions(losses, TEST_TO_TRAIN[rows[0].task]).interval()
            lost = f"{found.value:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
        # The one whose samples were copied is redundant as well.
        cells = (
            _share([bool(one.accused) for one in bad]),
            f"{statistics.fmean(ranks):.1f}" if ranks else MISSING,
            _share([bool(one.accused) for one in rest]),
            _share([bool(one.redundant) for one in bad]),
            _share([bool(one.redundant) for one in rest]),
            lost,
        )
        lines.append(f"| {behaviour} | {' | '.join(cells)} |")
    return lines


def _clean_table(rows: Sequence[MemberResult]) -> list[str]:
    lines = [
        "| silos | method | consortia | with an accused member | accused members | redundant pairs "
        "| gave, mean |",
        "|---" * 7 + "|",
    ]
    for silos, odd in (("alike", 0), ("rules differ", 1)):
        for method in METHODS:
            own = [one for one in rows if one.repetition % 2 == odd and one.method == method]
            if not own:
                continue
            numbers = {one.repetition for one in own}
            accused = {one.repetition for one in own if one.accused}
            alike = sum(len(one.redundant.split(";")) for one in own if one.redundant) // 2
            lines.append(
                f"| {silos} | {method} | {len(numbers)} | {len(accused)} "
                f"| {_share([bool(one.accused) for one in own])} | {alike} "
                f"| {statistics.fmean(one.gave for one in own):+.4f} |"
            )
    return lines


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found)} of {len(found)}" if found else MISSING

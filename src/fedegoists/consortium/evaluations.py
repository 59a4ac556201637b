"""Intervals over test samples, and the quality of each participant's model.

They need the outputs for single samples, which never leave a silo: they are known where all silos
are in this process, and at home (`fedegoists deploy model`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from fedegoists.consortium.participant_models import ChosenModel, personal_part
from fedegoists.federation import Participant, Repetition, SimulatedFederation
from fedegoists.files import csv_bytes
from fedegoists.learning.data import Split, TaskName
from fedegoists.learning.estimates import Estimate, Groups, Interval
from fedegoists.learning.sample_scores import (
    BinaryScores,
    Numbers,
    contributing_groups,
    contributions,
    counted,
    few_samples,
    gain_estimate,
    metric_interval,
)
from fedegoists.learning.task import TASKS
from fedegoists.methods import Outcome

Contributions = dict[Repetition | None, tuple[Numbers, ...]]
"""Contributions of test samples to the metric, by repetition."""


@dataclass(frozen=True)
class JudgedMethod:
    """A participant's metric with a method, over its test samples, as a mean over repetitions.

    Attributes
    ----------
    value : Interval
        The metric, with its interval over test samples.
    estimate : Estimate, optional
        The gain over training alone, with its error over test samples and repetitions.
    """

    method: str
    participant: str
    value: Interval
    estimate: Estimate | None = None

    @property
    def gain(self) -> Interval | None:
        """The gain over training alone, with its interval over test samples and repetitions."""
        return None if self.estimate is None else self.estimate.interval()


@dataclass(frozen=True)
class JudgedModel:
    """The quality of a participant's model over its test samples.

    Attributes
    ----------
    samples : int
        Number of test samples.
    few : str
        Why they are too few for a result; empty if they are not.
    metric : str
        The usual metric of the task.
    value : Interval
        Its value.
    binary : BinaryScores, optional
        More of a binary task.
    groups : int, optional
        Number of groups of test samples, such as patients, that intervals are over; None if every
        sample is by itself.
    """

    participant: str
    method: str
    metric: str
    samples: int
    few: str
    value: Interval
    binary: BinaryScores | None = None
    groups: int | None = None

    @property
    def over(self) -> str:
        """What intervals are over."""
        if self.groups is None:
            return "test samples"
        return f"the {self.groups:,} groups of test samples (patients, or copies of a sample)"


@dataclass(frozen=True)
class Evaluations:
    """All that is known over single test samples; empty where these are not seen.

    Attributes
    ----------
    methods : mapping of (method, participant) to JudgedMethod
        Every method's metric and gain.
    models : mapping of participant to JudgedModel
        The quality of the model that each participant keeps.
    delivered : mapping of participant to Estimate
        Its gain over the model that the participant trained alone, with the error over test
        samples.
    repetitions : int
        Initialisations that the metrics and gains of methods are means over.
    """

    methods: Mapping[tuple[str, str], JudgedMethod] = field(default_factory=dict)
    models: Mapping[str, JudgedModel] = field(default_factory=dict)
    delivered: Mapping[str, Estimate] = field(default_factory=dict)
    repetitions: int = 1

    def about(self, participant: str) -> "Evaluations":
        """Return what concerns one participant."""
        return Evaluations(
            {key: one for key, one in self.methods.items() if one.participant == participant},
            {name: one for name, one in self.models.items() if name == participant},
            {name: one for name, one in self.delivered.items() if name == participant},
            self.repetitions,
        )

    def csv(self) -> bytes:
        """Return an ``intervals.csv``."""
        columns = ("method", "participant", "value", "low", "high", "gain", "gain_low", "gain_high")
        rows = [
            (one.method, one.participant, *_ends(one.value), *_ends(one.gain or Interval(math.nan)))
            for one in self.methods.values()
        ]
        return csv_bytes(columns, rows)


def _ends(one: Interval) -> tuple[str, str, str]:
    low, value, high = (f"{number:.6g}" for number in (one.low, one.value, one.high))
    return value, low, high


def evaluated(
    federation: SimulatedFederation,
    outcomes: Mapping[str, Outcome],
    personal: Mapping[str, tuple[str, ...]],
    delivered: Sequence[ChosenModel] = (),
    *,
    alone: Sequence[str] = (),
    thresholds: Sequence[float] = (0.5,),
) -> Evaluations:
    """Evaluate all chosen models on the test samples of silos in this process.

    A user's own metric is known only as a whole, not sample by sample: with one, methods have no
    intervals over test samples. Models are judged by the usual metric of the task in any case.

    Parameters
    ----------
    outcomes : mapping of str to Outcome
        The outcomes of the methods that were asked for.
    personal : mapping of str to tuple of str
        Prefixes of the parameters that each method kept in the silos.
    delivered : sequence of ChosenModel
        The models that participants keep.
    alone : sequence of str
        Participants that train alone, with every method: they have no gain, and their result with
        any method is that of Local.
    thresholds : sequence of float
        Probabilities at which a binary model is judged.
    """
    task = federation.task
    outputs = _Outputs(federation, outcomes, personal)
    found: dict[str, dict[str, Contributions]] = {}
    grouped: dict[str, tuple[Groups, ...] | None] = {}
    for method, outcome in outcomes.items() if task.usual_metric else ():
        for k, one in enumerate(federation.participants):
            if outcome.best_score[k][0] > -math.inf:
                local = one.name in alone and "local" in outcomes
                how = "local" if local else method
                scores, targets = outputs.scores(how, k, "test")
                parts = contributions(task.name, scores, targets)
                groups = federation.groups(one, "test")
                grouped[one.name] = contributing_groups(task.name, targets, groups)
                found.setdefault(method, {}).setdefault(one.name, {})[one.repetition] = parts
    sign = 1.0 if task.higher_is_better else -1.0
    methods = {}
    for method, participants in found.items():
        for name, values in participants.items():
            base = found.get("local", {}).get(name, {})
            both = [seed for seed in values if seed in base]
            gain = None
            if both and method != "local" and name not in alone:
                gain = gain_estimate(
                    [values[seed] for seed in both],
                    [base[seed] for seed in both],
                    sign,
                    grouped[name],
                )
            value = metric_interval(task.name, list(values.values()), grouped[name])
            methods[method, name] = JudgedMethod(method, name, value, gain)
    models, gains = {}, {}
    for model in delivered:
        name, one = model.card.participant, model.trained
        assert model.parameters is not None  # all silos are in this process
        test = outputs.of(one, model.parameters, "test")
        validation = outputs.of(one, model.parameters, "validation")
        models[name] = judged_model(
            name,
            model.words,
            task.name,
            test,
            validation,
            thresholds,
            federation.groups(one, "test"),
        )
        own = found.get("local", {}).get(name, {}).get(one.repetition)
        if own is not None:
            parts = contributions(task.name, *test)
            gains[name] = gain_estimate([parts], [own], sign, grouped[name])
    repetitions = len({one.repetition for one in federation.participants})
    return Evaluations(methods, models, gains, repetitions)


def judged_model(
    participant: str,
    method: str,
    task: TaskName,
    test: tuple[Numbers, Numbers],
    validation: tuple[Numbers, Numbers],
    thresholds: Sequence[float],
    groups: Groups | None = None,
) -> JudgedModel:
    """Judge one model by its scores and targets of test samples; see `sample_scores`."""
    scores, targets = test
    every = np.ones(len(targets), dtype=bool)
    count = None if groups is None else counted(every, groups)
    few, binary = few_samples(counted(every, groups), noun=_noun(count)), None
    if task == "binary":
        positives, negatives = (counted(one, groups) for one in (targets > 0.5, targets <= 0.5))
        few = few_samples(counted(every, groups), positives, negatives, _noun(count))
        binary = BinaryScores.of(scores, targets, thresholds, validation, groups)
    return JudgedModel(
        participant,
        method,
        TASKS[task].metric,
        len(targets),
        few,
        metric_interval(
            task,
            [contributions(task, scores, targets)],
            contributing_groups(task, targets, groups),
        ),
        binary,
        count,
    )


def _noun(groups: int | None) -> str:
    return "test samples" if groups is None else "groups of test samples"


def sample_scores_of(task: TaskName, outputs: Tensor, targets: Tensor) -> tuple[Numbers, Numbers]:
    """Return scores and targets for `contributions`, from a model's outputs."""
    known = targets.double().cpu().numpy()
    if task == "classification":
        right = (outputs.argmax(-1) == targets).double().cpu().numpy()
        return right, known
    values = outputs.squeeze(-1).double()
    return (values.sigmoid() if task == "binary" else values).cpu().numpy(), known


class _Outputs:
    """The outputs of all chosen models for single samples."""

    def __init__(
        self,
        federation: SimulatedFederation,
        outcomes: Mapping[str, Outcome],
        personal: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._federation, self._outcomes, self._personal = federation, outcomes, personal

    def scores(self, method: str, k: int, split: Split) -> tuple[Numbers, Numbers]:
        """Return scores and targets of a participant's samples with its chosen model."""
        federation, outcome = self._federation, self._outcomes[method]
        one, vector = federation.participants[k], outcome.best[k]
        own = personal_part(outcome, method, self._personal[method], one)
        if own is not None:
            vector = federation.personal_model(one, vector, own)
        return self.of(one, vector, split)

    def of(self, one: Participant, vector: Tensor, split: Split) -> tuple[Numbers, Numbers]:
        """Return scores and targets of a participant's samples with a whole model."""
        federation = self._federation
        return sample_scores_of(federation.task.name, *federation.outputs(one, vector, split))

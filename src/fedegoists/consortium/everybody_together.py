"""A comparison in simulations: all participants in one coalition, competitors included.

Training with everybody is the usual federated learning, and what a director will ask about first.
Nobody receives these models, and where silos are deployed there is no such comparison, because
competitors would train together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedegoists.consortium.evaluations import evaluated
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.learning.estimates import Estimate
from fedegoists.learning.model_registry import ModelKind
from fedegoists.learning.safe_choice import ChooseBy
from fedegoists.methods import Outcome
from fedegoists.methods.method_registry import METHOD_ENTRIES, TUNED
from fedegoists.training.decisions import Decisions
from fedegoists.training.gains import Gain, gains_over_local
from fedegoists.training.repetitions import Repetitions, Wanted, train_methods

METHODS = ("fedavg", "bagging")
"""Methods that average whatever they are given; the first that can train the model is taken."""

Paths = Callable[[str, Wanted, Decisions], Path]
"""A function from a method, the methods wanted and the coalitions to the file of its models."""


@dataclass(frozen=True)
class EverybodyTogether:
    """The gains of all participants over training alone, if all trained together.

    Attributes
    ----------
    methods : tuple of str
        The method, and where models can be tuned, the same with fine-tuning at home.
    gains : tuple of Gain
        Of every participant with each method; negative where it is harmed.
    estimates : mapping of (method, participant) to Estimate
        The same gains with their errors over test samples and initialisations.
    """

    methods: tuple[str, ...] = ()
    gains: tuple[Gain, ...] = ()
    estimates: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)


def everybody_wanted(kind: ModelKind) -> Wanted:
    """Return the methods of the comparison for a kind of model."""
    name = next(one for one in METHODS if kind in METHOD_ENTRIES[one].models)
    return Wanted((name,) if kind == "trees" else (name, f"{name}{TUNED}"))


def train_everybody(
    kind: ModelKind,
    repetitions: Repetitions,
    local: Outcome,
    path: Paths,
    observe: Callable[[int, int], None] = lambda _done, _all: None,
    choose_by: ChooseBy = "metric",
) -> EverybodyTogether:
    """Train with all participants of each repetition in one coalition, and compare with alone.

    Parameters
    ----------
    local : Outcome
        The models that participants trained alone.
    path : Paths
        Where models are kept, so that they are not trained again.
    observe : callable
        Called after every round with the rounds done and those of the method.
    choose_by : {"metric", "loss"}
        What of validation data decided which model was kept alone, and decides here.
    """
    federation = repetitions.federation
    assert isinstance(federation, SimulatedFederation)  # the settings refuse others
    groups: dict[object, list[Participant]] = {}
    for one in federation.participants:
        groups.setdefault(one.repetition, []).append(one)
    whole = [tuple(group) for group in groups.values()]
    decisions, wanted = Decisions(whole, whole, None), everybody_wanted(kind)
    outcomes = train_methods(
        wanted,
        # Models of an earlier run may hold something of others' data, as in any coalition.
        replace(repetitions, warm=None),
        decisions,
        lambda name: path(name, wanted, decisions),
        (lambda _name, done, total, _outcome: observe(done, total),),
        choose_by=choose_by,
    )
    both = {"local": local, **outcomes}
    judged = evaluated(federation, both, dict.fromkeys(both, ())).methods
    gains = []
    for gain in gains_over_local(both, federation):
        measured = judged.get((gain.method, gain.participant))
        known = None if measured is None else measured.gain
        if known is not None:
            over = "test samples and initialisations" if len(groups) > 1 else "test samples"
            gain = replace(gain, low=known.low, high=known.high, over=over)
        gains.append(gain)
    estimates = {key: one.estimate for key, one in judged.items() if one.estimate is not None}
    return EverybodyTogether(wanted.methods, tuple(gains), estimates)

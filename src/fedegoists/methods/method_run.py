"""Running a method round by round: evaluation, choice of the step, checkpoints, progress."""

import hashlib
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Split
from fedegoists.federation.requests import Evaluate, Keep, Slot, TrainSettings
from fedegoists.federation.robust_sums import LEAST_MEMBERS, BoundedSilos, RobustSettings
from fedegoists.federation.seam import (
    Failure,
    StatefulFederation,
    WithTimeout,
    sorted_out,
)
from fedegoists.federation.validated import Validated
from fedegoists.learning.forest import is_forest
from fedegoists.learning.safe_choice import ChooseBy
from fedegoists.methods.consent import check_consent
from fedegoists.methods.failed_rounds import IN_EVALUATION, FailedRunError, check_answered
from fedegoists.methods.local import Local
from fedegoists.methods.method import Coalitions, Method
from fedegoists.methods.method_registry import METHOD_ENTRIES, TUNED, base_of, check_suits
from fedegoists.methods.outcome import Outcome, Row, with_excesses
from fedegoists.methods.run_checkpoint import CheckpointPause, load_outcome, save_outcome
from fedegoists.methods.silo_training import personal_parts
from fedegoists.methods.validation_guard import ValidationGuard


class StoppedError(FedEgoistsError):
    """A run was asked to stop before its last round; its checkpoint has what is done."""


Observer = Callable[[str, int, int, Outcome], None]
"""Called after every round with the method's name, rounds done, rounds in all, and the outcome."""


class RunSettings(Validated):
    """How long a method is run, and how its steps are chosen.

    Attributes
    ----------
    rounds, seed : int
        Rounds in all, and the seed of all random numbers.
    evaluate_every : int
        Rounds between evaluations; the start and the last round are always evaluated.
    may_keep_start : bool
        Whether the parameters to start from are a step that may be chosen, as in fine-tuning.
    begin_with : str, optional
        A slot of the silos' memories with the personal parameters to begin with.
    begun_at_home : tuple of Participant
        Participants whose whole models are in that slot.
    timeout : float, optional
        Seconds that a silo has to answer a call; a silo that is later is left out of the round.
    robust : RobustSettings, optional
        What protects coalitions from one bad member; nothing if left out.
    patience : int, optional
        Stop after this number of evaluations in which no participant's validation improved.
    choose_by : {"metric", "loss"}
        What of its validation data decides which round's model a participant keeps.
    """

    rounds: int = Field(ge=0)
    seed: int
    evaluate_every: int = Field(default=1, ge=1)
    may_keep_start: bool = False
    begin_with: Slot | None = None
    begun_at_home: tuple[Participant, ...] = ()
    timeout: Annotated[float, Field(gt=0)] | None = None
    robust: RobustSettings | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
    choose_by: ChooseBy = "metric"


@dataclass(frozen=True)
class Callbacks:
    """The checkpoint, observers and stop signal of a run, used between rounds.

    Attributes
    ----------
    checkpoint : path, optional
        Where to keep the state. If the file exists, the run continues from it, to the same result
        as if it had never stopped. Writing it takes at most about a tenth of the time.
    save_every : float
        Seconds between two checkpoints, at least. With any, one is written at the end only if it is
        time; where the run is asked to stop, always.
    observers : tuple of Observer
        Called after every round.
    stop : function to bool, optional
        Asked between rounds whether to stop.
    """

    checkpoint: str | os.PathLike[str] | None = None
    save_every: float = 0.0
    observers: tuple[Observer, ...] = ()
    stop: Callable[[], bool] | None = None


def run(
    method: Method,
    federation: StatefulFederation,
    coalitions: Coalitions,
    initial: Tensor,
    settings: RunSettings,
    callbacks: Callbacks | None = None,
) -> Outcome:
    """Train for some rounds and keep, for each participant, the step its validation data prefers.

    Parameters
    ----------
    initial : Tensor
        The parameters to start from, one row per participant.

    Raises
    ------
    SettingsError
        If the models are boosted trees, which the method would average.
    StoppedError
        If it was asked to stop before the last round.
    ConsentError
        If the server would see single updates of a silo that does not consent.
    FailedRunError
        If every silo failed in a round, and would fail in the next.
    """
    training = _MethodRun(method, federation, coalitions, initial, settings, callbacks)
    return training.run()


class _MethodRun:
    """One run; see `run`."""

    def __init__(
        self,
        method: Method,
        federation: StatefulFederation,
        coalitions: Coalitions,
        initial: Tensor,
        settings: RunSettings,
        callbacks: Callbacks | None,
    ) -> None:
        # Means of trees would be vectors like any other, and would mean nothing.
        if is_forest(federation.schema) and base_of(method.name) in METHOD_ENTRIES:
            check_suits([method.name], "trees")
        if settings.timeout is not None:
            federation = WithTimeout(federation, settings.timeout)
        check_consent(method, federation, coalitions)
        method = method.keeping_models_home(federation, coalitions)
        self._method, self._coalitions, self._initial = method, coalitions, initial
        self._settings, self._callbacks = settings, callbacks or Callbacks()
        self._bounds: BoundedSilos | None = None
        self._guard: ValidationGuard | None = None
        # In smaller coalitions nobody can tell which member is the bad one.
        if settings.robust is not None and max(map(len, coalitions)) >= LEAST_MEMBERS:
            federation = self._bounds = BoundedSilos(federation, coalitions, settings.robust)
            if settings.robust.guard:
                self._guard = ValidationGuard(
                    method,
                    self._bounds,
                    coalitions,
                    settings.robust,
                    rounds=settings.rounds,
                    every=settings.evaluate_every,
                    seed=settings.seed,
                )
        self._silos = federation
        self._identity = _identity(method, coalitions, initial, settings)
        self._pause = CheckpointPause(self._callbacks.save_every)

    def run(self) -> Outcome:
        """Train round by round, from the checkpoint or from the beginning."""
        method, settings, rounds = self._method, self._settings, self._settings.rounds
        outcome = load_outcome(self._callbacks.checkpoint, self._identity, method.name, self._silos)
        if outcome is None:
            outcome = _begun(method, self._silos, self._coalitions, self._initial, settings)
        self._follow(outcome)
        if self._guard is not None:
            self._guard.keep(outcome)
        while outcome.state.round < rounds and not self._settled(outcome):
            try:
                outcome = self._advanced(outcome)
            except FailedRunError as error:
                error.outcome = self._at_home(outcome)
                raise
        return self._at_home(outcome)

    def _advanced(self, outcome: Outcome) -> Outcome:
        """Train and judge one more round; return the outcome to go on with."""
        method, settings = self._method, self._settings
        state, report = method.round(self._silos, self._coalitions, outcome.state, settings.seed)
        check_answered(f"{method.name}, round {state.round}", report.losses, report.failures)
        outcome.state = state
        outcome.account(report, self._unasked(outcome))
        if state.round % settings.evaluate_every == 0 or state.round == settings.rounds:
            evaluate(method, self._silos, outcome, self._unasked(outcome), settings.choose_by)
            outcome = self._judged(outcome)
            if self._checkpoint_due(outcome):
                with self._pause:
                    self._save(outcome)
        self._look(outcome)
        return outcome

    def _at_home(self, outcome: Outcome) -> Outcome:
        """Note whose chosen models are in their silos as a whole."""
        # Of those who chose the start that was sent to them, the silo keeps no model.
        outcome.at_home = tuple(
            name
            for name, chosen in zip(self._silos.participants, outcome.best_round, strict=True)
            if name in self._method.at_home and (chosen or name in self._settings.begun_at_home)
        )
        return outcome

    def _settled(self, outcome: Outcome) -> bool:
        """Return whether nobody's model has become better for long."""
        patience = self._settings.patience
        if patience is None:
            return False
        last = max((one for one in outcome.best_round), default=0)
        return outcome.state.round - last >= patience * self._settings.evaluate_every

    def _judged(self, outcome: Outcome) -> Outcome:
        """Return the outcome to go on with: after a rollback, an earlier one."""
        if self._bounds is None:
            return outcome
        number, excesses = outcome.state.round, self._bounds.drained()
        if self._guard is None:
            outcome.findings = with_excesses(outcome, excesses)
            return outcome
        verdict = self._guard.judged(outcome)
        self._bounds.drained()  # those of trials
        outcome = verdict.outcome
        if verdict.restart or outcome.state.round < number:
            # From a model that a bad member has ruined, the updates of others are long as well.
            gone = self._unasked(outcome)
            excesses = [one for one in excesses if one.participant in gone]
        outcome.findings = with_excesses(outcome, excesses)
        if verdict.restart:
            outcome = self._restarted(outcome)
            self._guard.keep(outcome)
        elif self._guard.good is not None:
            self._guard.good.outcome.findings[:] = outcome.findings  # for the checkpoint
        self._follow(outcome)
        return outcome

    def _restarted(self, before: Outcome) -> Outcome:
        """Begin again without the members that are left out; they keep the models they have."""
        gone = self._unasked(before)
        outcome = _begun(
            self._method, self._silos, self._coalitions, self._initial, self._settings, gone
        )
        for k, name in enumerate(self._silos.participants):
            if name in gone:
                outcome.best[k] = before.best[k]
                outcome.best_round[k] = before.best_round[k]
                outcome.best_score[k] = before.best_score[k]
        outcome.rows += [row for row in before.rows if row.participant in gone]
        outcome.failures = [*before.failures, *outcome.failures]
        outcome.spent, outcome.findings = before.spent, before.findings
        return outcome

    def _unasked(self, outcome: Outcome) -> frozenset[Participant]:
        return frozenset() if self._guard is None else self._guard.left_out(outcome)

    def _follow(self, outcome: Outcome) -> None:
        """Have the bounds continue from an outcome."""
        if self._bounds is not None:
            self._bounds.silent = self._unasked(outcome)
            self._bounds.norms = outcome.norms

    def _checkpoint_due(self, outcome: Outcome) -> bool:
        if self._callbacks.checkpoint is None:
            return False
        last = outcome.state.round == self._settings.rounds and not self._callbacks.save_every
        # Silos keep only their last few copies. Where the guard makes some, the checkpoint must
        # name one of them.
        good = None if self._guard is None else self._guard.good
        return self._pause.over or last or (good is not None and bool(good.memory))

    def _save(self, outcome: Outcome) -> None:
        """Write the checkpoint; with a guard, the one of the last good state."""
        checkpoint = self._callbacks.checkpoint
        if checkpoint is None:
            return
        good = None if self._guard is None else self._guard.good
        if good is not None:
            save_outcome(checkpoint, self._identity, good.outcome, good.memory)
        else:
            memory = self._silos.memory(self._method.name)
            save_outcome(checkpoint, self._identity, outcome, memory)

    def _look(self, outcome: Outcome) -> None:
        """Tell observers, and stop if asked to."""
        name, callbacks = self._method.name, self._callbacks
        done, rounds = outcome.state.round, self._settings.rounds
        for observer in callbacks.observers:
            observer(name, done, rounds, outcome)
        if callbacks.stop is not None and done < rounds and callbacks.stop():
            self._save(outcome)
            raise StoppedError(f"{name}: stopped after {done} of {rounds} rounds")


def fine_tune(
    method: Method,
    federation: StatefulFederation,
    trained: Outcome,
    settings: TrainSettings,
    rounds: int,
    callbacks: Callbacks | None = None,
    choose_by: ChooseBy = "metric",
) -> Outcome:
    """Fine-tune the models that a method has trained, each on its participant's own data only.

    A participant may keep the model it starts from.
    """
    return run(
        Local(settings, method.personal, alias=f"{method.name}{TUNED}"),
        federation,
        [(name,) for name in federation.participants],
        trained.best,
        RunSettings(
            rounds=rounds,
            seed=1,
            may_keep_start=True,
            begin_with=best_slot(method),
            begun_at_home=trained.at_home,
            choose_by=choose_by,
        ),
        callbacks,
    )


def keep_outcome(
    path: str | os.PathLike[str],
    outcome: Outcome,
    method: Method,
    federation: StatefulFederation,
    coalitions: Coalitions,
    initial: Tensor,
    settings: RunSettings,
) -> None:
    """Write the checkpoint of a `run` that has ended, so that it need not be repeated."""
    method = method.keeping_models_home(federation, coalitions)
    identity = _identity(method, coalitions, initial, settings)
    save_outcome(path, identity, outcome, federation.memory(method.name))


def _begun(
    method: Method,
    federation: StatefulFederation,
    coalitions: Coalitions,
    initial: Tensor,
    settings: RunSettings,
    gone: frozenset[Participant] = frozenset(),
) -> Outcome:
    """Return the outcome before the first round; members that are gone are not asked."""
    participants = federation.participants
    worst = (-math.inf, -math.inf)
    # Where a whole model is kept now, and was not before, there is none to begin with.
    fresh = set(method.at_home) - set(settings.begun_at_home)
    unprepared = _keep(method, federation, method.name, None, sorted(fresh - gone))
    others = [name for name in participants if name not in fresh | gone]
    unprepared += _keep(method, federation, method.name, settings.begin_with, others)
    state = method.start(federation, coalitions, initial, settings.seed)
    count = len(participants)
    outcome = Outcome(state, initial.clone(), [0] * count, [worst] * count)
    outcome.failures += [(0, failure) for failure in (*unprepared, *state.failures)]
    by = settings.choose_by if settings.may_keep_start else None
    evaluate(method, federation, outcome, gone, by)
    return outcome


def _identity(
    method: Method, coalitions: Coalitions, initial: Tensor, settings: RunSettings
) -> str:
    """Return a text that two runs share only if one can continue the other's checkpoint."""
    about = (method, coalitions, settings.seed, settings.may_keep_start, settings.begin_with)
    digest = hashlib.sha256(repr(about).encode())
    if settings.robust is not None:
        digest.update(repr(settings.robust).encode())
    digest.update(np.ascontiguousarray(initial.detach().cpu().numpy()).data)
    return f"{method.name} {digest.hexdigest()}"


def best_slot(method: Method) -> str:
    """Return the slot in which silos keep the personal parameters of their chosen step."""
    return f"{method.name}/best"


def _keep(
    method: Method,
    federation: StatefulFederation,
    slot: str,
    source: str | None,
    names: Iterable[Participant],
) -> tuple[Failure, ...]:
    """Have silos copy personal parameters from one slot to another, or empty the slot."""
    keeping = [name for name in names if method.personal or name in method.at_home]
    if not keeping:
        return ()
    return sorted_out(federation.call(dict.fromkeys(keeping, Keep(slot=slot, source=source))))[1]


def evaluate(
    method: Method,
    federation: StatefulFederation,
    outcome: Outcome,
    gone: frozenset[Participant],
    choose_by: ChooseBy | None,
) -> None:
    """Measure all models on validation and test data; only validation decides, if anything."""
    sign = 1 if federation.task.higher_is_better else -1
    state = outcome.state
    chosen = []
    models = state.parameters.unbind()
    personal = personal_parts(method, federation.participants)
    for split in SPLITS:
        replies, failures = sorted_out(
            federation.call(
                {
                    name: Evaluate(parameters=model, split=split, personal=personal[name])
                    for name, model in zip(federation.participants, models, strict=True)
                    if name not in gone
                }
            )
        )
        stage = f"{method.name}, evaluation on {split} data"
        check_answered(stage, replies, failures, IN_EVALUATION)
        outcome.failures += [(state.round, failure) for failure in failures]
        for k, name in enumerate(federation.participants):
            if name not in replies:
                continue
            (loss,), (score,) = replies[name].losses, replies[name].scores
            outcome.rows += [
                Row(name, state.round, split, "loss", loss),
                Row(name, state.round, split, federation.task.metric, score),
            ]
            if split == "validation" and choose_by is not None:
                # Equal scores, as small validation sets have often, are told apart by the loss; it
                # also decides where there is no score, as AUC with one class only.
                scored = math.isfinite(score) and choose_by == "metric"
                signed = (sign * score if scored else 0.0, -loss)
                if signed > outcome.best_score[k]:
                    outcome.best_score[k] = signed
                    outcome.best_round[k] = state.round
                    chosen.append(k)
    if chosen:
        where = torch.tensor(chosen, device=outcome.best.device)
        outcome.best[where] = state.parameters[where]
    names = [federation.participants[k] for k in chosen]
    lost = _keep(method, federation, best_slot(method), method.name, names)
    outcome.failures += [(state.round, failure) for failure in lost]


SPLITS: tuple[Split, ...] = ("validation", "test")

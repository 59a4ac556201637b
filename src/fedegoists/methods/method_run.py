"""Running a method round by round: evaluation, choice of the step, checkpoints, progress."""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedegoists.errors import FedEgoistsError, FileError
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Split
from fedegoists.federation.requests import Evaluate, Keep, Slot, TrainSettings
from fedegoists.federation.seam import (
    Failure,
    MemoryKey,
    StatefulFederation,
    WithTimeout,
    sorted_out,
)
from fedegoists.federation.validated import Validated
from fedegoists.files import write_bytes
from fedegoists.methods.local import Local
from fedegoists.methods.method import Coalitions, Method, RoundReport, State, personal_part
from fedegoists.methods.method_registry import TUNED


@dataclass(frozen=True)
class Row:
    """One measurement: a participant's metric on a split after some rounds."""

    participant: Participant
    round: int
    split: str
    metric: str
    value: float


@dataclass
class Outcome:
    """The outcome of a run so far.

    Attributes
    ----------
    state : State
        The method's state.
    best : Tensor
        The parameters of the step each participant would choose by its validation data.
    best_round, best_score : list
        Which round that was, and its validation score and negative loss; minus infinity as long as
        a participant was never validated.
    rows : list of Row
        Everything measured.
    failures : list of (round, Failure)
        All failures.
    spent : dict
        Sample passes and bytes sent and received by participant, in all.
    """

    state: State
    best: Tensor
    best_round: list[int]
    best_score: list[tuple[float, float]]
    rows: list[Row] = field(default_factory=list)
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    spent: dict[str, dict[Participant, int]] = field(default_factory=dict)


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
    timeout : float, optional
        Seconds that a silo has to answer a call; a silo that is later is left out of the round.
    """

    rounds: int = Field(ge=0)
    seed: int
    evaluate_every: int = Field(default=1, ge=1)
    may_keep_start: bool = False
    begin_with: Slot | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None


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
    StoppedError
        If it was asked to stop before the last round.
    """
    callbacks = callbacks or Callbacks()
    checkpoint, rounds, seed = callbacks.checkpoint, settings.rounds, settings.seed
    if settings.timeout is not None:
        federation = WithTimeout(federation, settings.timeout)
    identity = _identity(method, coalitions, initial, settings)
    outcome = _loaded(checkpoint, identity, method.name, federation)
    if outcome is None:
        outcome = _begun(method, federation, coalitions, initial, settings)
    pause = _Pause(callbacks.save_every)
    while outcome.state.round < rounds:
        state, report = method.round(federation, coalitions, outcome.state, seed)
        outcome.state = state
        _account(outcome, report)
        if state.round % settings.evaluate_every == 0 or state.round == rounds:
            _evaluate(method, federation, outcome, choose=True)
            last = state.round == rounds and not callbacks.save_every
            if checkpoint is not None and (pause.over or last):
                with pause:
                    _save(checkpoint, identity, outcome, federation.memory(method.name))
        for observer in callbacks.observers:
            observer(method.name, state.round, rounds, outcome)
        if callbacks.stop is not None and state.round < rounds and callbacks.stop():
            if checkpoint is not None:
                _save(checkpoint, identity, outcome, federation.memory(method.name))
            raise StoppedError(f"{method.name}: stopped after {state.round} of {rounds} rounds")
    return outcome


def fine_tune(
    method: Method,
    federation: StatefulFederation,
    trained: Outcome,
    settings: TrainSettings,
    rounds: int,
    callbacks: Callbacks | None = None,
) -> Outcome:
    """Fine-tune the models that a method has trained, each on its participant's own data only.

    A participant may keep the model it starts from.
    """
    return run(
        Local(settings, method.personal, alias=f"{method.name}{TUNED}"),
        federation,
        [(name,) for name in federation.participants],
        trained.best,
        RunSettings(rounds=rounds, seed=1, may_keep_start=True, begin_with=best_slot(method)),
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
    identity = _identity(method, coalitions, initial, settings)
    _save(path, identity, outcome, federation.memory(method.name))


def _begun(
    method: Method,
    federation: StatefulFederation,
    coalitions: Coalitions,
    initial: Tensor,
    settings: RunSettings,
) -> Outcome:
    """Return the outcome before the first round."""
    participants = federation.participants
    worst = (-math.inf, -math.inf)
    unprepared = _keep(method, federation, method.name, settings.begin_with, participants)
    state = method.start(federation, coalitions, initial, settings.seed)
    count = len(participants)
    outcome = Outcome(state, initial.clone(), [0] * count, [worst] * count)
    outcome.failures += [(0, failure) for failure in (*unprepared, *state.failures)]
    _evaluate(method, federation, outcome, choose=settings.may_keep_start)
    return outcome


def _identity(
    method: Method, coalitions: Coalitions, initial: Tensor, settings: RunSettings
) -> str:
    """Return a text that two runs share only if one can continue the other's checkpoint."""
    about = (method, coalitions, settings.seed, settings.may_keep_start, settings.begin_with)
    digest = hashlib.sha256(repr(about).encode())
    digest.update(np.ascontiguousarray(initial.detach().cpu().numpy()).data)
    return f"{method.name} {digest.hexdigest()}"


class _Pause:
    """The pause between checkpoints: at least nine times as long as the last one took to write."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._began = time.perf_counter()
        self._until = self._began + least

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self._until

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        now = time.perf_counter()
        self._until = now + max(9 * (now - self._began), self._least)


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
    if not method.personal:
        return ()
    return sorted_out(federation.call(dict.fromkeys(names, Keep(slot=slot, source=source))))[1]


def _account(outcome: Outcome, report: RoundReport) -> None:
    outcome.failures += [(outcome.state.round, failure) for failure in report.failures]
    for kind, amounts in (
        ("sample_passes", report.sample_passes),
        ("bytes_sent", report.bytes_sent),
        ("bytes_received", report.bytes_received),
    ):
        totals = outcome.spent.setdefault(kind, {})
        for name, amount in amounts.items():
            totals[name] = totals.get(name, 0) + amount


def _evaluate(
    method: Method, federation: StatefulFederation, outcome: Outcome, *, choose: bool
) -> None:
    """Measure all models on validation and test data; only validation decides."""
    sign = 1 if federation.task.higher_is_better else -1
    state = outcome.state
    chosen = []
    models = state.parameters.unbind()
    personal = personal_part(method)
    for split in SPLITS:
        replies, failures = sorted_out(
            federation.call(
                {
                    name: Evaluate(parameters=model, split=split, personal=personal)
                    for name, model in zip(federation.participants, models, strict=True)
                }
            )
        )
        outcome.failures += [(state.round, failure) for failure in failures]
        for k, name in enumerate(federation.participants):
            if name not in replies:
                continue
            (loss,), (score,) = replies[name].losses, replies[name].scores
            outcome.rows += [
                Row(name, state.round, split, "loss", loss),
                Row(name, state.round, split, federation.task.metric, score),
            ]
            if split == "validation" and choose:
                # Equal scores, as small validation sets have often, are told apart by the loss; it
                # also decides where there is no score, as AUC with one class only.
                signed = (sign * score if math.isfinite(score) else 0.0, -loss)
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


def _save(
    path: str | os.PathLike[str],
    identity: str,
    outcome: Outcome,
    memory: Mapping[MemoryKey, Tensor],
) -> None:
    """Write everything into one file, so that it is replaced as a whole."""
    from safetensors.torch import save

    tensors = {f"state.{key}": value for key, value in outcome.state.tensors.items()}
    # Slots of all silos together, not of one, are under the name of the method.
    owner = identity.split(" ", 1)[0]
    tensors |= {f"memory.{name or owner}\n{slot}": own for (name, slot), own in memory.items()}
    tensors["best"] = outcome.best
    about = {
        "run": identity,
        "round": outcome.state.round,
        "best_round": outcome.best_round,
        "best_score": outcome.best_score,
        "rows": [[str(r.participant), r.round, r.split, r.metric, r.value] for r in outcome.rows],
        "failures": [[r, str(f.participant), f.reason, f.detail] for r, f in outcome.failures],
        "spent": {
            kind: {str(name): amount for name, amount in own.items()}
            for kind, own in outcome.spent.items()
        },
    }
    distinct: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in tensors.items():
        here = value.detach().cpu().contiguous()
        # A file cannot hold two names for one tensor.
        distinct[key] = here.clone() if here.data_ptr() in seen else here
        seen.add(here.data_ptr())
    # It holds all models, and the personal parameters of simulated silos.
    write_bytes(path, save(distinct, {"fedegoists": json.dumps(about)}), private=True)


def _loaded(
    path: str | os.PathLike[str] | None,
    identity: str,
    owner: str,
    federation: StatefulFederation,
) -> Outcome | None:
    if path is None or not Path(path).exists():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["fedegoists"])
            tensors: Mapping[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise FileError(f"{path}: not a checkpoint ({error}); remove it to start again") from None
    shape = (len(federation.participants), federation.schema.size)
    if about["run"] != identity or tuple(tensors["best"].shape) != shape:
        raise FileError(f"{path}: a checkpoint of another run; remove it to start again")
    device = federation.device
    known = {str(name): name for name in federation.participants}
    state = {
        key.removeprefix("state."): value.to(device)
        for key, value in tensors.items()
        if key.startswith("state.")
    }
    memory = {
        MemoryKey(known.get(name), slot): tensors[key].to(device)
        for key in tensors
        if key.startswith("memory.")
        for name, slot in [key.removeprefix("memory.").split("\n")]
    }
    federation.restore(owner, memory)
    return Outcome(
        State(about["round"], state),
        tensors["best"].to(device),
        about["best_round"],
        [(score, loss) for score, loss in about["best_score"]],
        [Row(known[name], *row) for name, *row in about["rows"]],
        [(r, Failure(known[name], *parts)) for r, name, *parts in about["failures"]],
        {
            kind: {known[name]: amount for name, amount in own.items()}
            for kind, own in about["spent"].items()
        },
    )

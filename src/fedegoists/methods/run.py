"""Running a method round by round: evaluation, choice of the step, checkpoints, progress."""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedegoists.errors import FedEgoistsError, FileError
from fedegoists.federation.seam import Failure, Federation, WithTimeout
from fedegoists.files import write_bytes
from fedegoists.methods.method import Coalitions, Method, RoundReport, State, personal_part

__all__ = ["Observer", "Outcome", "Row", "StoppedError", "best_slot", "keep_outcome", "run"]


@dataclass(frozen=True)
class Row:
    """One measurement: a participant's metric on a split after some rounds."""

    participant: str
    round: int
    split: str
    metric: str
    value: float


@dataclass
class Outcome:
    """What came of a run so far.

    Attributes
    ----------
    state : State
        Where the method stands.
    best : Tensor
        The parameters of the step each participant would choose by its validation data.
    best_round, best_score : list
        Which round that was, and its validation score and negative loss; minus infinity as long as
        a participant was never validated.
    rows : list of Row
        Everything measured.
    failures : list of (round, Failure)
        Who failed when.
    spent : dict
        Sample passes and bytes sent and received by participant, in all.
    """

    state: State
    best: Tensor
    best_round: list[int]
    best_score: list[tuple[float, float]]
    rows: list[Row] = field(default_factory=list)
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    spent: dict[str, dict[str, int]] = field(default_factory=dict)


class StoppedError(FedEgoistsError):
    """A run was asked to stop before its last round; its checkpoint has what is done."""


Observer = Callable[[str, int, int, Outcome], None]
"""Called after every round with the method's name, rounds done, rounds in all, and the outcome."""


def run(
    method: Method,
    federation: Federation,
    coalitions: Coalitions,
    initial: Tensor,
    *,
    rounds: int,
    seed: int,
    evaluate_every: int = 1,
    may_keep_start: bool = False,
    begin_with: str | None = None,
    timeout: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    save_every: float = 0.0,
    observers: tuple[Observer, ...] = (),
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Train for some rounds and keep, for each participant, the step its validation data prefers.

    Parameters
    ----------
    initial : Tensor
        The parameters to start from, one row per participant.
    evaluate_every : int
        Rounds between evaluations; the start and the last round are always evaluated.
    may_keep_start : bool
        Whether the parameters to start from are a step that may be chosen, as in fine-tuning.
    begin_with : str, optional
        A slot of the silos' memories with the personal parameters to begin with.
    timeout : float, optional
        How many seconds a silo has to answer a call; who does not is left out of the round.
    checkpoint : path, optional
        Where to keep the state. If the file exists, the run continues from it, to the same result
        as if it had never stopped. Writing it takes at most about a tenth of the time.
    save_every : float
        Seconds between two checkpoints, at least. With any, one is written at the end only if it is
        time; where it is asked to stop, always.
    stop : function to bool, optional
        Asked between rounds whether to stop.

    Raises
    ------
    StoppedError
        If it was asked to stop before the last round.
    """
    if timeout is not None:
        federation = WithTimeout(federation, timeout)
    identity = _identity(method, coalitions, initial, seed, may_keep_start, begin_with)
    outcome = _loaded(checkpoint, identity, method.name, federation)
    if outcome is None:
        count = len(federation.participants)
        worst = (-math.inf, -math.inf)
        unprepared = _keep(method, federation, method.name, begin_with, federation.participants)
        state = method.start(federation, coalitions, initial, seed)
        outcome = Outcome(state, initial.clone(), [0] * count, [worst] * count)
        outcome.failures += [(0, failure) for failure in (*unprepared, *state.failures)]
        _evaluate(method, federation, outcome, choose=may_keep_start)
    pause = _Pause(save_every)
    while outcome.state.round < rounds:
        state, report = method.round(federation, coalitions, outcome.state, seed)
        outcome.state = state
        _account(outcome, report)
        if state.round % evaluate_every == 0 or state.round == rounds:
            _evaluate(method, federation, outcome, choose=True)
            last = state.round == rounds and not save_every
            if checkpoint is not None and (pause.over or last):
                with pause:
                    _save(checkpoint, identity, outcome, federation.memory(method.name))
        for observer in observers:
            observer(method.name, state.round, rounds, outcome)
        if stop is not None and state.round < rounds and stop():
            if checkpoint is not None:
                _save(checkpoint, identity, outcome, federation.memory(method.name))
            raise StoppedError(f"{method.name}: stopped after {state.round} of {rounds} rounds")
    return outcome


def keep_outcome(
    path: str | os.PathLike[str],
    outcome: Outcome,
    method: Method,
    federation: Federation,
    coalitions: Coalitions,
    initial: Tensor,
    *,
    seed: int,
) -> None:
    """Write the checkpoint of a `run` that has ended, so that it need not be repeated."""
    identity = _identity(method, coalitions, initial, seed, may_keep_start=False, begin_with=None)
    _save(path, identity, outcome, federation.memory(method.name))


def _identity(
    method: Method,
    coalitions: Coalitions,
    initial: Tensor,
    seed: int,
    may_keep_start: bool,
    begin_with: str | None,
) -> str:
    digest = hashlib.sha256(repr((method, coalitions, seed, may_keep_start, begin_with)).encode())
    digest.update(np.ascontiguousarray(initial.detach().cpu().numpy()).data)
    return f"{method.name} {digest.hexdigest()}"


class _Pause:
    """Between two checkpoints: nine times as long as the last one took to write, at least."""

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
    method: Method, federation: Federation, slot: str, source: str | None, names: Iterable[str]
) -> list[Failure]:
    """Have silos copy personal parameters from one slot to another, or empty the slot."""
    if not method.personal:
        return []
    names = list(names)
    replies = federation.call("keep", {name: {"slot": slot, "source": source} for name in names})
    answers = [replies.get(name, Failure(name, "timeout")) for name in names]
    return [answer for answer in answers if isinstance(answer, Failure)]


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


def _evaluate(method: Method, federation: Federation, outcome: Outcome, *, choose: bool) -> None:
    """Measure everybody's model on validation and test data; only validation decides."""
    sign = 1 if federation.task.higher_is_better else -1
    state = outcome.state
    chosen = []
    models = state.parameters.unbind()
    for split in ("validation", "test"):
        asked = {"split": split, **personal_part(method)}
        replies = federation.call(
            "evaluate",
            {
                name: {"parameters": model, **asked}
                for name, model in zip(federation.participants, models, strict=True)
            },
        )
        for k, name in enumerate(federation.participants):
            reply = replies.get(name, Failure(name, "timeout"))
            if isinstance(reply, Failure):
                outcome.failures.append((state.round, reply))
                continue
            outcome.rows += [
                Row(name, state.round, split, "loss", reply["loss"]),
                Row(name, state.round, split, federation.task.metric, reply["score"]),
            ]
            if split == "validation" and choose:
                # Equal scores, as small validation sets have often, are told apart by the loss; it
                # also decides where there is no score, as AUC with one class only.
                score = sign * reply["score"] if math.isfinite(reply["score"]) else 0.0
                if (score, -reply["loss"]) > outcome.best_score[k]:
                    outcome.best_score[k] = (score, -reply["loss"])
                    outcome.best_round[k] = state.round
                    chosen.append(k)
    if chosen:
        where = torch.tensor(chosen, device=outcome.best.device)
        outcome.best[where] = state.parameters[where]
    names = [federation.participants[k] for k in chosen]
    lost = _keep(method, federation, best_slot(method), method.name, names)
    outcome.failures += [(state.round, failure) for failure in lost]


def _save(
    path: str | os.PathLike[str], identity: str, outcome: Outcome, memory: Mapping[str, Tensor]
) -> None:
    """Write everything into one file, so that it is replaced as a whole."""
    from safetensors.torch import save

    tensors = {f"state.{key}": value for key, value in outcome.state.tensors.items()}
    tensors |= {f"memory.{key}": value for key, value in memory.items()}
    tensors["best"] = outcome.best
    about = {
        "run": identity,
        "round": outcome.state.round,
        "best_round": outcome.best_round,
        "best_score": outcome.best_score,
        "rows": [[r.participant, r.round, r.split, r.metric, r.value] for r in outcome.rows],
        "failures": [[r, f.participant, f.reason, f.detail] for r, f in outcome.failures],
        "spent": outcome.spent,
    }
    distinct: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in tensors.items():
        here = value.detach().cpu().contiguous()
        # A file cannot hold two names for one tensor.
        distinct[key] = here.clone() if here.data_ptr() in seen else here
        seen.add(here.data_ptr())
    # It has everybody's models, and what silos keep to themselves.
    write_bytes(path, save(distinct, {"fedegoists": json.dumps(about)}), private=True)


def _loaded(
    path: str | os.PathLike[str] | None, identity: str, owner: str, federation: Federation
) -> Outcome | None:
    if path is None or not Path(path).exists():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["fedegoists"])
            tensors: Mapping[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise FileError(f"{path}: not a checkpoint ({error}); remove it to start anew") from None
    shape = (len(federation.participants), federation.schema.size)
    if about["run"] != identity or tuple(tensors["best"].shape) != shape:
        raise FileError(f"{path}: a checkpoint of another run; remove it to start anew")
    device = federation.device
    state, memory = (
        {
            key.removeprefix(kind): value.to(device)
            for key, value in tensors.items()
            if key.startswith(kind)
        }
        for kind in ("state.", "memory.")
    )
    federation.restore(owner, memory)
    return Outcome(
        State(about["round"], state),
        tensors["best"].to(device),
        about["best_round"],
        [(score, loss) for score, loss in about["best_score"]],
        [Row(*row) for row in about["rows"]],
        [(r, Failure(*parts)) for r, *parts in about["failures"]],
        about["spent"],
    )

"""Running a method round by round: evaluation, choice of the step, checkpoints, progress."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedegoists.errors import FileError
from fedegoists.federation.federation import Failure, Federation
from fedegoists.files import write_bytes
from fedegoists.methods.method import Coalitions, Method, RoundReport, State

__all__ = ["Observer", "Outcome", "Row", "run"]


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
    checkpoint: str | os.PathLike[str] | None = None,
    observers: tuple[Observer, ...] = (),
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
    checkpoint : path, optional
        Where to keep the state after every evaluation. If the file exists, the run continues from
        it, to the same result as if it had never stopped.
    """
    outcome = _loaded(checkpoint, method.name, federation)
    if outcome is None:
        count = len(federation.participants)
        worst = (-math.inf, -math.inf)
        outcome = Outcome(method.start(initial), initial.clone(), [0] * count, [worst] * count)
        _evaluate(federation, outcome, choose=may_keep_start)
    while outcome.state.round < rounds:
        state, report = method.round(federation, coalitions, outcome.state, seed)
        outcome.state = state
        _account(outcome, report)
        if state.round % evaluate_every == 0 or state.round == rounds:
            _evaluate(federation, outcome, choose=True)
            if checkpoint is not None:
                _save(checkpoint, method.name, outcome)
        for observer in observers:
            observer(method.name, state.round, rounds, outcome)
    return outcome


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


def _evaluate(federation: Federation, outcome: Outcome, *, choose: bool) -> None:
    """Measure everybody's model on validation and test data; only validation decides."""
    sign = 1 if federation.task.higher_is_better else -1
    state = outcome.state
    for split in ("validation", "test"):
        replies = federation.call(
            "evaluate",
            {
                name: {"parameters": state.parameters[k], "split": split}
                for k, name in enumerate(federation.participants)
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
                    outcome.best[k] = state.parameters[k]


def _save(path: str | os.PathLike[str], method: str, outcome: Outcome) -> None:
    """Write everything into one file, so that it is replaced as a whole."""
    from safetensors.torch import save

    tensors = {f"state.{key}": value for key, value in outcome.state.tensors.items()}
    tensors["best"] = outcome.best
    about = {
        "method": method,
        "round": outcome.state.round,
        "best_round": outcome.best_round,
        "best_score": outcome.best_score,
        "rows": [[r.participant, r.round, r.split, r.metric, r.value] for r in outcome.rows],
        "failures": [[r, f.participant, f.reason, f.detail] for r, f in outcome.failures],
        "spent": outcome.spent,
    }
    contiguous = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    write_bytes(path, save(contiguous, {"fedegoists": json.dumps(about)}))


def _loaded(
    path: str | os.PathLike[str] | None, method: str, federation: Federation
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
    if about["method"] != method or tuple(tensors["best"].shape) != shape:
        raise FileError(f"{path}: a checkpoint of another run; remove it to start anew")
    device = getattr(federation, "device", torch.device("cpu"))
    state = {
        key.removeprefix("state."): value.to(device)
        for key, value in tensors.items()
        if key.startswith("state.")
    }
    return Outcome(
        State(about["round"], state),
        tensors["best"].to(device),
        about["best_round"],
        [(score, loss) for score, loss in about["best_score"]],
        [Row(*row) for row in about["rows"]],
        [(r, Failure(*parts)) for r, *parts in about["failures"]],
        about["spent"],
    )

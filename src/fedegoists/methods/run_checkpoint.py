"""Checkpoints of runs: one file with everything that a run needs to continue."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedegoists.errors import FileError
from fedegoists.federation.seam import Failure, MemoryKey, StatefulFederation
from fedegoists.learning.tensor_files import read_checkpoint, write_checkpoint
from fedegoists.methods.method import State
from fedegoists.methods.outcome import Finding, Outcome, Row


class CheckpointPause:
    """The pause between checkpoints: at least nine times as long as the last one took to write."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._began = time.perf_counter()
        self._until = self._began + least

    @property
    def over(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.perf_counter() >= self._until

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        now = time.perf_counter()
        self._until = now + max(9 * (now - self._began), self._least)


def save_outcome(
    path: str | os.PathLike[str],
    identity: str,
    outcome: Outcome,
    memory: Mapping[MemoryKey, Tensor],
) -> None:
    """Write everything into one file, so that it is replaced as a whole."""
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
        "findings": [[f.round, f.participant, f.kind, f.detail] for f in outcome.findings],
        "norms": outcome.norms,
    }
    distinct: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in tensors.items():
        here = value.detach().cpu().contiguous()
        # A file cannot hold two names for one tensor.
        distinct[key] = here.clone() if here.data_ptr() in seen else here
        seen.add(here.data_ptr())
    # It holds all models, and the personal parameters of simulated silos.
    write_checkpoint(Path(path), distinct, json.dumps(about))


def load_outcome(
    path: str | os.PathLike[str] | None,
    identity: str,
    owner: str,
    federation: StatefulFederation,
) -> Outcome | None:
    """Return the outcome in a checkpoint, with the silos' memory restored; None if there is none.

    Raises
    ------
    FileError
        If the checkpoint is of another run.
    """
    if path is None or not Path(path).exists():
        return None
    tensors, text = read_checkpoint(Path(path))
    about: dict[str, Any] = json.loads(text)
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
        [Finding(*parts) for parts in about.get("findings", ())],
        about.get("norms", {}),
    )

"""Silos that answer in their own way, in a simulation: late, never, or with something invented."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from fedegoists.federation.seam import Failure, Reply, accepted

__all__ = ["Behaviour", "misbehaved"]

Behaviour = Callable[[str, Reply], Any]
"""How a silo answers an operation, given the reply an honest and healthy one would give."""


def misbehaved(
    behaviours: Mapping[str, Behaviour],
    operation: str,
    replies: Mapping[str, Reply | Failure],
    shapes: Mapping[str, tuple[int, ...]],
    timeout: float | None,
) -> dict[str, Reply | Failure]:
    """Let silos answer in their own ways, all at once, for as long as one waits for them."""
    waiting: dict[str, queue.SimpleQueue[Any]] = {}
    for name, behaviour in behaviours.items():
        reply = replies.get(name)
        if reply is not None and not isinstance(reply, Failure):
            waiting[name] = _answering(behaviour, operation, name, reply)
    deadline = None if timeout is None else time.monotonic() + timeout
    given: dict[str, Reply | Failure] = {}
    for name, answers in waiting.items():
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            answer = answers.get(timeout=left)
        except queue.Empty:
            given[name] = Failure(name, "timeout", f"{timeout:g} s")
            continue
        given[name] = (
            answer
            if isinstance(answer, Failure)
            else accepted(operation, name, answer, shapes[name])
        )
    return given


def _answering(
    behaviour: Behaviour, operation: str, participant: str, reply: Reply
) -> "queue.SimpleQueue[Any]":
    """Let a silo answer in a thread of its own; return where its answer will be."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put(behaviour(operation, reply))
        except Exception as error:  # a silo may fail in any way
            answers.put(Failure(participant, "error", f"{type(error).__name__}: {error}"))

    threading.Thread(target=answer, daemon=True).start()
    return answers

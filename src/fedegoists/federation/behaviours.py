"""Simulated silos that misbehave: late, silent, or with invented replies."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import cast

from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Reply, ReplyT
from fedegoists.federation.requests import Request
from fedegoists.federation.seam import Failure, accepted

Behaviour = Callable[[Request[Reply], Reply], object]
"""How a silo answers a request, given the reply of an honest and healthy silo."""


def misbehaved(
    behaviours: Mapping[Participant, Behaviour],
    requests: Mapping[Participant, Request[ReplyT]],
    replies: Mapping[Participant, ReplyT | Failure],
    timeout: float | None,
) -> dict[Participant, ReplyT | Failure]:
    """Let silos answer in their own ways, all at once, for at most `timeout` seconds."""
    waiting: dict[Participant, queue.SimpleQueue[object]] = {}
    for name, behaviour in behaviours.items():
        reply = replies.get(name)
        if reply is not None and not isinstance(reply, Failure):
            request = cast("Request[Reply]", requests[name])
            waiting[name] = _answering(behaviour, request, name, reply)
    deadline = None if timeout is None else time.monotonic() + timeout
    given: dict[Participant, ReplyT | Failure] = {}
    for name, answers in waiting.items():
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            answer = answers.get(timeout=left)
        except queue.Empty:
            given[name] = Failure(name, "timeout", f"{timeout:g} s")
            continue
        given[name] = (
            answer if isinstance(answer, Failure) else accepted(name, requests[name], answer)
        )
    return given


def _answering(
    behaviour: Behaviour, request: Request[Reply], participant: Participant, reply: Reply
) -> "queue.SimpleQueue[object]":
    """Let a silo answer in a thread of its own; return the queue for its answer."""
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put(behaviour(request, reply))
        except Exception as error:  # a silo may fail in any way
            answers.put(Failure(participant, "error", f"{type(error).__name__}: {error}"))

    threading.Thread(target=answer, daemon=True).start()
    return answers

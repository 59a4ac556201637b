"""Simulated silos that misbehave: late, silent, or with invented or poisoned replies."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor

from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Gradients, Reply, ReplyT, Trained
from fedegoists.federation.requests import Request, Train
from fedegoists.federation.seam import Failure, accepted

Behaviour = Callable[[Request[Reply], Reply], object]
"""How a silo answers a request, given the reply of an honest and healthy silo."""


def misbehaved(
    behaviours: Mapping[Participant, Behaviour],
    requests: Mapping[Participant, Request[ReplyT]],
    replies: Mapping[Participant, ReplyT | Failure],
    timeout: float | None,
    samples: Callable[[Participant], int],
) -> dict[Participant, ReplyT | Failure]:
    """Let silos answer in their own ways, all at once, for at most `timeout` seconds.

    Parameters
    ----------
    samples : function from Participant to int
        The training samples that a silo has committed to.
    """
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
            answer
            if isinstance(answer, Failure)
            else accepted(name, requests[name], answer, samples(name))
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


# Poisons: replies that would pass for honest ones and ruin the models of others. A silo that trains
# honestly on wrong labels is made from its data, not from its replies.


def times(factor: float) -> Behaviour:
    """Return a silo that sends its updates and gradients times a factor, such as −10."""
    return _sending(lambda update: factor * update)


def claiming(samples: int) -> Behaviour:
    """Return a silo that sends its updates reversed and claims to have many samples."""
    backwards = times(-1.0)

    def behaviour(request: Request[Reply], reply: Reply) -> object:
        answer = cast("Reply", backwards(request, reply))
        if isinstance(answer, Trained | Gradients):
            return answer.model_copy(update={"samples": samples})
        return answer

    return behaviour


def garbage(size: float, seed: int = 0) -> Behaviour:
    """Return a silo that sends Gaussian noise of this standard deviation as its updates."""
    generator = torch.Generator().manual_seed(seed)
    return _sending(lambda update: size * torch.randn(update.shape, generator=generator).to(update))


def drifting(size: float = 1.0) -> Behaviour:
    """Return a silo that always pushes into one direction, away from where training leads.

    The direction is opposite to its first honest update. Each update is `size` times as long as the
    honest one would have been, so that no single one attracts attention.
    """
    directions: dict[tuple[object, ...], Tensor] = {}

    def drifted(update: Tensor) -> Tensor:
        lengths: Tensor = update.norm(dim=-1, keepdim=True)
        known = directions.setdefault(tuple(update.shape), -update / lengths.clamp_min(1e-12))
        return size * lengths * known

    return _sending(drifted)


def _sending(change: Callable[[Tensor], Tensor]) -> Behaviour:
    """Return a silo whose updates and training gradients are changed; it evaluates honestly."""

    def behaviour(request: Request[Reply], reply: Reply) -> object:
        if isinstance(request, Train) and isinstance(reply, Trained):
            start = request.parameters.to(reply.parameters)
            return reply.model_copy(update={"parameters": start + change(reply.parameters - start)})
        if isinstance(reply, Gradients):
            return reply.model_copy(update={"gradient": change(reply.gradient)})
        return reply

    return behaviour

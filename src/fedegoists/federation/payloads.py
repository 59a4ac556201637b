"""What payloads ask for, and the replies that silos of a simulation make of their results."""

from typing import Any

from fedegoists.federation.seam import Payload, Reply
from fedegoists.federation.silo_operations import LocalTerms, Silo, Trained, TrainSettings

__all__ = [
    "asked_alike",
    "batch_options",
    "evaluate_reply",
    "shape_of",
    "share_options",
    "train_reply",
]


def shape_of(payload: Payload) -> tuple[int, ...]:
    """Return the shape of the parameters in a payload."""
    return tuple(payload["parameters"].shape) if "parameters" in payload else ()


def batch_options(payload: Payload) -> dict[str, Any]:
    """Return which samples a payload wants, and what is done to gradients."""
    keys = ("split", "batch_size", "share", "step", "augment", "clip", "noise")
    return {key: payload[key] for key in keys if key in payload}


def share_options(payload: Payload) -> dict[str, Any]:
    """Return which share of a split a payload wants."""
    return {key: payload[key] for key in ("share", "step") if key in payload}


def evaluate_reply(results: list[tuple[float, float, int]], payload: Payload) -> Reply:
    """Return losses and scores as numbers for one model, and as lists for several."""
    losses, scores, samples = (list(column) for column in zip(*results, strict=True))
    if payload["parameters"].ndim == 1:
        return {"loss": losses[0], "score": scores[0], "samples": samples[0]}
    return {"loss": losses, "score": scores, "samples": samples[0]}


def train_reply(trained: Trained, silo: Silo, settings: TrainSettings) -> Reply:
    """Return what a silo says after training."""
    size = len(silo.splits["train"])
    reply: Reply = {
        "parameters": trained.parameters,
        "loss": trained.loss,
        "samples": size,
        "sample_passes": settings.steps * min(settings.batch_size, size),
    }
    if trained.anchor is not None:
        reply["anchor"] = trained.anchor
    if trained.momentum is not None:
        reply["momentum"] = trained.momentum
    return reply


def asked_alike(payload: Payload) -> dict[str, object]:
    """Return what must be equal for two silos to be stacked: all but their tensors."""
    asked = dict(payload)
    asked.pop("parameters", None)
    if isinstance(asked.get("terms"), LocalTerms):
        asked["terms"] = asked["terms"].kind
    return asked

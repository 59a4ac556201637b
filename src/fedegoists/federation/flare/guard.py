"""What stands between a request and a silo's data: its limits, and what is done to every answer."""

import datetime
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.federation import Reply
from fedegoists.federation.flare.messages import Request
from fedegoists.federation.flare.silo_settings import LIMITED, SiloSettings
from fedegoists.federation.privacy import SHORTEST
from fedegoists.files import write_bytes
from fedegoists.learning.parameters import ParameterSchema

__all__ = ["Guard", "RefusedError"]

ALWAYS = ("about", "remember", "recall")
"""Requests that tell nothing of any sample."""


class RefusedError(FedEgoistsError):
    """A request that the silo's organisation does not allow."""


class Guard:
    """Refuses what a ``silo.toml`` does not allow, and changes what leaves as it says."""

    def __init__(self, settings: SiloSettings, state: Path) -> None:
        self._settings = settings
        self._counted = state / "rounds.json"

    def admit(self, caller: str, request: Request) -> None:
        """Let a request pass, or raise `RefusedError` with the reason.

        Only the coordinator may ask: another silo's certificate opens nothing here.
        """
        limits = self._settings.limits
        if caller != "server":
            raise RefusedError("only the coordinator may ask")
        if request.operation in ALWAYS:
            return
        if request.operation not in limits.operations:
            raise RefusedError(f"{request.operation} is not among the operations allowed here")
        if limits.models is not None and request.model not in limits.models:
            raise RefusedError("this network is not among those allowed here")
        if request.operation in LIMITED and limits.rounds_per_day is not None:
            self._count(limits.rounds_per_day)

    def _count(self, most: int) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        try:
            known = json.loads(self._counted.read_text())
            count = int(known["count"]) if known["day"] == today else 0
        except (OSError, ValueError, KeyError, TypeError):
            count = 0
        if count >= most:
            raise RefusedError(f"{most} rounds have been answered today, as many as allowed")
        write_bytes(self._counted, json.dumps({"day": today, "count": count + 1}).encode())

    def asked(self, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload as it is carried out: gradients are clipped at least as the silo says.

        Noise is left to `leaving`, which draws it from a secret: who asks knows the seed.
        """
        own = dict(payload)
        if operation == "loss_and_gradient":
            own.pop("noise", None)
            clips = [
                clip
                for clip in (payload.get("clip"), self._settings.privacy.gradient_clip)
                if clip is not None
            ]
            if clips:
                own["clip"] = min(clips)
        return own

    def leaving(
        self, operation: str, payload: Mapping[str, Any], reply: Reply, schema: ParameterSchema
    ) -> Reply:
        """Return a reply as it may leave.

        Parameters
        ----------
        payload : mapping
            As it was asked.
        """
        privacy = self._settings.privacy
        if operation == "loss_and_gradient":
            noise = max(payload.get("noise", 0.0), privacy.gradient_noise)
            clip = self.asked(operation, payload).get("clip")
            if noise and clip is not None:
                spread = noise * clip / reply["samples"]
                return {**reply, "gradient": reply["gradient"] + _noise(reply["gradient"], spread)}
        if operation == "train" and privacy.update_clip is not None:
            terms = payload.get("terms")
            starts = {
                "parameters": payload["parameters"],
                "anchor": None if terms is None else terms.anchor,
            }
            personal = schema.mask(payload.get("personal", ()))
            return {
                **reply,
                **{
                    key: _bounded(
                        start, reply[key], personal, privacy.update_clip, privacy.update_noise
                    )
                    for key, start in starts.items()
                    if start is not None and key in reply
                },
            }
        return reply


def _bounded(start: Tensor, trained: Tensor, personal: Tensor, clip: float, noise: float) -> Tensor:
    """Shorten the change that training made, and add noise; personal entries stay zeros."""
    update = (trained.cpu() - start.cpu()).masked_fill(personal, 0.0)
    update = update * (clip / update.norm().clamp_min(SHORTEST)).clamp_max(1.0)
    if noise:
        update = update + _noise(update, noise * clip)
    bounded: Tensor = (start.cpu() + update).masked_fill(personal, 0.0)
    return bounded


def _noise(like: Tensor, spread: float) -> Tensor:
    generator = torch.Generator().manual_seed(secrets.randbits(63))
    return (spread * torch.randn(like.shape, generator=generator)).to(like.device)

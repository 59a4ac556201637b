"""What stands between a request and a silo's data: its limits, and what is done to every answer."""

import datetime
import fcntl
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.batches import share_of
from fedegoists.federation.flare.messages import Request
from fedegoists.federation.flare.silo_settings import LIMITED, SiloSettings
from fedegoists.federation.gradient_privacy import SHORTEST
from fedegoists.federation.seam import Reply
from fedegoists.files import private_folder, write_bytes
from fedegoists.learning.parameters import ParameterSchema

__all__ = ["Guard", "RefusedError"]

ALWAYS = ("about", "remember", "recall", "deliver")
"""Requests that tell nothing of any sample, and are not among the operations of a silo.toml."""


ROUNDS, EVALUATIONS = "rounds", "evaluations"
COUNTED = (ROUNDS, EVALUATIONS)
"""What is counted by the day."""


MOST_DRAWS = 100_000_000
"""Samples that one round of training may draw: their places are all in memory at once."""


class RefusedError(FedEgoistsError):
    """A request that the silo's organisation does not allow."""


class Guard:
    """Refuses what a ``silo.toml`` does not allow, and changes what leaves as it says.

    Parameters
    ----------
    state : Path
        Where rounds are counted.
    sizes : mapping of str to int
        Samples in each split.
    """

    def __init__(self, settings: SiloSettings, state: Path, sizes: Mapping[str, int]) -> None:
        self._settings = settings
        self._counted = state / "rounds.json"
        self._sizes = dict(sizes)

    def admit(
        self, caller: str, request: Request, payloads: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Let a request pass, or raise `RefusedError` with the reason.

        Only the coordinator may ask: another silo's certificate opens nothing here.
        """
        limits = self._settings.limits
        if caller != "server":
            raise RefusedError("only the coordinator may ask")
        if request.operation == "about":
            return
        if request.operation not in (*ALWAYS, *limits.operations):
            raise RefusedError(f"{request.operation} is not among the operations allowed here")
        if limits.models is not None and request.model not in limits.models:
            raise RefusedError("this network is not among those allowed here")
        if request.operation in ALWAYS:
            return
        for payload in payloads.values():
            self._admit_part(request.operation, payload)
        asked = dict.fromkeys(COUNTED, 0)
        for payload in payloads.values():
            for kind in self._counts_as(request.operation, payload):
                asked[kind] += _models(payload)
        self._count(asked, (limits.rounds_per_day, limits.evaluations_per_day))

    def _admit_part(self, operation: str, payload: Mapping[str, Any]) -> None:
        """Refuse what is about so few samples that it is as good as one of them."""
        split = payload.get("split", "train")
        size = self._sizes[split]
        settings = payload.get("settings")
        if operation == "train" and settings is not None:
            batch = min(settings.batch_size, size)
            if settings.steps * batch > MOST_DRAWS:
                raise RefusedError(f"{settings.steps} steps are more than there is memory for")
        elif operation == "evaluate":
            if self._of_a_part(payload) and self._settings.privacy.gradient_clip is not None:
                raise RefusedError("losses of a part of the data are hidden here")
            batch, _ = self._evaluated(payload)
        elif operation == "loss_and_gradient":
            asked = share_of(size, payload.get("share"), payload.get("batch_size"))
            batch = min(asked or size, size)
        else:
            return
        fewest = min(self._settings.limits.fewest_samples, size // 2)
        if batch < fewest:
            raise RefusedError(f"{batch} of {size} {split} samples; here at least {fewest}")

    def _counts_as(self, operation: str, payload: Mapping[str, Any]) -> set[str]:
        """Return as what an answer counts.

        What tells of training samples, or of some that the caller chooses, is a round. What tells
        of more than half of the validation or test data is an evaluation, or also one: nearly
        all of them tell as much as all. A gradient there is both.
        """
        if operation not in (*LIMITED, "evaluate"):
            return set()
        kinds = set()
        if operation in LIMITED or self._of_a_part(payload):
            kinds.add(ROUNDS)
        if operation != "train" and payload.get("split", "train") != "train":
            asked, size = self._evaluated(payload)
            if operation == "loss_and_gradient" or 2 * asked > size:
                kinds.add(EVALUATIONS)
        return kinds

    def _of_a_part(self, payload: Mapping[str, Any]) -> bool:
        """Return whether losses are of training samples, or of some that the caller chooses."""
        asked, size = self._evaluated(payload)
        return payload.get("split") == "train" or asked < size

    def _evaluated(self, payload: Mapping[str, Any]) -> tuple[int, int]:
        """Return of how many samples losses are, and of how many there are."""
        size = self._sizes[payload.get("split", "train")]
        return share_of(size, payload.get("share"), None) or size, size

    def _count(self, asked: Mapping[str, int], most: tuple[int | None, ...]) -> None:
        """Count what is limited, and refuse what goes beyond; nothing counts that is refused."""
        limits = dict(zip(COUNTED, most, strict=True))
        if not any(asked[kind] for kind, limit in limits.items() if limit is not None):
            return
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        with self._alone():
            counts = self._counts(today)
            for kind, limit in limits.items():
                if limit is not None and asked[kind] and counts[kind] + asked[kind] > limit:
                    raise RefusedError(
                        f"{counts[kind]} {kind} have been answered today; {asked[kind]} more are "
                        f"more than the {limit} allowed"
                    )
                counts[kind] += asked[kind]
            content = json.dumps({"day": today, **counts})
            write_bytes(self._counted, content.encode(), private=True)

    def _counts(self, today: str) -> dict[str, int]:
        """Return what has been answered today; refuse if there is a count that cannot be read."""
        try:
            known = json.loads(self._counted.read_text())
            counted = known if known["day"] == today else {}
            return {kind: int(counted.get(kind, 0)) for kind in COUNTED}
        except FileNotFoundError:
            return dict.fromkeys(COUNTED, 0)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise RefusedError(
                f"{self._counted.name} cannot be read: what has been answered today is not known"
            ) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other jobs, each a process of its own, from counting at the same time."""
        private_folder(self._counted.parent)
        with self._counted.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

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
        if operation != "train":
            return reply
        if privacy.update_clip is not None or privacy.gradient_clip is not None:
            # A momentum is made of gradients that nothing was done to: it stays here.
            reply = {key: value for key, value in reply.items() if key != "momentum"}
        if privacy.update_clip is not None:
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


def _models(payload: Mapping[str, Any]) -> int:
    """Return about how many models something is asked; each is an answer of its own."""
    parameters = payload.get("parameters")
    return 1 if parameters is None or parameters.ndim == 1 else len(parameters)


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

"""A silo at its own organisation: answers requests from its own data, within its limits."""

import hashlib
import hmac
import logging
import secrets
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import numpy as np

from fedegoists.errors import SettingsError
from fedegoists.federation.federation import Failure, Reply
from fedegoists.federation.flare.guard import Guard, RefusedError
from fedegoists.federation.flare.messages import About, Request, pack_replies, unpack_request
from fedegoists.federation.flare.silo_settings import SILO_FILE, load_silo, read_silo_settings
from fedegoists.federation.flare.wire import WireError, schema_digest
from fedegoists.federation.simulated import SimulatedFederation
from fedegoists.files import write_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.models import build_model, model_options
from fedegoists.version import __version__

__all__ = ["SiloService"]

SPLITS = ("train", "validation", "test")

KEPT = 3
"""Checkpoints of the coordinator to which a silo can go back."""


class SiloService:
    """Everything a silo does with a message; FLARE only brings it.

    Parameters
    ----------
    kit : Path
        The organisation's folder, with its ``silo.toml``; what the silo keeps goes to ``state``.
    """

    def __init__(self, kit: Path) -> None:
        self._settings = read_silo_settings(kit / SILO_FILE)
        self._state = kit / "state"
        self._log = _logger(kit / "silo.log")
        self._data = load_silo(self._settings)
        splits = dict(zip(SPLITS, self._data.silos[0].sizes, strict=True))
        self._guard = Guard(self._settings, self._state, splits)
        self._own: tuple[tuple[str, int], SimulatedFederation] | None = None
        self._lock = threading.Lock()
        sizes = "/".join(map(str, self._data.silos[0].sizes))
        self._log.info("%s is ready with %s samples", self._settings.participant, sizes)

    def answer(self, caller: str, message: object) -> bytes:
        """Return the answer to a message; what is not allowed is refused, and logged."""
        with self._lock:
            request = None
            try:
                request, payloads = unpack_request(message)
                self._guard.admit(caller, request, payloads)
                about, replies = None, {}
                if request.operation == "about":
                    about = self._about()
                elif request.operation in ("remember", "recall"):
                    self._checkpoint(request)
                else:
                    replies = self._carried_out(request, payloads)
            except (RefusedError, WireError, SettingsError) as error:
                what = "a message" if request is None else request.operation
                self._log.warning("refused %s from %s: %s", what, caller, error)
                return pack_replies(refused=str(error)[:400])
            except Exception as error:  # a request that was not foreseen; the silo goes on
                what = "a message" if request is None else request.operation
                self._log.exception("%s from %s failed", what, caller)
                return pack_replies(refused=f"the silo failed ({type(error).__name__})")
            failed = [str(reply) for reply in replies.values() if isinstance(reply, Failure)]
            told = f"failed: {failed[0]}" if failed else "answered"
            self._log.info(
                "%s for run %s, %s trials: %s", request.operation, request.run, len(replies), told
            )
            return pack_replies(replies, about=about)

    def _carried_out(
        self, request: Request, payloads: dict[str, dict[str, Any]]
    ) -> dict[str, Reply | Failure]:
        federation = self._federation(request)
        for label in payloads:
            if label and int(label) >= request.trials:
                raise SettingsError(f"there are {request.trials} trials, none is {label}")
        _check_keys(request.operation, payloads)
        operation = request.operation
        asked = {
            self._name(label): self._guard.asked(operation, payload)
            for label, payload in payloads.items()
        }
        replies = federation.call(operation, asked)
        result: dict[str, Reply | Failure] = {}
        for label, payload in payloads.items():
            reply = replies[self._name(label)]
            if not isinstance(reply, Failure):
                reply = self._guard.leaving(operation, payload, reply, federation.schema)
            result[label] = reply
        owners = {str(p["slot"]).split("/")[0] for p in payloads.values() if p.get("slot")}
        for owner in owners:
            self._keep(federation, owner, "now")
        return result

    def _name(self, label: str) -> str:
        participant = self._settings.participant
        return f"{label}/{participant}" if label else participant

    def _federation(self, request: Request) -> SimulatedFederation:
        key = (request.model, request.trials)
        if self._own is None or self._own[0] != key:
            labels = ["", *map(str, range(request.trials))]
            federation = SimulatedFederation(
                dict.fromkeys(labels, self._data),
                build_model(request.model, 0, **model_options(self._data)),
                device=self._settings.data.device,
            )
            self._own = (key, federation)
            for file in sorted(self._state.glob("memory-*-now.safetensors")):
                self._restore(federation, file)
        federation = self._own[1]
        if schema_digest(federation.schema) != request.schema_is:
            raise SettingsError("the coordinator's network has other parameters than the one here")
        return federation

    def _checkpoint(self, request: Request) -> None:
        """Keep a copy of a method's memory beside a checkpoint, or go back to it."""
        federation = self._federation(request)
        if request.operation == "remember":
            self._keep(federation, request.owner, str(request.checkpoint))
            known = sorted(
                self._state.glob(f"memory-{_plain(request.owner)}-[0-9]*.safetensors"),
                key=lambda file: int(file.stem.rsplit("-", 1)[1]),
            )
            for file in known[:-KEPT]:
                file.unlink()
            return
        file = self._memory_file(request.owner, str(request.checkpoint))
        if not file.exists():
            raise SettingsError("nothing was kept here at that checkpoint")
        self._restore(federation, file)
        self._keep(federation, request.owner, "now")

    def _memory_file(self, owner: str, when: str) -> Path:
        return self._state / f"memory-{_plain(owner)}-{when}.safetensors"

    def _keep(self, federation: SimulatedFederation, owner: str, when: str) -> None:
        from safetensors.torch import save

        tensors = {
            name: value.detach().cpu().contiguous().clone()
            for name, value in federation.memory(owner).items()
        }
        write_bytes(self._memory_file(owner, when), save(tensors), private=True)

    def _restore(self, federation: SimulatedFederation, file: Path) -> None:
        from safetensors.torch import load_file

        known = set(federation.participants)
        size = federation.schema.size
        federation.restore(
            {
                key: value
                for key, value in load_file(file).items()
                if key.split("\n")[0] in known and value.numel() <= size
            }
        )

    def _about(self) -> About:
        data = self._data
        return About(
            participant=self._settings.participant,
            version=__version__,
            task=data.task,
            classes=data.classes,
            shapes=[list(array.shape[1:]) for array in data.samples.inputs],
            kinds=[f"{array.dtype.kind}{array.dtype.itemsize}" for array in data.samples.inputs],
            sizes=list(data.silos[0].sizes),
            digest=_digest(data, self._state / "secret"),
        )


def _check_keys(operation: str, payloads: dict[str, dict[str, Any]]) -> None:
    """Refuse payloads that lack what their operation needs."""
    needed = {
        "train": ("parameters", "settings"),
        "loss_and_gradient": ("parameters",),
        "evaluate": ("parameters", "split"),
        "keep": ("slot",),
    }.get(operation, ())
    for payload in payloads.values():
        missing = [key for key in needed if key not in payload]
        if payload.get("personal") and "slot" not in payload:
            missing.append("slot")
        if missing:
            raise SettingsError(f"{operation} without {missing[0]}")


def _plain(owner: str) -> str:
    """Return a method's name as part of a file's name."""
    if not owner or not all(c.isalnum() or c in "+_" for c in owner):
        raise SettingsError(f"no method is called {owner[:50]!r}")
    return owner


def _digest(data: SiloedData, secret: Path) -> str:
    """Return a hash of the data under a secret that never leaves the silo."""
    if not secret.exists():
        write_bytes(secret, secrets.token_bytes(32), private=True)
    content = hmac.new(secret.read_bytes(), digestmod=hashlib.sha256)
    for array in (*data.samples.inputs, data.samples.targets):
        content.update(np.ascontiguousarray(array).data)
    content.update(np.concatenate([[*data.silos[0].sizes], data.silos[0].all]).data)
    return content.hexdigest()[:32]


class _OneLine(logging.Formatter):
    """Keeps what was sent from looking like a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        text = super().formatMessage(record)
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _logger(path: Path) -> logging.Logger:
    """Return the silo's own log: one line for every request, and why one was refused."""
    logger = logging.getLogger("fedegoists.silo")
    logger.setLevel(logging.INFO)
    if not any(getattr(handler, "baseFilename", "") == str(path) for handler in logger.handlers):
        handler = RotatingFileHandler(path, maxBytes=20_000_000, backupCount=5, encoding="utf-8")
        handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    return logger

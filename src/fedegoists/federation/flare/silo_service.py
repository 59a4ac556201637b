"""A silo at its own organisation: answers requests from its own data, within its limits."""

import hashlib
import hmac
import logging
import secrets
import threading
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import numpy as np

from fedegoists.errors import SettingsError
from fedegoists.federation.flare.messages import About, Request, pack_replies, unpack_request
from fedegoists.federation.flare.silo_checkpoints import KeptLayers
from fedegoists.federation.flare.silo_limits import Guard, RefusedError
from fedegoists.federation.flare.silo_settings import SILO_FILE, load_silo, read_silo_settings
from fedegoists.federation.flare.wire import WireError, schema_digest
from fedegoists.federation.seam import Failure, Reply
from fedegoists.federation.silo_memory import owner_of
from fedegoists.federation.simulated_federation import SimulatedFederation
from fedegoists.files import private_folder, write_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_files import MODELS_FOLDER, ModelCard, keep_model
from fedegoists.learning.models import build_model, model_options
from fedegoists.version import __version__

__all__ = ["SiloService"]

SPLITS = ("train", "validation", "test")


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
        private_folder(self._state)
        self._data = load_silo(self._settings)
        splits = dict(zip(SPLITS, self._data.silos[0].sizes, strict=True))
        self._guard = Guard(self._settings, self._state, splits)
        self._kept = KeptLayers(self._state, self._log)
        self._models = kit / MODELS_FOLDER
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
                elif request.operation == "deliver":
                    self._delivered(request, payloads)
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
                "%s for run %s, %s trials: %s", request.operation, request.run, len(payloads), told
            )
            return pack_replies(replies, about=about)

    def _carried_out(
        self, request: Request, payloads: dict[str, dict[str, Any]]
    ) -> dict[str, Reply | Failure]:
        operation = request.operation
        federation = self._ready(request, payloads)
        asked = {
            self._name(label): self._guard.asked(operation, payload)
            for label, payload in payloads.items()
        }
        self._kept.check(federation, asked)
        for owner, lineage in request.lineages.items():
            self._kept.follow(federation, owner, lineage)
        replies = federation.call(operation, asked)
        result: dict[str, Reply | Failure] = {}
        for label, payload in payloads.items():
            reply = replies[self._name(label)]
            if not isinstance(reply, Failure):
                reply = self._guard.leaving(operation, payload, reply, federation.schema)
            result[label] = reply
        if operation != "evaluate":  # which changes nothing that is kept
            for owner in {owner_of(p["slot"]) for p in payloads.values() if p.get("slot")}:
                self._kept.save(federation, owner)
        return result

    def _ready(self, request: Request, payloads: dict[str, dict[str, Any]]) -> SimulatedFederation:
        """Return the federation of this silo alone that a request is for, checked."""
        federation = self._federation(request)
        for label in payloads:
            if label and int(label) >= request.trials:
                raise SettingsError(f"there are {request.trials} trials, none is {label}")
        _check_keys(request.operation, payloads)
        used = {
            owner_of(payload[key])
            for payload in payloads.values()
            for key in ("slot", "source")
            if payload.get(key)
        }
        if not used >= request.lineages.keys():
            raise SettingsError("lineages of methods whose slots are not used")
        return federation

    def _name(self, label: str) -> str:
        participant = self._settings.participant
        return f"{label}/{participant}" if label else participant

    def _federation(self, request: Request) -> SimulatedFederation:
        key = (request.model, request.trials)
        if self._own is None or self._own[0] != key:
            labels = ["", *map(str, range(request.trials))]
            federation = SimulatedFederation(
                dict.fromkeys(labels, self._data),
                build_model(request.model, 0, **model_options(self._data, request.model)),
                device=self._settings.data.device,
            )
            self._own = None  # nothing is asked of one that has not got its layers
            self._kept.load(federation)
            self._own = (key, federation)
        federation = self._own[1]
        if schema_digest(federation.schema) != request.schema_is:
            raise SettingsError("the coordinator's network has other parameters than the one here")
        return federation

    def _checkpoint(self, request: Request) -> None:
        """Keep a copy of a method's memory beside a checkpoint, or go back to it."""
        federation = self._federation(request)
        complete = [
            self._kept.follow(federation, owner, lineage)
            for owner, lineage in request.lineages.items()
        ]
        if not all(complete):
            raise SettingsError("nothing was kept here at that checkpoint; its layers begin anew")

    def _delivered(self, request: Request, payloads: dict[str, dict[str, Any]]) -> None:
        """Complete a model with the silo's own layers, and keep it for its organisation."""
        federation = self._ready(request, payloads)
        for owner, lineage in request.lineages.items():
            self._kept.follow(federation, owner, lineage)
        for label, payload in payloads.items():
            name, personal = self._name(label), payload.get("personal", ())
            if payload["parameters"].shape != (federation.schema.size,):
                raise SettingsError("this is not one model")
            if not payload["parameters"].isfinite().all():
                raise SettingsError("this model has parameters that are no numbers")
            if personal and f"{name}\n{payload['slot']}" not in federation.memory(
                owner_of(payload["slot"])
            ):
                raise SettingsError("the layers that this silo keeps to itself are not here")
            whole = federation.personal_model(
                name, payload["parameters"], personal, payload.get("slot", "")
            )
            card = ModelCard.of(
                self._data,
                self._settings.participant,
                method=payload["method"],
                seed=int(label or 0),
                chosen_round=payload["round"],
                model=request.model,
                options=model_options(self._data, request.model),
            )
            keep_model(self._models, request.run, federation.schema.unflatten(whole), card)

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
        "deliver": ("parameters", "method", "round"),
    }.get(operation, ())
    for payload in payloads.values():
        missing = [key for key in needed if key not in payload]
        if payload.get("personal") and "slot" not in payload:
            missing.append("slot")
        if missing:
            raise SettingsError(f"{operation} without {missing[0]}")


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


class _PrivateFile(RotatingFileHandler):
    """A log that only its owner can read."""

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        Path(self.baseFilename).chmod(0o600)  # also one from before
        return super()._open()


def _logger(path: Path) -> logging.Logger:
    """Return the silo's own log: one line for every request, and why one was refused."""
    logger = logging.getLogger("fedegoists.silo")
    logger.setLevel(logging.INFO)
    if not any(getattr(handler, "baseFilename", "") == str(path) for handler in logger.handlers):
        handler = _PrivateFile(path, maxBytes=20_000_000, backupCount=5, encoding="utf-8")
        handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    return logger

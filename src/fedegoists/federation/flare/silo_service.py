"""A silo at its own organisation: answers requests from its own data, within its limits."""

import hashlib
import hmac
import logging
import threading
from collections.abc import Collection
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import cast

import numpy as np

from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.federation.delivery import choose_at_home
from fedegoists.federation.flare.approved_code import check_weights, model_here
from fedegoists.federation.flare.messages import (
    SETTING_UP,
    About,
    Answers,
    Call,
    RepeatedReply,
    SiloReply,
    SiloRequest,
    unmasked,
)
from fedegoists.federation.flare.silo_checkpoints import SiloCheckpoints
from fedegoists.federation.flare.silo_limits import RefusedError, SiloGuard
from fedegoists.federation.flare.silo_masking import SiloMasking
from fedegoists.federation.flare.silo_secret import (
    SECRET_FILE,
    STATE_FOLDER,
    sealed_models,
    sealed_state,
)
from fedegoists.federation.flare.silo_settings import (
    SILO_FILE,
    load_silo,
    loader_digest,
    read_silo_settings,
)
from fedegoists.federation.flare.wire import (
    OldVersionError,
    WireError,
    old_refusal,
    pack,
    schema_digest,
    unpack,
)
from fedegoists.federation.participant import Participant, Repetition
from fedegoists.federation.replies import Delivered, Failed, Reply, Trained
from fedegoists.federation.requests import DELIVERED, Deliver, Request, Train, owner_of
from fedegoists.federation.seam import Failure
from fedegoists.federation.secure_sums.sum_requests import MaskedTrain
from fedegoists.federation.simulated_federation import SimulatedFederation
from fedegoists.files import private_folder
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_files import ModelCard, keep_model
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.own_models import is_own, model_parts, weights_in
from fedegoists.learning.sealed_models import MODELS_FOLDER
from fedegoists.sealed_files import owner_secret
from fedegoists.version import __version__

SPLITS = ("train", "validation", "test")


class SiloService:
    """Answers messages from a silo's own data; FLARE only brings them.

    Parameters
    ----------
    kit : Path
        The organisation's folder, with its ``silo.toml``; the silo's files go to ``state``.
    """

    def __init__(self, kit: Path) -> None:
        self._settings = read_silo_settings(kit / SILO_FILE)
        self._kit, self._state = kit, kit / STATE_FOLDER
        self._log = _logger(kit / "silo.log")
        private_folder(self._state)
        self._data = load_silo(self._settings)
        self._loader = loader_digest(self._settings)
        splits = dict(zip(SPLITS, self._data.silos[0].sizes, strict=True))
        groups = dict(zip(SPLITS, self._data.group_sizes()[self._data.silos[0].name], strict=True))
        self._guard = SiloGuard(self._settings, self._state, splits, groups)
        self._masking = SiloMasking(kit, self._settings, self._log)
        self._kept = SiloCheckpoints(self._state, sealed_state(kit), self._log)
        self._stream_secret = stream_secret(self._data, self._state)
        self._models, self._sealed_models = kit / MODELS_FOLDER, sealed_models(kit)
        self._own: tuple[tuple[str, int], SimulatedFederation] | None = None
        self._lock = threading.Lock()
        self._told_spent = -1.0
        sizes = "/".join(map(str, self._data.silos[0].sizes))
        self._log.info("%s is ready with %s samples", self._settings.participant, sizes)
        for warning in self._data.warnings:
            self._log.warning("look at the data: %s", warning)

    def answer(self, caller: str, message: object) -> bytes:
        """Return the answer to a message; refusals are logged."""
        with self._lock:
            call = None
            try:
                call = unpack(Call, message)
                self._guard.admit(caller, call)
                answers = self._answers(call)
            except OldVersionError as error:
                self._log.warning("refused a message: %s %s", caller, error)
                return old_refusal(error.protocol, f"the coordinator {error}")
            except (RefusedError, WireError, SettingsError, MissingDependencyError) as error:
                what = "a message" if call is None else call.operation
                self._log.warning("refused %s from %s: %s", what, caller, error)
                return pack(Answers(refused=str(error)[:400]))
            except Exception as error:  # an unforeseen request must not stop the silo
                what = "a message" if call is None else call.operation
                self._log.exception("%s from %s failed", what, caller)
                return pack(Answers(refused=f"the silo failed ({type(error).__name__})"))
            failed = [one.reply for one in answers.answered if isinstance(one.reply, Failed)]
            told = f"failed: {failed[0].reason} ({failed[0].detail})" if failed else "answered"
            self._log.info(
                "%s for run %s, %s repetitions: %s", call.operation, call.run, len(call.asked), told
            )
            self._tell_privacy()
            return pack(answers)

    def _tell_privacy(self) -> None:
        """Write into the log what has been spent, when it has grown noticeably."""
        budget = self._settings.privacy.epsilon
        if budget is None:
            return
        spent = {split: one.spent for split, one in self._guard.ledger.accounts().items()}
        if max(spent.values()) >= self._told_spent + budget / 20:
            self._told_spent = max(spent.values())
            told = ", ".join(f"{split} {own:.3g}" for split, own in spent.items())
            self._log.info("privacy spent, epsilon of a sample: %s of %g", told, budget)

    def _answers(self, call: Call) -> Answers:
        if call.operation == "about":
            return Answers(about=self._about())
        if call.operation in ("remember", "recall"):
            self._checkpoint(call)
            return Answers()
        if call.operation in (*SETTING_UP, "unmask"):
            replies = self._masking.answered(call.requests(self._settings.participant))
        elif call.operation == "take":
            replies = self._taken(call)
        elif call.operation == "deliver":
            replies = self._delivered(call)
        else:
            replies = self._carried_out(call)
        return Answers(
            answered=tuple(
                RepeatedReply(
                    repetition=cast("int | None", name.repetition),
                    reply=Failed(reason=one.reason, detail=one.detail[:400])
                    if isinstance(one, Failure)
                    else cast("SiloReply", one),
                )
                for name, one in replies.items()
            )
        )

    def _carried_out(self, call: Call) -> dict[Participant, Reply | Failure]:
        federation, requests = self._ready(call)
        result: dict[Participant, Reply | Failure] = dict(
            self._masking.refused(federation.schema, requests)
        )
        left = {name: one for name, one in requests.items() if name not in result}
        self._kept.check(federation, {name: unmasked(one) for name, one in left.items()})
        self._guard.check_personal(federation.schema, left.values())
        # Sums that are refused cost nothing: only now it is known what will be answered.
        self._guard.charge(left.values())
        self._follow(federation, call)
        asked = {name: self._guard.clipped(one) for name, one in left.items()}
        masked = {name: one for name, one in asked.items() if isinstance(one, MaskedTrain)}
        if masked:

            def leaving(train: Train, reply: Trained) -> Trained:
                return cast("Trained", self._guard.leaving(train, reply, federation.schema))

            result |= self._masking.trained(federation, masked, leaving)
        plain = {name: one for name, one in asked.items() if name not in masked}
        replies = federation.call(cast("dict[Participant, Request[Reply]]", plain))
        result |= {
            name: reply
            if isinstance(reply, Failure)
            else self._guard.leaving(requests[name], reply, federation.schema)
            for name, reply in replies.items()
        }
        owners = {owner_of(one.slots[0]) for one in requests.values() if one.slots}
        # An evaluation changes nothing that is kept.
        for owner in () if call.operation == "evaluate" else owners:
            self._kept.save(federation, owner)
        return result

    def _taken(self, call: Call) -> dict[Participant, Reply | Failure]:
        """Make means that only this silo can read its next models."""
        federation, requests = self._ready(call)
        replies, slots = self._masking.taken(federation, requests)
        for owner in {owner_of(slot) for slot in slots}:
            self._kept.save(federation, owner)
        return replies

    def _ready(self, call: Call) -> tuple[SimulatedFederation, dict[Participant, SiloRequest]]:
        """Return the federation of this silo alone that a call is for, and its requests."""
        federation = self._federation(call)
        for number in (one.repetition for one in call.asked):
            if number is not None and number >= call.repetitions:
                raise SettingsError(f"there are {call.repetitions} repetitions, none is {number}")
        requests = call.requests(self._settings.participant)
        used = {owner_of(slot) for request in requests.values() for slot in request.slots}
        if not used >= call.lineages.keys():
            raise SettingsError("lineages of methods whose slots are not used")
        return federation, requests

    def _follow(self, federation: SimulatedFederation, call: Call) -> bool:
        """Catch up with the run's lineages; return whether all that takes was still here."""
        followed = [
            self._kept.follow(federation, owner, lineage)
            for owner, lineage in call.lineages.items()
        ]
        return all(followed)

    def _federation(self, call: Call) -> SimulatedFederation:
        model = model_here(self._kit, call.model, call.code)
        if is_own(model):
            weights = weights_in(model_options(self._data, model))
            check_weights(self._kit, weights, call.weights)
        key = (f"{model} {call.code} {call.weights}", call.repetitions)
        if self._own is None or self._own[0] != key:
            numbers: list[Repetition | None] = [None, *range(call.repetitions)]
            parts = model_parts(self._data, model)
            federation = SimulatedFederation(
                dict.fromkeys(numbers, self._data),
                parts,
                device=self._settings.data.device,
                # The coordinator chooses the seeds of requests; it must not know the batches.
                secrets={self._settings.participant: self._stream_secret},
            )
            self._own = None  # if restoring fails, this federation must not be used
            self._kept.load(federation)
            self._own = (key, federation)
        federation = self._own[1]
        if schema_digest(federation.schema) != call.schema_is:
            raise SettingsError("the coordinator's network has other parameters than the one here")
        return federation

    def _checkpoint(self, call: Call) -> None:
        """Keep a copy of a method's memory beside a checkpoint, or go back to it."""
        if not self._follow(self._federation(call), call):
            raise SettingsError(
                "nothing was kept here at that checkpoint; its layers start from scratch"
            )

    def _delivered(self, call: Call) -> dict[Participant, Reply | Failure]:
        """Choose one of the models that were sent, and keep it for the organisation.

        Which one is told as far as the limits allow an evaluation: it is one of validation data.
        """
        federation, requests = self._ready(call)
        self._follow(federation, call)
        model = model_here(self._kit, call.model, call.code)
        own = {name: one for name, one in requests.items() if isinstance(one, Deliver)}
        choice = choose_at_home(federation, own)
        for text in choice.dropped:
            self._log.warning("a model that was sent for run %s is not used: %s", call.run, text)
        sent = own[choice.trained]
        card = ModelCard.of(
            self._data,
            self._settings.participant,
            method=choice.name.method,
            seed=int(choice.trained.repetition or 0),
            chosen_round=next(
                one.round for one in sent.candidates if one.method == choice.name.method
            ),
            model=model,
            options=model_options(self._data, model),
            share=choice.name.share,
        )
        state = federation.whole_state(choice.trained, choice.parameters)
        keep_model(self._models, self._sealed_models, call.run, state, card)
        self._log.info("keeps the model of run %s: %s", call.run, card.delivered)
        replies = dict(choice.replies)
        if not self._guard.tells_choice(own.values()):
            replies = _untold(own)
            # Evaluations of other splits would tell which one it is: it stays in its file.
            federation.silo_memory(choice.trained).slots.pop(DELIVERED, None)
        self._kept.save(federation, owner_of(DELIVERED))
        return dict(replies)

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
            digest=_keyed_hash(data, self._state, b"digest").hex()[:32],
            single_updates=self._settings.limits.single_updates,
            noisy=self._settings.privacy.noisy,
            rounds_per_day=self._settings.limits.rounds_per_day,
            loader=self._loader,
        )


def _untold(asked: Collection[Participant]) -> dict[Participant, Delivered]:
    """Return replies that are the same whichever model, of whichever repetition, was chosen."""
    first = next(iter(asked))
    return {one: Delivered(kept=one == first) for one in asked}


def stream_secret(data: SiloedData, state: Path) -> bytes:
    """Return the secret from which a silo draws batches and noise.

    It changes with the data: were the same noise added to answers about two versions of the data,
    their difference would tell what changed.
    """
    return _keyed_hash(data, state, b"streams")


def _keyed_hash(data: SiloedData, state: Path, purpose: bytes) -> bytes:
    """Return a hash of the data under the secret in `state`, which never leaves the silo."""
    content = hmac.new(owner_secret(state / SECRET_FILE), purpose, hashlib.sha256)
    for array in data.samples.arrays:
        content.update(np.ascontiguousarray(array).data)
    content.update(np.concatenate([[*data.silos[0].sizes], data.silos[0].all]).data)
    return content.digest()


class _OneLine(logging.Formatter):
    """Escapes control characters: text from a caller must not look like a line of the log."""

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

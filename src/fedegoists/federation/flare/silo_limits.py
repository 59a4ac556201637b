"""The limits of a silo: which requests it refuses, and how it protects every reply."""

import datetime
import fcntl
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from fedegoists.errors import FedEgoistsError, SettingsError
from fedegoists.federation.batches import share_of
from fedegoists.federation.flare.messages import SETTING_UP, Call, SiloRequest, unmasked
from fedegoists.federation.flare.privacy_ledger import BudgetError, PrivacyEntry, PrivacyLedger
from fedegoists.federation.flare.silo_settings import SiloSettings
from fedegoists.federation.gradient_privacy import SHORTEST, cipher_normals
from fedegoists.federation.privacy_loss import NoisyAnswers
from fedegoists.federation.replies import Reply, Trained
from fedegoists.federation.requests import (
    AddPrior,
    Deliver,
    Describe,
    Evaluate,
    Gradient,
    OfModels,
    Train,
)
from fedegoists.federation.secure_sums.sum_requests import MaskedTrain
from fedegoists.files import private_folder, write_bytes
from fedegoists.learning.parameters import ParameterSchema

ALWAYS = ("about", "remember", "recall", "deliver", *SETTING_UP, "unmask", "take")
"""Calls that are not among the operations of a silo.toml: they reveal nothing of any sample, but
for deliveries, see `SiloGuard.tells_choice`."""


ALLOWED_AS = {"masked_train": "train", "add_prior": "describe"}
"""What has to be among the operations of a silo.toml for calls of another name."""


ROUNDS, EVALUATIONS = "rounds", "evaluations"
COUNTED = (ROUNDS, EVALUATIONS)
"""The kinds of answers with a daily limit."""


MOST_DRAWS = 100_000_000
"""Samples that one round of training may draw: all their indices are in memory at once."""


class RefusedError(FedEgoistsError):
    """A call that the silo's organisation does not allow."""


class SiloGuard:
    """Applies the limits and the privacy settings of a ``silo.toml``.

    Parameters
    ----------
    state : Path
        The folder in which answers are counted.
    sizes : mapping of str to int
        Samples in each split.
    groups : mapping of str to int, optional
        Groups of samples in each split, such as patients, where samples have groups.
    """

    def __init__(
        self,
        settings: SiloSettings,
        state: Path,
        sizes: Mapping[str, int],
        groups: Mapping[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._counted = state / "rounds.json"
        privacy = settings.privacy
        self.ledger = PrivacyLedger(state, privacy.epsilon, privacy.delta)
        self._sizes, self._groups = dict(sizes), dict(groups or sizes)

    def admit(self, caller: str, call: Call) -> None:
        """Let a call pass, or raise `RefusedError` with the reason.

        Only the coordinator may call: another silo's certificate opens nothing here. What answers
        cost is another question: see `charge`.
        """
        limits = self._settings.limits
        if caller != "server":
            raise RefusedError("only the coordinator may ask")
        if call.operation == "about":
            return
        operation = ALLOWED_AS.get(call.operation, call.operation)
        if operation not in (*ALWAYS, *limits.operations) and not _tells_nothing(call):
            raise RefusedError(f"{call.operation} is not among the operations allowed here")
        base = call.model.partition("(")[0]  # without its settings
        if limits.models is not None and not {call.model, base} & set(limits.models):
            raise RefusedError("this network is not among those allowed here")
        if call.operation in ALWAYS:
            return
        self._check_single(call)
        for one in call.asked:
            self._check_terms(unmasked(one.request))
            self._check_size(unmasked(one.request))

    def charge(self, requests: Iterable[SiloRequest]) -> None:
        """Count answers that are about to be made, and enter what they cost into the ledger.

        Raises
        ------
        RefusedError
            If they are more than a daily limit or the privacy budget allows.
        """
        asked, limits = [unmasked(request) for request in requests], self._settings.limits
        counts = dict.fromkeys(COUNTED, 0)
        for request in asked:
            for kind in self._counts_as(request):
                if isinstance(request, OfModels) and not isinstance(request, Deliver):
                    counts[kind] += len(request.rows)
                else:  # of all its candidates, a delivery tells of one
                    counts[kind] += 1
        entries = [entry for request in asked for entry in self._entries(request)]
        self._count(counts, (limits.rounds_per_day, limits.evaluations_per_day))
        try:
            self.ledger.charge(entries)
        except BudgetError as error:
            raise RefusedError(str(error)) from None

    def check_personal(self, schema: ParameterSchema, requests: Iterable[SiloRequest]) -> None:
        """Refuse requests whose answers, or sums with them, would have parameters that stay here.

        Otherwise it would be the coordinator that says which parameters are personal.

        Raises
        ------
        RefusedError
            If parameters of `limits.personal` are not personal in a request.
        SettingsError
            If the network has no such parameters.
        """
        prefixes = self._settings.limits.personal
        if not prefixes:
            return
        try:
            stays = schema.mask(prefixes)
        except SettingsError as error:
            raise SettingsError(f"limits.personal in silo.toml: {error}") from None
        for request in requests:
            asked = unmasked(request)
            if not isinstance(asked, Train | Gradient | AddPrior):
                continue
            kept: tuple[str, ...] = ()
            if asked.personal is not None:
                masked = isinstance(request, MaskedTrain)
                kept = asked.personal.withheld if masked else asked.personal.prefixes
            if bool((stays & ~schema.mask(kept)).any()):
                raise RefusedError(
                    f"{', '.join(prefixes)} never leaves here (limits.personal in silo.toml), and "
                    f"{request.operation} does not keep it here: set training.personal"
                )

    def tells_choice(self, requests: Iterable[Deliver]) -> bool:
        """Return whether the silo tells which of some models its validation data prefers.

        It counts as an evaluation of validation data without noise. A silo that adds noise to
        evaluations, or has answered as many as it may, keeps its choice to itself.
        """
        if self._settings.privacy.evaluation_noise:
            return False
        if "evaluate" not in self._settings.limits.operations:
            return False
        try:
            self.charge(requests)
        except RefusedError:
            return False
        return True

    def _entries(self, request: SiloRequest) -> list[PrivacyEntry]:
        """Return what an answer tells of single samples, for the ledger.

        Answers without noise are entered, too, so that the ledger does not promise anything. Steps
        of training draw samples of their own, unless a method uses a batch several times. The part
        of the data in an evaluation is the caller's choice: nothing is gained by sampling there.
        """
        carried_out = self.clipped(request)
        if isinstance(carried_out, Train):
            settings, (size, _) = carried_out.settings, self._samples(carried_out)
            inner = 1 if carried_out.terms is None else carried_out.terms.inner_steps
            inner = min(inner, settings.steps)
            rate = min(settings.batch_size, size) / size if settings.noise else 1.0
            answers = NoisyAnswers(settings.noise, rate, -(-settings.steps // inner))
            return [PrivacyEntry("train", "train", answers.together(inner))]
        if isinstance(carried_out, Gradient):
            asked, size = self._samples(carried_out)
            rate = asked / size if carried_out.noise else 1.0
            answers = NoisyAnswers(carried_out.noise, rate).together(len(carried_out.rows))
            return [PrivacyEntry(carried_out.split, "loss_and_gradient", answers)]
        if isinstance(carried_out, Evaluate):
            answers = NoisyAnswers(carried_out.noise, 1.0, len(carried_out.rows))
            return [PrivacyEntry(carried_out.split, "evaluate", answers)]
        if isinstance(carried_out, Describe | AddPrior):
            return [PrivacyEntry("train", "describe", NoisyAnswers(carried_out.noise))]
        if isinstance(carried_out, Deliver):
            return [PrivacyEntry("validation", "evaluate", NoisyAnswers(0.0))]
        return []

    def _check_single(self, call: Call) -> None:
        """Refuse what would show an update of this silo alone, where its limits do not consent.

        Nothing is shown where all parameters are personal: the reply is all zeros. But terms about
        representations show something in any case: their shift, and a loss at vectors that the
        caller chooses.
        """
        if self._settings.limits.single_updates:
            return
        if any(_represents(unmasked(one.request)) for one in call.asked):
            raise RefusedError(
                "terms about representations show those of this silo alone, and "
                "limits.single_updates is false here: only sums of several members leave"
            )
        for request in (one.request for one in call.asked):
            personal = request.personal if isinstance(request, Train | Gradient) else None
            stays = personal is not None and "" in personal.prefixes
            if isinstance(request, Train | Gradient) and not stays:
                raise RefusedError(
                    f"{call.operation} shows an update of this silo alone, and "
                    "limits.single_updates is false here: only sums of several members leave"
                )

    def _check_terms(self, request: SiloRequest) -> None:
        """Refuse terms about representations where answers are clipped or have noise.

        Before anything is charged: the training itself could not limit what one sample changes of
        them, and what silos tell of representations would be clipped or noisy itself.
        """
        carried_out = self.clipped(request)
        if not (_represents(request) and isinstance(carried_out, Train)):
            return
        privacy, settings = self._settings.privacy, carried_out.settings
        clips = (settings.clip, privacy.gradient_clip, privacy.update_clip)
        if settings.noise or any(clip is not None for clip in clips):
            raise RefusedError(
                "terms about representations tell means over samples, and answers are clipped or "
                "have noise here; use another method, or no privacy"
            )

    def _check_size(self, request: SiloRequest) -> None:
        """Refuse answers about so few samples that they tell of single ones."""
        if isinstance(request, Train):
            split, settings = "train", request.settings
            part, size = self._samples(request)
            batch = min(settings.batch_size, part)
            private = max(settings.noise, self._settings.privacy.train_noise) > 0
            if settings.steps * (part if private else batch) > MOST_DRAWS:
                raise RefusedError(f"{settings.steps} steps are more than there is memory for")
        elif isinstance(request, Gradient | Evaluate):
            split = request.split
            batch, size = self._samples(request)
            privacy = self._settings.privacy
            hidden = privacy.gradient_clip is not None and not privacy.evaluation_noise
            if isinstance(request, Evaluate) and hidden and self._is_partial(request):
                raise RefusedError("losses of a part of the data are hidden here")
        elif isinstance(request, Describe):
            if request.direction and self._settings.privacy.count_noise:
                raise RefusedError(
                    "the direction in which samples vary most cannot be told with noise here"
                )
            return
        else:
            return
        if request.share is not None and not isinstance(request, Gradient):
            # Whole groups are drawn, each of at least one sample.
            size = self._groups[split]
            batch = min(batch, share_of(size, request.share, None) or size)
        fewest = min(self._settings.limits.fewest_samples, size // 2)
        if batch < fewest:
            raise RefusedError(f"{batch} of {size} {split} samples; here at least {fewest}")

    def _counts_as(self, request: SiloRequest) -> set[str]:
        """Return which daily limits an answer counts for.

        An answer about training samples, or about some that the caller chooses, is a round. One
        about more than half of the validation or test data is an evaluation, or also one: nearly
        all of them tell as much as all. A gradient there is both.
        """
        if isinstance(request, Train):
            return {ROUNDS}
        if isinstance(request, Deliver):
            return {EVALUATIONS}
        kinds = set()
        if isinstance(request, Gradient | Evaluate):
            asked, size = self._samples(request)
            if isinstance(request, Gradient) or self._is_partial(request):
                kinds.add(ROUNDS)
            if request.split != "train" and (isinstance(request, Gradient) or 2 * asked > size):
                kinds.add(EVALUATIONS)
        return kinds

    def _is_partial(self, request: Evaluate) -> bool:
        """Return whether losses are of training samples, or of some that the caller chooses."""
        asked, size = self._samples(request)
        return request.split == "train" or asked < size

    def _samples(self, request: Train | Gradient | Evaluate) -> tuple[int, int]:
        """Return how many samples an answer is about, and how many there are."""
        size = self._sizes["train" if isinstance(request, Train) else request.split]
        batch = request.batch_size if isinstance(request, Gradient) else None
        return min(share_of(size, request.share, batch) or size, size), size

    def _count(self, asked: Mapping[str, int], most: tuple[int | None, ...]) -> None:
        """Count answers with a limit; refuse, without counting, those above it."""
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
        """Return today's counts; refuse if they cannot be read."""
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
        """Keep other jobs, which are other processes, from counting at the same time."""
        private_folder(self._counted.parent)
        with self._counted.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def clipped(self, request: SiloRequest) -> SiloRequest:
        """Return a request as it is carried out: with clipping and noise at least as the silo says.

        The noise is drawn from a secret of the silo, see `SimulatedFederation`.
        """
        privacy = self._settings.privacy
        if isinstance(request, MaskedTrain):
            return request.changed(train=self.clipped(request.train))
        if isinstance(request, Train):
            settings = request.settings
            clip = _smaller(settings.clip, privacy.train_clip)
            noise = max(settings.noise, privacy.train_noise)
            if (clip, noise) == (settings.clip, settings.noise):
                return request
            return request.changed(settings=settings.changed(clip=clip, noise=noise))
        if isinstance(request, Gradient):
            clip = _smaller(request.clip, privacy.gradient_clip)
            return request.changed(noise=max(request.noise, privacy.gradient_noise), clip=clip)
        if isinstance(request, Evaluate):
            bound = _smaller(request.bound, privacy.loss_bound)
            return request.changed(noise=max(request.noise, privacy.evaluation_noise), bound=bound)
        if isinstance(request, Describe | AddPrior):
            return request.changed(noise=max(request.noise, privacy.count_noise))
        return request

    def leaving(self, request: SiloRequest, reply: Reply, schema: ParameterSchema) -> Reply:
        """Return a reply as it may leave.

        Parameters
        ----------
        request : Request
            As it was sent.
        """
        privacy = self._settings.privacy
        if not (isinstance(reply, Trained) and isinstance(request, Train)):
            return reply
        if privacy.update_clip is not None or privacy.gradient_clip is not None:
            # Momentum and shift are made of gradients that nothing was done to: they stay here.
            reply = reply.changed(momentum=None, shift=None)
        if privacy.update_clip is None:
            return reply
        prefixes = request.personal.prefixes if request.personal is not None else ()
        personal, start = schema.mask(prefixes), request.tensors
        return reply.changed(
            **{
                name: _bounded(
                    start[name], value, personal, privacy.update_clip, privacy.update_noise
                )
                for name, value in (("parameters", reply.parameters), ("anchor", reply.anchor))
                if value is not None
            }
        )


def _tells_nothing(call: Call) -> bool:
    """Return whether a call only changes models that stay in the silo, by its own label shares."""
    stay = [isinstance(one.request, AddPrior) and one.request.stays for one in call.asked]
    return all(stay) and bool(stay)


def _represents(request: SiloRequest) -> bool:
    """Return whether a request has terms about representations."""
    terms = request.terms if isinstance(request, Train) else None
    return terms is not None and terms.representation is not None


def _smaller(one: float | None, other: float | None) -> float | None:
    """Return the stricter of two limits."""
    return min((limit for limit in (one, other) if limit is not None), default=None)


def _bounded(start: Tensor, trained: Tensor, personal: Tensor, clip: float, noise: float) -> Tensor:
    """Shorten the change that training made, and add noise; personal entries stay zeros."""
    update = (trained.cpu() - start.cpu()).masked_fill(personal, 0.0)
    update = update * (clip / update.norm().clamp_min(SHORTEST)).clamp_max(1.0)
    if noise:
        update = update + _noise(update, noise * clip)
    bounded: Tensor = (start.cpu() + update).masked_fill(personal, 0.0)
    return bounded


def _noise(like: Tensor, spread: float) -> Tensor:
    return (spread * cipher_normals(secrets.token_bytes(32), like.numel())).reshape(like.shape)

"""The part of a silo's service that masks what the silo adds to sums."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from cryptography import x509
from torch import Tensor

from fedegoists.federation.flare.kit_identity import fingerprint, spoken
from fedegoists.federation.flare.messages import SiloRequest
from fedegoists.federation.flare.silo_secret import STATE_FOLDER, silo_key
from fedegoists.federation.flare.silo_settings import SiloSettings
from fedegoists.federation.flare.upload_memory import UploadMemory
from fedegoists.federation.mixing import VectorName, contribution, mixture, summed_names
from fedegoists.federation.participant import Participant
from fedegoists.federation.replies import Kept, Reply, Trained
from fedegoists.federation.requests import Train
from fedegoists.federation.seam import Failure
from fedegoists.federation.secure_sums.agreed_training import (
    agreed_seed,
    company_of,
    noise_length,
    training_digest,
)
from fedegoists.federation.secure_sums.fixed_point import (
    OutOfRangeError,
    as_ring,
    as_tensor,
    decode,
    encode,
)
from fedegoists.federation.secure_sums.peer_identity import PeerIdentity
from fedegoists.federation.secure_sums.silo_sums import SiloSums
from fedegoists.federation.secure_sums.sum_messages import (
    Agreement,
    Roster,
    SumError,
    SumPolicy,
    UnmaskOrder,
)
from fedegoists.federation.secure_sums.sum_requests import (
    Advertise,
    Advertised,
    Join,
    MaskedTrain,
    MaskedTrained,
    Offer,
    Offered,
    TakeMixture,
    Unmask,
    Unmasked,
)
from fedegoists.federation.silo_mixing import (
    TrainedAtHome,
    added_vectors,
    start_digest,
    take_mean,
    train_at_home,
    with_noise,
)
from fedegoists.federation.simulated_federation import SimulatedFederation
from fedegoists.files import read_text, write_bytes
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.sealed_files import derived_key

MOST_UPLOADS = 200
"""Uploads that may wait for the order to unmask their sums."""

PEERS_FILE = "peers.json"
"""The fingerprints of members' keys, as seen last."""

Leaving = Callable[[Train, Trained], Trained]
"""Returns a reply as a silo's privacy settings let it leave."""


@dataclass(frozen=True)
class _Upload:
    """What a silo has added to the sums of an agreement.

    Attributes
    ----------
    start : str
        The hash of the model it has trained from.
    plain, repeated : bool
        Whether its part has no noise, and whether it was in the same company before.
    """

    agreement: Agreement
    start: str
    plain: bool
    repeated: bool


@dataclass(frozen=True)
class _Pending:
    """A round of training at home whose mean has not come back yet."""

    agreement: Agreement
    trained: TrainedAtHome


class SiloMasking:
    """A silo's part in secure sums; its keys are in memory only.

    Parameters
    ----------
    kit : Path
        The folder with the silo's certificate.
    """

    def __init__(self, kit: Path, settings: SiloSettings, log: logging.Logger) -> None:
        self._kit, self._log = kit, log
        limits = settings.limits
        self._policy = SumPolicy(fewest=limits.fewest_members, largest_weight=limits.largest_weight)
        self._known: SiloSums | None = None
        self._pending: dict[Participant, _Pending] = {}
        self._memory = UploadMemory(kit, log)
        self._noise_key = silo_key(kit, "noise of repeated sums")
        self._uploads: dict[str, _Upload] = {}

    @property
    def _sums(self) -> SiloSums:
        if self._known is None:
            self._known = SiloSums(PeerIdentity.of_kit(self._kit), self._policy)
        return self._known

    def answered(
        self, requests: Mapping[Participant, SiloRequest]
    ) -> dict[Participant, Reply | Failure]:
        """Answer requests that need neither data nor models."""
        return {
            name: self._unless_refused(name, request, partial(self._answer, request))
            for name, request in requests.items()
        }

    def _answer(self, request: SiloRequest) -> Reply:
        if isinstance(request, Advertise):
            if self._known is not None:  # certificates may have been revoked or renewed meanwhile
                self._known.identity = PeerIdentity.of_kit(self._kit)
            return Advertised(keys=self._sums.advertise(request.purpose))
        if isinstance(request, Join):
            offer = self._sums.join(request.roster)
            self._note_peers(request.roster)
            return Offered(offer=offer)
        if isinstance(request, Offer):
            return Offered(offer=self._sums.offer(request.session, request.number))
        assert isinstance(request, Unmask)
        self._check_survivors(request.order)
        return Unmasked(shares=self._sums.unmasked(request.order))

    def _check_survivors(self, order: UnmaskOrder) -> None:
        """Refuse to unmask a round again with other members; remember who is in this one.

        Enough members know of the first time: those who gave shares then are more than two thirds.
        """
        upload = self._uploads.get(order.agreement)
        if upload is None:
            return  # of a session that is over
        agreed, left = (
            company_of(upload.agreement, self._sums.site, present)
            for present in (None, order.survivors)
        )
        if agreed != left:
            if upload.plain and upload.repeated:
                raise SumError(
                    "the round was carried out before with other members: the difference of the "
                    "two sums would tell their models"
                )
            self._memory.note(upload.start, left, first=upload.plain)

    def _note_peers(self, roster: Roster) -> None:
        """Log the fingerprint of each peer's key when it is new or has changed.

        The coordinator's authority could make certificates in the names of members. What it cannot
        do unnoticed is to use them: members can compare fingerprints.
        """
        path = self._kit / STATE_FOLDER / PEERS_FILE
        try:
            known = dict(json.loads(read_text(path))) if path.is_file() else {}
        except ValueError:
            self._log.warning("%s cannot be read: the keys of members count as new", path.name)
            known = {}
        found = {
            peer.site: fingerprint(x509.load_pem_x509_certificate(peer.certificate.encode()))
            for peer in roster.peers
        }
        for site, digits in found.items():
            if site not in known:
                self._log.info("first sum with %s, whose key is %s", site, spoken(digits))
            elif known[site] != digits:
                self._log.warning(
                    "%s has another key than before: %s instead of %s; if it has not renewed its "
                    "certificate, somebody else may speak in its name",
                    site,
                    spoken(digits),
                    spoken(str(known[site])),
                )
        if {**known, **found} != known:
            content = json.dumps({**known, **found}, indent=2).encode()
            write_bytes(path, content, private=True)

    def refused(
        self, schema: ParameterSchema, requests: Mapping[Participant, SiloRequest]
    ) -> dict[Participant, Failure]:
        """Return the requests whose agreement is not acceptable, before anything is computed."""
        failures: dict[Participant, Failure] = {}
        for name, request in requests.items():
            if isinstance(request, MaskedTrain):
                try:
                    own = training_digest(schema, request.train, request.bound)
                    if own != request.agreement.training:
                        raise SumError("the training is another one than agreed with all members")
                    self._check_kept(request)
                    self._sums.check(request.agreement, request.sealed)
                except SumError as error:
                    failures[name] = self._refusal(name, request, error)
        return failures

    def _check_kept(self, request: MaskedTrain) -> None:
        """Refuse to add a model that is kept at home to a sum that the server can read.

        Members do not compare what such models start from. A server could have all others but one
        start from models that cannot learn, and read the last one's model from the sum.
        """
        personal, site = request.train.personal, self._sums.site
        shown = any(one.receiver is None and site in one.members for one in request.agreement.sums)
        if personal is not None and personal.whole and shown:
            raise SumError("a model that stays in its silo has no part in a sum that is shown")

    def trained(
        self,
        federation: SimulatedFederation,
        requests: Mapping[Participant, MaskedTrain],
        leaving: Leaving,
    ) -> dict[Participant, Reply | Failure]:
        """Train, and return what may leave of it, under masks."""
        trained = train_at_home(
            federation,
            {
                name: one.train.changed(seed=agreed_seed(one.train, one.agreement))
                for name, one in requests.items()
            },
        )
        result: dict[Participant, Reply | Failure] = {}
        for name, one in trained.items():
            if isinstance(one, Failure):
                result[name] = one
                continue
            result[name] = self._unless_refused(
                name,
                requests[name],
                partial(self._under_masks, federation, name, requests[name], one, leaving),
            )
        return result

    def _under_masks(
        self,
        federation: SimulatedFederation,
        name: Participant,
        request: MaskedTrain,
        trained: TrainedAtHome,
        leaving: Leaving,
    ) -> MaskedTrained:
        sums, agreement = self._sums, request.agreement
        reply = leaving(trained.request, trained.reply)
        added, norm = added_vectors(federation, trained, request.bound, reply)
        added = self._in_company(federation, agreement, trained, added)
        whole = contribution(added).cpu().double()
        encoded = {
            index: encode(whole, one.weights[one.members.index(sums.site)], agreement.bits)
            for index, one in enumerate(agreement.sums)
            if sums.site in one.members
        }
        masked, offer = sums.masked(agreement, request.sealed, encoded)
        self._pending.pop(name, None)
        if trained.kept is not None:
            self._pending[name] = _Pending(agreement, trained)
        return MaskedTrained(
            loss=reply.loss,
            sample_passes=reply.sample_passes,
            norm=norm,
            masked=tuple(as_tensor(masked[index]) for index in sorted(masked)),
            offer=offer,
        )

    def _in_company(
        self,
        federation: SimulatedFederation,
        agreement: Agreement,
        trained: TrainedAtHome,
        added: dict[VectorName, Tensor],
    ) -> dict[VectorName, Tensor]:
        """Return what the silo adds: with noise where it trained from this model in other company.

        Otherwise the difference of the sums would tell the model of a member that is in only one.
        In the first company there is never noise, so that a round can be repeated exactly.
        """
        start, site = start_digest(federation, trained), self._sums.site
        company = company_of(agreement, site)
        known = self._memory.companies(start)
        plain = company in known[:1] or not known
        self._memory.note(start, company)
        upload = _Upload(agreement, start, plain, company in known)
        self._uploads = dict([*self._uploads.items()][-MOST_UPLOADS:])
        self._uploads[agreement.digest] = upload
        if plain:
            return added
        self._log.info("trains from the same model in other company: adds noise to its part")
        length = noise_length(len(set(known) - {company}), len(agreement.sites))
        key = derived_key(self._noise_key, f"{start} {company}")
        return with_noise(federation, trained, added, length, key)

    def taken(
        self, federation: SimulatedFederation, requests: Mapping[Participant, SiloRequest]
    ) -> tuple[dict[Participant, Reply | Failure], set[str]]:
        """Make means that only this silo can read its next models.

        Returns
        -------
        tuple
            The replies, and the slots that have changed.
        """
        slots = {
            pending.trained.kept.slot
            for name in requests
            if (pending := self._pending.get(name)) is not None and pending.trained.kept is not None
        }
        replies = {
            name: self._unless_refused(
                name, request, partial(self._taken, federation, name, request)
            )
            for name, request in requests.items()
        }
        return replies, slots

    def _taken(
        self, federation: SimulatedFederation, name: Participant, request: SiloRequest
    ) -> Kept:
        assert isinstance(request, TakeMixture)
        pending = self._pending.get(name)
        if pending is None or pending.agreement.digest != request.agreement:
            raise SumError("no training at home waits for this mean")
        agreement, trained, schema = pending.agreement, pending.trained, federation.schema
        ring = as_ring(request.total)
        total = self._sums.unblinded(agreement, request.index, request.survivors, ring)
        one = agreement.sums[request.index]
        share = one.share(request.survivors)
        if not share > 0:
            raise SumError("a mean without contributors")
        names = summed_names(trained.request)
        if len(total) != len(names) * schema.size:
            raise SumError("a mean of another length")
        means = mixture(schema, names, decode(total, agreement.bits), share)
        del self._pending[name]
        rounded = {vector: values.float() for vector, values in means.items()}
        if not all(bool(torch.isfinite(values).all()) for values in rounded.values()):
            raise SumError("a mean that is not finite")
        take_mean(federation, name, trained, rounded, request.step)
        return Kept()

    def _unless_refused(
        self, name: Participant, request: SiloRequest, answer: Callable[[], Reply]
    ) -> Reply | Failure:
        try:
            return answer()
        except OutOfRangeError as error:
            return Failure(name, "not finite", str(error))
        except SumError as error:
            return self._refusal(name, request, error)

    def _refusal(self, name: Participant, request: SiloRequest, error: SumError) -> Failure:
        self._log.warning("refused %s in a masked sum: %s", request.operation, error)
        return Failure(name, "refused", str(error)[:400])

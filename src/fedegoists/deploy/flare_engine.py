"""The engine ``flare``: silos at their organisations, reached over NVIDIA FLARE."""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.engine import SiloAccess, Work
from fedegoists.deploy.membership import issued
from fedegoists.errors import FedEgoistsError, FileError, SettingsError
from fedegoists.federation.flare.flare_federation import FlareFederation, ask_about
from fedegoists.federation.flare.job_operator import JobLostError, Operator, UnreachableError
from fedegoists.federation.flare.messages import About
from fedegoists.federation.flare.relay_connection import Recorder, RelayConnection
from fedegoists.federation.flare.signed_calls import CallSigner
from fedegoists.learning.data import SplitSizes
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.own_models import file_digest, is_own, model_parts, travelling_name
from fedegoists.sealed_files import SealError, read_sealed_text, write_sealed_text

Result = TypeVar("Result")

ABOUT_ALL = TypeAdapter(dict[str, About])


class SilosAwayError(UnreachableError):
    """Silos without which a run cannot begin are away, and may come back."""


class FlareEngine:
    """Connected silos that have started their kits.

    Parameters
    ----------
    settings : ConsortiumSettings
        Its section ``deploy`` says how long to wait.
    access : SiloAccess
        The coordinator's kit and the participants. Silos that are away but described in its
        ``memory``, or in `known`, still take part.
    known : mapping of str to About, optional
        The silos' descriptions of themselves, from earlier in the same run.
    record : callable, optional
        Called with every message that is sent or received.
    """

    local = False

    def __init__(
        self,
        settings: ConsortiumSettings,
        access: SiloAccess,
        known: Mapping[str, About] | None = None,
        record: Recorder | None = None,
    ) -> None:
        if settings.competition.published:
            raise SettingsError(
                "competition.published needs the data set here; name the pairs instead"
            )
        if access.kit is None:
            raise SettingsError("the engine flare needs the coordinator's kit; give its folder")
        self._masked = settings.deploy.secure_sums == "auto"
        self.operator = Operator(access.kit)
        sites = _sites(self.operator.deployment.sites, access.participants)
        self.link = RelayConnection(
            self.operator,
            tuple(sites.values()),
            signer=CallSigner(access.kit, access.run),
            run=access.run,
            deadline=settings.deploy.deadline,
            wait=settings.deploy.wait,
            record=record,
            tell=access.progress.message,
        )
        try:
            earlier = {**_remembered(access.memory), **(known or {})}
            if access.required:
                needed = {name: site for name, site in sites.items() if name not in earlier}
                self._wait_for(needed, access, min(settings.deploy.wait, access.patience))
            self.link.open()
            answered = {**earlier, **ask_about(self.link, sites)}
            self.about = {name: answered[name] for name in sites if name in answered}
            self.sites = {name: sites[name] for name in self.about}
            self.absent = tuple(name for name in sites if name not in self.about)
            if self.absent and access.required:
                raise _away(access.kit, {name: sites[name] for name in self.absent})
            self.data = described(settings.data.source, self.about)
        except UnreachableError as error:
            self.close()
            if self.operator.accepted and not isinstance(error, SilosAwayError):
                raise JobLostError(str(error)) from None
            raise
        except BaseException:
            self.close()
            raise
        if access.memory is not None:
            write_sealed_text(access.memory, ABOUT_ALL.dump_json(self.about).decode())

    def _wait_for(self, needed: Mapping[str, str], access: SiloAccess, seconds: float) -> None:
        """Wait for silos that have not described themselves yet, before a job starts."""
        assert access.kit is not None
        for patience in (0.0, seconds):  # what waiting cannot mend is refused at once
            missing = self.operator.wait_for_silos(
                list(needed.values()), patience, access.progress.message
            )
            if not missing:
                return
            away = {name: site for name, site in needed.items() if site in missing}
            error = _away(access.kit, away)
            if not isinstance(error, SilosAwayError):
                raise error
        raise error

    def federation(self, model: str, repetitions: int | None = None) -> FlareFederation:
        """Return the silos with a network."""
        return FlareFederation(
            self.link,
            self.sites,
            model=model,
            options=model_options(self.data, model),
            task=self.data.task,
            parts=model_parts(self.data, model) if is_own(model) else None,
            repetitions=repetitions,
            samples={name: one.sizes[0] for name, one in self.about.items()},
            consenting=[name for name, one in self.about.items() if one.single_updates],
            masked=self._masked,
        )

    def hindrance(self, answers: int, *, models: bool = True) -> str:
        """Return why silos would not tell exact losses, and models of their own, so many a day."""
        return hindrance(self.about, answers, models=models)

    def close(self) -> None:
        """End the job and the session."""
        self.link.close()
        self.operator.close()


def hindrance(about: Mapping[str, About], answers: int, *, models: bool = True) -> str:
    """Return why some silo would not tell exact losses, and models of its own, so many in a day.

    Empty where all would. Without `models`, these may stay at home.
    """
    for name, one in about.items():
        if models and not one.single_updates:
            return f"{name} lets no model of its own leave (limits.single_updates)"
        if one.noisy:
            return f"{name} adds noise to its answers (its level of privacy)"
        if one.rounds_per_day is not None and one.rounds_per_day < answers:
            return (
                f"{name} answers {one.rounds_per_day} times a day, and {answers} answers are "
                "needed (limits.rounds_per_day)"
            )
    return ""


def described(source: str, about: Mapping[str, About]) -> DataDescription:
    """Return the description of a consortium's data from the silos' descriptions of theirs.

    Raises
    ------
    SettingsError
        If the silos' data differ in kind, or there are too few silos.
    """
    if len(about) < 2:
        raise SettingsError(f"{len(about)} silos answered; a consortium needs at least two")
    first_name, first = next(iter(about.items()))
    for name, one in about.items():
        for what in ("task", "classes", "shapes", "kinds"):
            here, there = getattr(one, what), getattr(first, what)
            if here != there:
                raise SettingsError(
                    f"{name} and {first_name} differ in {what}: {here} and {there}; all silos "
                    "need the same schema"
                )
    _check_loaders(source, about)
    digests = "\n".join(f"{name}\0{one.digest}" for name, one in about.items())
    return DataDescription(
        name=travelling_name(source) if is_own(source) else Path(source).name,
        task=first.task,
        classes=first.classes,
        sizes={name: SplitSizes(*one.sizes) for name, one in about.items()},
        shapes=tuple(tuple(shape) for shape in first.shapes),
        kinds=tuple(first.kinds),
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        description="Samples are at their organisations.",
        fingerprints={name: one.digest for name, one in about.items()},
    )


def _check_loaders(source: str, about: Mapping[str, About]) -> None:
    """Refuse silos that load their data by another file than the coordinator's, or each other's."""
    path = Path(source.rpartition(":")[0])
    expected, whose = next((one.loader, name) for name, one in about.items())
    if is_own(source) and path.is_file():
        expected, whose = file_digest(path), "the coordinator"
    for name, one in about.items():
        if one.loader != expected:
            here, there = (digest or "none" for digest in (one.loader, expected))
            raise SettingsError(
                f"{name} loads its data by another file than {whose} (SHA-256 {here} and {there}); "
                "agree on one file, and have every silo approve it"
            )


def _away(kit: Path, sites: Mapping[str, str]) -> FedEgoistsError:
    """Return the error for silos that are away: one that ends the run if they cannot come back."""
    for name, site in sites.items():
        states = {one.state for one in issued(kit, site)}
        if states and states <= {"revoked", "expired"}:
            return SettingsError(
                f"the certificate of {name!r} is {' or '.join(sorted(states))}, so its silo cannot "
                "connect; have it renew its key (`fedegoists deploy renew`) and sign the request, "
                "or expel it and form coalitions again"
            )
    return SilosAwayError(
        f"the silo of {next(iter(sites))!r} does not answer; have it start its kit, or expel it "
        "and form coalitions again"
    )


def _sites(known: Mapping[str, str], participants: tuple[str, ...] | None) -> Mapping[str, str]:
    if participants is None:
        return known
    for name in participants:
        if name not in known:
            raise SettingsError(f"{name!r} has no kit; those of {', '.join(known)} were made")
    return {name: known[name] for name in participants}


def _remembered(path: Path | None) -> dict[str, About]:
    if path is None or not path.is_file():
        return {}
    try:
        return ABOUT_ALL.validate_json(read_sealed_text(path))
    except (SealError, ValueError) as error:
        raise FileError(f"{path}: cannot be read ({type(error).__name__}); remove it") from None


def over_silos(
    settings: ConsortiumSettings,
    access: SiloAccess,
    work: Work[Result],
    *,
    resume: bool = False,
    record: Recorder | None = None,
) -> Result:
    """Connect to the silos and do some work over them, see `EngineKind.over_silos`.

    If the server or its job is lost, wait for it and resume the work from its last checkpoint. If
    all participants are required, wait for their silos and the server also at the beginning.
    Otherwise a server that has not yet accepted a job is not waited for: the address or the kit may
    be wrong.

    Parameters
    ----------
    record
        See `FlareEngine`.
    """
    lost, reached = 0.0, access.required
    known: Mapping[str, About] = {}
    access.progress.message("waiting for the silos", waiting=True)
    while True:
        engine, began = None, time.monotonic()
        try:
            engine = FlareEngine(settings, access, known, record)
            lost, known = 0.0, engine.about
            return work(engine, resume)
        except UnreachableError as error:
            away = isinstance(error, SilosAwayError)
            lost = lost or (began if away else time.monotonic())
            resume = resume or engine is not None
            reached = reached or resume or isinstance(error, JobLostError)
            if not reached or time.monotonic() - lost > access.patience:
                raise
            then = "going on from the last checkpoint" if resume else "trying again"
            what = "it" if away else "the server"
            access.progress.message(f"{error}; waiting for {what}, then {then}", waiting=True)
            time.sleep(2.0)
        finally:
            if engine is not None:
                engine.close()

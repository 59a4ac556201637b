"""The engine ``flare``: silos at their organisations, reached over NVIDIA FLARE."""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.engine import SiloAccess, Work
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare.flare_federation import FlareFederation, ask_about
from fedegoists.federation.flare.job_operator import Operator, UnreachableError
from fedegoists.federation.flare.messages import About
from fedegoists.federation.flare.relay_connection import Recorder, RelayConnection
from fedegoists.files import read_text, write_bytes
from fedegoists.learning.data import SplitSizes
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.model_registry import model_options

Result = TypeVar("Result")

ABOUT_ALL = TypeAdapter(dict[str, About])


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
        self.operator = Operator(access.kit)
        sites = _sites(self.operator.deployment.sites, access.participants)
        self.link = RelayConnection(
            self.operator,
            tuple(sites.values()),
            run=access.run,
            deadline=settings.deploy.deadline,
            wait=settings.deploy.wait,
            record=record,
            tell=access.progress.message,
        )
        try:
            self.link.open()
            earlier = {**_remembered(access.memory), **(known or {})}
            answered = {**earlier, **ask_about(self.link, sites)}
            self.about = {name: answered[name] for name in sites if name in answered}
            self.sites = {name: sites[name] for name in self.about}
            self.absent = tuple(name for name in sites if name not in self.about)
            if self.absent and access.required:
                raise SettingsError(
                    f"the silo of {self.absent[0]!r} does not answer; have it start its kit, or "
                    "expel it and form coalitions again"
                )
            self.data = described(settings.data.source, self.about)
        except BaseException:
            self.close()
            raise
        if access.memory is not None:
            write_bytes(access.memory, ABOUT_ALL.dump_json(self.about), private=True)

    def federation(self, model: str, repetitions: int | None = None) -> FlareFederation:
        """Return the silos with a network."""
        return FlareFederation(
            self.link,
            self.sites,
            model=model,
            options=model_options(self.data, model),
            task=self.data.task,
            repetitions=repetitions,
        )

    def close(self) -> None:
        """End the job and the session."""
        self.link.close()
        self.operator.close()


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
    digests = "\n".join(f"{name}\0{one.digest}" for name, one in about.items())
    return DataDescription(
        name=Path(source).name,
        task=first.task,
        classes=first.classes,
        sizes={name: SplitSizes(*one.sizes) for name, one in about.items()},
        shapes=tuple(tuple(shape) for shape in first.shapes),
        kinds=tuple(first.kinds),
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        description="Samples are at their organisations.",
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
        return ABOUT_ALL.validate_json(read_text(path))
    except ValueError as error:
        raise FileError(f"{path}: cannot be read ({type(error).__name__}); remove it") from None


def over_silos(
    settings: ConsortiumSettings,
    access: SiloAccess,
    work: Work[Result],
    *,
    resume: bool = False,
    record: Recorder | None = None,
    patience: float = 600.0,
) -> Result:
    """Connect to the silos and do some work over them, see `EngineKind.over_silos`.

    If the server is lost, wait for it and resume the work from its last checkpoint.

    Parameters
    ----------
    record
        See `FlareEngine`.
    patience : float
        Seconds to wait for a lost server.
    """
    lost = 0.0
    known: Mapping[str, About] = {}
    while True:
        engine = None
        try:
            access.progress.message("waiting for the silos", waiting=True)
            engine = FlareEngine(settings, access, known, record)
            lost, known = 0.0, engine.about
            return work(engine, resume)
        except UnreachableError as error:
            lost = lost or time.monotonic()
            began = engine is not None or resume
            if not began or time.monotonic() - lost > patience:
                raise
            access.progress.message(
                f"{error}; waiting for the server, then going on from the last checkpoint",
                waiting=True,
            )
            resume = True
            time.sleep(2.0)
        finally:
            if engine is not None:
                engine.close()

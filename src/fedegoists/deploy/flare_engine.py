"""The engine ``flare``: a consortium's run over silos at their organisations."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.pipeline import Consortium, ConsortiumRun, Progress
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.flare_federation import FlareFederation, ask_about
from fedegoists.federation.flare.job_operator import Operator, UnreachableError
from fedegoists.federation.flare.messages import About
from fedegoists.federation.flare.relay_connection import Recorder, RelayConnection
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import model_options

__all__ = ["FlareEngine", "over_silos", "run_deployed"]

Tell = Callable[[str], None]
Result = TypeVar("Result")


class FlareEngine:
    """Silos that have started their kits.

    Parameters
    ----------
    settings : ConsortiumSettings
        Whose section ``deploy`` says how long to wait.
    kit : Path
        The coordinator's kit.
    known : mapping of str to About, optional
        What silos said of themselves earlier in the same run: who is away now still takes part.
    participants : sequence of str, optional
        Who takes part, if not everybody who has a kit: no other silo is reached.
    """

    def __init__(
        self,
        settings: ConsortiumSettings,
        kit: Path,
        *,
        run: str = "run",
        known: Mapping[str, About] | None = None,
        participants: Sequence[str] | None = None,
        record: Recorder | None = None,
        tell: Tell = lambda _: None,
    ) -> None:
        if settings.competition.published:
            raise SettingsError(
                "competition.published needs the data set here; name the pairs instead"
            )
        self.operator = Operator(kit)
        sites = _sites_of(self.operator.deployment.sites, participants)
        self.link = RelayConnection(
            self.operator,
            tuple(sites.values()),
            run=run,
            deadline=settings.deploy.deadline,
            wait=settings.deploy.wait,
            record=record,
            tell=tell,
        )
        try:
            self.link.open()
            answered = {**(known or {}), **ask_about(self.link, sites)}
            self.about = {name: answered[name] for name in sites if name in answered}
            self.sites = {name: sites[name] for name in self.about}
            self.absent = tuple(name for name in sites if name not in self.about)
            self.data = described(settings.data.source, self.about)
        except BaseException:
            self.close()
            raise
        parts = "\n".join(f"{name}\0{one.digest}" for name, one in self.about.items())
        self.digest = hashlib.sha256(parts.encode()).hexdigest()

    def federation(self, model: str, trials: int | None = None) -> FlareFederation:
        """Return the silos over the one link."""
        return FlareFederation(
            self.link,
            self.sites,
            model=model,
            options=model_options(self.data),
            task=self.data.task,
            repetitions=trials,
        )

    def close(self) -> None:
        """End the job and the session."""
        self.link.close()
        self.operator.close()


def described(source: str, about: Mapping[str, About]) -> SiloedData:
    """Return the consortium's data as far as the coordinator knows it: sizes and shapes.

    Where samples would be there are zeros; nobody trains on them here.

    Raises
    ------
    SettingsError
        If silos do not have data of one kind.
    """
    if len(about) < 2:
        raise SettingsError(f"{len(about)} silos answered; a consortium needs at least two")
    first_name, first = next(iter(about.items()))
    for name, one in about.items():
        for what in ("task", "classes", "shapes", "kinds"):
            if getattr(one, what) != getattr(first, what):
                raise SettingsError(
                    f"{name} and {first_name} differ in {what}: {getattr(one, what)} and "
                    f"{getattr(first, what)}; all silos need the same schema"
                )
    total = sum(sum(one.sizes) for one in about.values())
    inputs = tuple(
        np.broadcast_to(np.zeros(shape, np.dtype(kind)), (total, *shape))
        for shape, kind in zip(first.shapes, first.kinds, strict=True)
    )
    targets = np.zeros(total, np.float32 if first.task == "regression" else np.int64)
    silos, start = [], 0
    for name, one in about.items():
        bounds = np.cumsum([start, *one.sizes])
        parts = [np.arange(low, high) for low, high in pairwise(bounds.tolist())]
        silos.append(SiloIndices(name, *parts))
        start = int(bounds[-1])
    return SiloedData(
        Path(source).name,
        first.task,
        Samples(inputs, targets),
        tuple(silos),
        first.classes,
        "Samples are at their organisations.",
        (),
    )


def _sites_of(sites: Mapping[str, str], participants: Sequence[str] | None) -> Mapping[str, str]:
    if participants is None:
        return sites
    missing = [name for name in participants if name not in sites]
    if missing:
        raise SettingsError(f"{missing[0]!r} has no kit; those of {', '.join(sites)} were made")
    return {name: sites[name] for name in participants}


def run_deployed(
    settings: ConsortiumSettings,
    kit: Path,
    name: str | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    record: Recorder | None = None,
    tell: Tell = lambda _: None,
    patience: float = 600.0,
) -> ConsortiumRun:
    """Run a consortium over its silos, to the same folder as the simulation.

    If the server is lost, wait for it and go on from the last checkpoint.

    Parameters
    ----------
    patience : float
        Seconds to wait for a lost server.
    """

    def opened(known: Mapping[str, About]) -> FlareEngine:
        run = name or settings.name
        return FlareEngine(settings, kit, run=run, known=known, record=record, tell=tell)

    def work(engine: FlareEngine, again: bool) -> ConsortiumRun:
        return Consortium(settings, engine).run(name, resume=again, progress=progress)

    return over_silos(opened, work, resume=resume, waits=tell, patience=patience)


def over_silos(
    opened: Callable[[Mapping[str, About]], FlareEngine],
    work: Callable[[FlareEngine, bool], Result],
    *,
    resume: bool = False,
    waits: Tell = lambda _: None,
    patience: float = 600.0,
) -> Result:
    """Do something over silos; if the server is lost, wait for it and go on.

    Parameters
    ----------
    opened : callable
        Returns an engine; called with what silos said of themselves before the server was lost.
    work : callable
        Called with the engine, and whether it goes on with what was begun before.
    resume : bool
        Whether it was begun before already.
    waits : callable
        Told why one waits for the server.
    patience : float
        Seconds to wait for a lost server.
    """
    lost = 0.0
    known: Mapping[str, About] = {}
    while True:
        engine = None
        try:
            engine = opened(known)
            lost, known = 0.0, engine.about
            return work(engine, resume)
        except UnreachableError as error:
            now = time.monotonic()
            if engine is None and not resume:
                raise  # it never began
            lost = lost or now
            if now - lost > patience:
                raise
            waits(f"{error}; waiting for the server, then going on from the last checkpoint")
            resume = True
            time.sleep(2.0)
        finally:
            if engine is not None:
                engine.close()

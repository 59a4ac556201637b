"""Engines: ways to reach a consortium's silos, registered by name.

An engine is loaded only when it is used, so that listing or choosing one needs neither PyTorch nor
NVIDIA FLARE.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from fedegoists.consortium.progress import SILENT, Progress
from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.install_hints import install_command

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_settings import ConsortiumSettings
    from fedegoists.federation import StatefulFederation
    from fedegoists.learning.data_description import DataDescription

Result = TypeVar("Result")


class Engine(Protocol):
    """Connected silos of a consortium: in this process, or at their organisations."""

    local: bool
    """Whether all silos are in this process. Otherwise the run keeps secrets from them."""

    @property
    def data(self) -> "DataDescription":
        """Description of the participants' data."""

    @property
    def absent(self) -> tuple[str, ...]:
        """Participants of the consortium that cannot be reached and are left out."""

    def hindrance(self, answers: int, *, models: bool = True) -> str:
        """Return why silos would not tell exact losses, and models of their own, so many in a day.

        Empty where all would. Without `models`, these may stay at home.
        """

    def federation(self, model: str, repetitions: int | None = None) -> "StatefulFederation":
        """Return the silos that train a network; in several repetitions if asked."""


Work = Callable[[Engine, bool], Result]
"""Work over connected silos; called with True if it resumes work that was interrupted."""


@dataclass(frozen=True)
class SiloAccess:
    """Which silos a run reaches, and how.

    Attributes
    ----------
    run : str
        Name of the run in the silos' logs.
    kit : Path, optional
        The coordinator's kit, for engines that need one.
    participants : tuple of str, optional
        The participants to reach; by default all that there are.
    required : bool
        Whether all participants must answer. Otherwise absent ones are left out.
    memory : Path, optional
        File that keeps the silos' descriptions, to resume a run while a silo is away.
    patience : float
        Seconds to wait for what was lost and may come back: the server, a job and, if all
        participants are required, their silos.
    progress : Progress
        Receives messages about the connection.
    """

    run: str
    kit: Path | None = None
    participants: tuple[str, ...] | None = None
    required: bool = False
    memory: Path | None = None
    patience: float = 600.0
    progress: Progress = SILENT


class _OverSilos(Protocol):
    def __call__(
        self,
        settings: "ConsortiumSettings",
        access: SiloAccess,
        work: Work[Result],
        *,
        resume: bool = False,
    ) -> Result: ...


@dataclass(frozen=True)
class EngineKind:
    """A registered engine.

    Attributes
    ----------
    name : str
        Name on the command line and in the coordinator's database.
    where : str
        Where the silos are, for help texts.
    module : str
        Module with a function ``over_silos``, see `over_silos`.
    extras : str
        The extras of this package that it needs.
    local : bool
        Whether silos are in this process. Other engines need the coordinator's kit.
    """

    name: str
    where: str
    module: str
    extras: str
    local: bool

    def over_silos(
        self,
        settings: "ConsortiumSettings",
        access: SiloAccess,
        work: Work[Result],
        *,
        resume: bool = False,
    ) -> Result:
        """Connect to the silos, do some work over them, disconnect, and return its result.

        An engine that loses its connection may connect again and call `work` a second time, to
        resume from the last checkpoint.

        Raises
        ------
        MissingDependencyError
            If a package of the extras is not installed.
        """
        try:
            loaded: _OverSilos = import_module(self.module).over_silos
        except ImportError as error:
            raise MissingDependencyError(
                f"the engine {self.name!r} needs {error.name}: {install_command(self.extras)}"
            ) from None
        return loaded(settings, access, work, resume=resume)


ENGINES = {
    kind.name: kind
    for kind in (
        EngineKind(
            "simulation",
            "all silos on this machine",
            "fedegoists.consortium.simulated_engine",
            "train",
            local=True,
        ),
        EngineKind(
            "flare",
            "silos at their organisations, over NVIDIA FLARE",
            "fedegoists.deploy.flare_engine",
            "train,flare",
            local=False,
        ),
    )
}
"""All engines by name."""


def engine_named(name: str) -> EngineKind:
    """Return a registered engine.

    Examples
    --------
    >>> engine_named("simulation").local
    True
    """
    found = ENGINES.get(name)
    if found is None:
        raise SettingsError(f"unknown engine {name!r}; engines are {', '.join(ENGINES)}")
    return found

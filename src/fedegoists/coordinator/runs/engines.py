"""Engines: ways to reach the silos, each known by a name and loaded when it is needed."""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, cast

from fedegoists.coalitions import Formation
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.runs.run_plan import RunPlan
from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph

__all__ = [
    "ENGINES",
    "FILES",
    "HERE_ONLY",
    "Engine",
    "Progress",
    "Reach",
    "Task",
    "check_engine",
    "engine_named",
]

ENGINES = {
    "simulation": ("fedegoists.coordinator.runs.simulated_runs", "train"),
    "flare": ("fedegoists.coordinator.runs.flare_runs", "train,flare"),
}
"""The module of each engine, with what `Engine` asks for; and which extras it needs."""

FILES = "files.json"
"""In the folder of a run: under which name, without a suffix, each participant's files are."""


class Progress(Protocol):
    """Called with what is being done, how much is done, how much there is, and a remark."""

    def __call__(
        self, stage: str, done: int, total: int, remark: str, *, waiting: bool = False
    ) -> None:
        """Note it; `waiting` says that nothing is being done, but for waiting."""


@dataclass(frozen=True)
class Reach:
    """Which silos runs can reach, beside data on this machine.

    Attributes
    ----------
    kit : Path or None
        The coordinator's kit of a deployment over FLARE.
    silos : collection of str
        The participants that the deployment has kits for.
    """

    kit: Path | None = None
    silos: Collection[str] = ()

    @property
    def engines(self) -> list[str]:
        """The engines that runs can be started with."""
        return [name for name in ENGINES if name != "flare" or self.kit is not None]


HERE_ONLY = Reach()
"""Without a deployment: only simulations."""

Kind = Literal["benefit", "training"]


@dataclass(frozen=True)
class Task:
    """What an engine needs to know.

    Attributes
    ----------
    participants : names
        Who takes part; the silos must have data of each.
    competition : CompetitionGraph
        Nothing of one may be shown to the other, also while benefits are learned.
    formation : Formation or None
        The decision to train by; None while benefits are still to be learned.
    folder, name : Path, str
        Runs of the consortium are in `folder`; this one in the folder `name` in it.
    silos : Path
        Where data of silos may be.
    kit : Path or None
        The coordinator's kit, by which silos are reached over FLARE.
    begun : bool
        Whether it was worked on before.
    """

    plan: RunPlan
    participants: tuple[str, ...]
    competition: CompetitionGraph
    formation: Formation | None
    folder: Path
    name: str
    silos: Path
    kit: Path | None = None
    begun: bool = False


class Engine(Protocol):
    """What a module of an engine offers. Runs go on where they were interrupted."""

    def check(self, task: Task) -> None:
        """Refuse what cannot work, as far as it shows before silos are asked."""

    def learn(self, task: Task, progress: Progress) -> BenefitGraph:
        """Return who benefits whom."""

    def train(self, task: Task, progress: Progress) -> None:
        """Train in the coalitions, and write to the run's folder what came of it.

        ``report.html`` is for the manager; ``members/NAME.html`` and ``models/NAME.safetensors``
        are each for one participant, whose NAME is in `FILES`.
        """


def check_engine(name: str, plan: RunPlan, reach: Reach, participants: Collection[str]) -> None:
    """Refuse an engine that there is not, or that does not fit what is wanted."""
    if name not in ENGINES:
        raise SettingsError(f"unknown engine {name!r}; engines are {', '.join(reach.engines)}")
    if name not in reach.engines:
        raise ConflictError(
            "this coordinator has no deployment over FLARE: start it with --kit and the "
            "coordinator's kit that `fedegoists deploy init` wrote"
        )
    plan.check_for(name)
    missing = [one for one in participants if name == "flare" and one not in reach.silos]
    if missing:
        raise ConflictError(
            f"the deployment has no kit of {missing[0]!r}; members are called there as here. "
            "Make one with `fedegoists deploy init`, then start the coordinator again"
        )


def engine_named(name: str) -> Engine:
    """Return an engine, loaded."""
    if name not in ENGINES:
        raise SettingsError(f"unknown engine {name!r}; engines are {', '.join(ENGINES)}")
    module, extras = ENGINES[name]
    try:
        return cast("Engine", import_module(module))
    except ImportError as error:
        raise MissingDependencyError(
            f"the engine {name!r} needs {error.name}: pip install 'fedegoists[{extras}]'"
        ) from None

"""Engines: ways to reach the silos, each known by a name and loaded when it is needed."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, cast

from fedegoists.coalitions import Formation
from fedegoists.coordinator.runs.plan import RunPlan
from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph

__all__ = ["ENGINES", "FILES", "Engine", "Progress", "Task", "check_engine", "engine_named"]

ENGINES = {"simulation": "fedegoists.coordinator.runs.simulation"}
"""The module of each engine. It has `learn` and `train`; see `Engine`."""

FILES = "files.json"
"""In the folder of a run: under which name, without a suffix, each participant's files are."""

Progress = Callable[[str, int, int, str], None]
"""Called with what is being done, how much is done, how much there is, and a remark."""

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
    """

    plan: RunPlan
    participants: tuple[str, ...]
    competition: CompetitionGraph
    formation: Formation | None
    folder: Path
    name: str
    silos: Path


class Engine(Protocol):
    """What a module of an engine offers. Both go on where an interrupted run has stopped."""

    def learn(self, task: Task, progress: Progress) -> BenefitGraph:
        """Return who benefits whom."""

    def train(self, task: Task, progress: Progress) -> None:
        """Train in the coalitions, and write to the run's folder what came of it.

        ``report.html`` is for the manager; ``members/NAME.html`` and ``models/NAME.safetensors``
        are each for one participant, whose NAME is in `FILES`.
        """


def check_engine(name: str) -> None:
    """Refuse a name that no engine has."""
    if name not in ENGINES:
        raise SettingsError(f"unknown engine {name!r}; engines are {', '.join(ENGINES)}")


def engine_named(name: str) -> Engine:
    """Return an engine, loaded."""
    check_engine(name)
    try:
        return cast("Engine", import_module(ENGINES[name]))
    except ImportError as error:
        raise MissingDependencyError(
            f"the engine {name!r} needs {error.name}: pip install 'fedegoists[train]'"
        ) from None

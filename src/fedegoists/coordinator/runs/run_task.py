"""The silos that runs can reach, and everything an engine must know of a run."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fedegoists.coalitions import Formation
from fedegoists.consortium.engine import ENGINES, engine_named
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.runs.run_plan import RunOrder, RunPlan
from fedegoists.graphs import CompetitionGraph

__all__ = ["FILES", "LOCAL_ONLY", "Reach", "RunTask"]

FILES = "files.json"
"""File in the folder of a run: the name, without a suffix, of each participant's files."""


@dataclass(frozen=True)
class Reach:
    """Silos that runs can reach, beside data on this machine.

    Attributes
    ----------
    kit : Path or None
        The coordinator's kit of a deployment over FLARE.
    silos : collection of str
        Participants that have a kit in the deployment.
    """

    kit: Path | None = None
    silos: Collection[str] = ()

    @property
    def engines(self) -> list[str]:
        """Names of the engines that runs can be started with."""
        return [kind.name for kind in ENGINES.values() if kind.local or self.kit is not None]

    def check(self, order: RunOrder, participants: Collection[str]) -> None:
        """Refuse an order whose engine does not exist, or does not suit plan or participants."""
        engine = engine_named(order.engine)
        if engine.name not in self.engines:
            raise ConflictError(
                "this coordinator has no deployment over FLARE: start it with --kit and the "
                "coordinator's kit that `fedegoists deploy init` wrote"
            )
        order.plan.check_for(engine)
        missing = [one for one in participants if not engine.local and one not in self.silos]
        if missing:
            raise ConflictError(
                f"the deployment has no kit of {missing[0]!r}; members are called there as here. "
                "Make one with `fedegoists deploy init`, then start the coordinator again"
            )


LOCAL_ONLY = Reach()
"""No deployment: only simulations."""


@dataclass(frozen=True)
class RunTask:
    """Everything an engine must know of a run.

    Attributes
    ----------
    engine : str
        A name in `fedegoists.consortium.engine.ENGINES`.
    participants : tuple of str
        The silos must have data of each.
    competition : CompetitionGraph
        Competitors never see models made from one another's data, also while benefits are learned.
    formation : Formation or None
        The decision to train by; None to learn benefits.
    folder, name : Path, str
        Runs of the consortium are in `folder`; this one in the folder `name` in it.
    silos : Path
        Folder with the silos' data on this machine.
    kit : Path or None
        The coordinator's kit, for silos over FLARE.
    begun : bool
        Whether the run was interrupted before.
    """

    plan: RunPlan
    engine: str
    participants: tuple[str, ...]
    competition: CompetitionGraph
    formation: Formation | None
    folder: Path
    name: str
    silos: Path
    kit: Path | None = None
    begun: bool = False

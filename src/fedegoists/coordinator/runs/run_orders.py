"""Orders for runs, the silos that they can reach, and tasks for engines."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fedegoists.benefit.estimator_registry import ESTIMATOR_ENTRIES, check_estimator
from fedegoists.coalitions import Formation
from fedegoists.consortium.consortium_settings import TrainingSection
from fedegoists.consortium.engine import ENGINES, EngineKind, engine_named
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph
from fedegoists.learning.own_models import is_own

FILES = "files.json"
"""File in the folder of a run: the name, without a suffix, of each participant's files."""

RunKind = Literal["benefit", "training"]


class RunPlan(TrainingSection):
    """The data of a run, and how it learns benefits and trains.

    For a simulation, `source` is a folder of that name in the coordinator's ``silos`` folder, with
    one file per organisation, or else a data set that `fedegoists data list` shows. Over FLARE the
    data is where the silos have it: `source` and what belongs to it are left out.
    """

    model_config = ConfigDict(str_max_length=1000)

    # A request could otherwise fill the memory, or a device for years.
    methods: tuple[str, ...] = Field(
        default=TrainingSection.model_fields["methods"].default, min_length=1, max_length=40
    )
    steps: int | None = Field(default=None, ge=1, le=10_000_000)
    personal: tuple[str, ...] | None = Field(default=None, max_length=100)
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:[0-9]{1,2})?)$")
    settings: dict[str, dict[str, str | int | float | bool]] = Field(default={}, max_length=40)
    source: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    options: dict[str, str | int | float | bool] = Field(default={}, max_length=20)
    data_seed: int = Field(default=0, ge=0, le=2**31)
    estimator: str = "auto"
    threshold: float | None = Field(default=None, ge=0)
    repeats: int | None = Field(default=None, ge=2, le=100)
    benefit_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    patience: float = Field(default=600.0, ge=0, le=604_800)
    """Seconds to wait for silos at the beginning, and for the FLARE server at any time."""

    @field_validator("model")
    @classmethod
    def _no_file(cls, name: str) -> str:
        # A plan comes over the network; it must not name code on this machine.
        if is_own(name):
            raise ValueError(
                "a run of the coordinator takes a model by its name, not from a file; use "
                "`fedegoists run` with a consortium.toml"
            )
        return name

    @field_validator("estimator")
    @classmethod
    def _known(cls, name: str) -> str:
        return check_estimator(name, "auto")

    def check_for(self, engine: EngineKind) -> None:
        """Refuse a plan that an engine could not follow, or only in part."""
        if engine.local:
            if self.source is None:
                raise ConflictError("say which data to train on: a folder among the silos")
            if self.patience != type(self).model_fields["patience"].default:
                raise ConflictError("a simulation waits for no silo: leave out 'patience'")
            return
        for name in ("source", "options", "data_seed", "device"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ConflictError(f"over FLARE each silo has its own data: leave out {name!r}")

    def check_among(self, competition: CompetitionGraph) -> None:
        """Refuse to learn benefits by showing competitors models of one another's data.

        Raises
        ------
        ConflictError
            If there is competition and the estimator cannot respect it.
        """
        entry = ESTIMATOR_ENTRIES.get(self.estimator)
        if competition.pairs and entry is not None and entry.mingles:
            raise ConflictError(
                f"the estimator {self.estimator!r} shows all participants models made from all "
                "data, also to competitors: choose 'curves', 'transfer', 'alignment' or 'auto'"
            )

    @property
    def kept_apart(self) -> str:
        """The estimator to learn benefits by.

        The automatic one is ``transfer``, with or without competition: otherwise the choice would
        tell silos whether there is any.
        """
        return "transfer" if self.estimator == "auto" else self.estimator

    def source_in(self, silos: Path) -> str:
        """Return the folder with the silos' files where there is one, or the data set's name."""
        assert self.source is not None  # see check_for
        folder = silos / self.source
        if folder.is_dir():
            return str(folder.resolve())
        from fedegoists.learning.datasets import available

        # Any other name would be taken for a folder of where the coordinator was started.
        if self.source not in {info.name for info in available()}:
            raise SettingsError(
                f"there is no folder {self.source!r} among the silos, nor a data set of that name"
            )
        return self.source


class RunOrder(BaseModel):
    """A run to start: to learn benefits, or to train by the latest decision."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: RunKind = "training"
    engine: str = Field(default="simulation", max_length=40)
    plan: RunPlan


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
    competition : CompetitionGraph
        The participants, whose data the silos must have, and the pairs that compete. Competitors
        never see models made from one another's data, also while benefits are learned.
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
    competition: CompetitionGraph
    formation: Formation | None
    folder: Path
    name: str
    silos: Path
    kit: Path | None = None
    begun: bool = False

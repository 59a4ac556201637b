"""What a run shall do, as a manager asks for it, checked before anything runs."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedegoists.benefit.estimator_registry import ESTIMATOR_ENTRIES
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph

__all__ = ["RunPlan"]

Estimator = Literal["auto", "transfer", "hypernetwork", "pairs", "alignment"]


class RunPlan(BaseModel):
    """Where the data is, how to learn benefits and how to train.

    For a simulation, `source` is a folder of that name in the coordinator's ``silos`` folder, with
    one file per organisation, or else a data set that `fedegoists data list` shows. Over FLARE the
    data is where the silos have it: `source` and what belongs to it are left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    options: dict[str, str | int | float | bool] = Field(default={}, max_length=20)
    data_seed: int = Field(default=0, ge=0, le=2**31)
    estimator: Estimator = "auto"
    threshold: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    repeats: int | None = Field(default=None, ge=2, le=100)
    benefit_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    methods: tuple[str, ...] = Field(
        default=("local", "fedavg+ft", "fedegoists"), min_length=1, max_length=40
    )
    seeds: int = Field(default=3, ge=1, le=100)
    steps: int | None = Field(default=None, ge=1, le=10_000_000)
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:[0-9]{1,2})?)$")

    def check_for(self, engine: str) -> None:
        """Refuse a plan that an engine could not follow, or only in part."""
        if engine == "simulation":
            if self.source is None:
                raise ConflictError("say which data to train on: a folder among the silos")
            return
        for name in ("source", "options", "data_seed", "device"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ConflictError(f"over FLARE each silo has its own data: leave out {name!r}")

    @property
    def kept_apart(self) -> Estimator:
        """The estimator to learn benefits by.

        The automatic one is ``transfer``, whether anybody competes or not: were it another one
        where nobody does, silos would know.
        """
        return "transfer" if self.estimator == "auto" else self.estimator

    def check_among(self, competition: CompetitionGraph) -> None:
        """Refuse to learn benefits in a way that shows competitors models made from one another's.

        Raises
        ------
        ConflictError
            If anybody competes and the estimator cannot keep them apart.
        """
        entry = ESTIMATOR_ENTRIES.get(self.estimator)
        if competition.pairs and entry is not None and entry.mingles:
            raise ConflictError(
                f"the estimator {self.estimator!r} shows everybody models made from everybody's "
                "data, also to competitors, and there are some: choose 'transfer', 'alignment' "
                "or 'auto'"
            )

    def source_in(self, silos: Path) -> str:
        """Return the folder with the silos' files where there is one, or the data set's name."""
        assert self.source is not None  # checked when it was asked for
        folder = silos / self.source
        if folder.is_dir():
            return str(folder.resolve())
        from fedegoists.learning.datasets import available

        # Any other name would be looked for as a folder where the coordinator was started.
        if self.source not in {info.name for info in available()}:
            raise SettingsError(
                f"there is no folder {self.source!r} among the silos, nor a data set of that name"
            )
        return self.source

"""Local: every participant trains on its own data only."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from fedegoists.federation.seam import Federation
from fedegoists.methods.method import Coalitions, MethodSettings, RoundReport, State, setting
from fedegoists.methods.silo_training import emptied, momentum_slot, train_silos


@dataclass(frozen=True)
class Local(MethodSettings):
    """Train alone; the yardstick for every other method. Nothing goes to another participant.

    Attributes
    ----------
    alias : str
        Another name, where this is the fine-tuning of some other method's models.
    """

    alias: str = ""
    keep_momentum: bool = setting(False, "whether the momentum goes on over rounds")

    key: ClassVar[str] = "local"

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.alias or self.key

    def keeping_models_home(self, federation: Federation, coalitions: Coalitions) -> Self:
        """Return the method with all models left in their silos, if the federation hides any."""
        return super().keeping_models_home(federation, [[one] for g in coalitions for one in g])

    def beginning(self, initial: Tensor) -> dict[str, Tensor]:
        """Return the momentum to start with, where it is kept."""
        return {"momentum": torch.zeros_like(initial)} if self.keep_momentum else {}

    def round(
        self,
        federation: Federation,
        coalitions: Coalitions,  # noqa: ARG002 - they make no difference
        state: State,
        seed: int,
    ) -> tuple[State, RoundReport]:
        """Train all participants for a round, exactly as in a coalition of one."""
        begun = RoundReport()
        if self.keep_momentum and state.round == 0:  # silos may still keep that of an earlier run
            begun = emptied(self, federation, [momentum_slot(self.name)])
        trained = train_silos(self, federation, state, seed, momentum=state.tensors.get("momentum"))
        kept = {} if trained.momentum is None else {"momentum": trained.momentum}
        return state.after(parameters=trained.rows, **kept), begun | trained.report

"""Local: every participant trains on its own data only."""

from dataclasses import dataclass, field

from torch import Tensor

from fedegoists.federation.federation import Federation
from fedegoists.federation.operations import TrainSettings
from fedegoists.methods.method import Coalitions, RoundReport, State, train_everybody

__all__ = ["Local"]


@dataclass(frozen=True)
class Local:
    """Train alone; the yardstick for every other method. Nothing is sent anywhere."""

    settings: TrainSettings = field(default_factory=TrainSettings)
    name: str = "local"

    def start(self, initial: Tensor) -> State:
        """Return the state before the first round."""
        return State(0, {"parameters": initial})

    def round(
        self,
        federation: Federation,
        coalitions: Coalitions,  # noqa: ARG002 - whatever they are
        state: State,
        seed: int,
    ) -> tuple[State, RoundReport]:
        """Train everybody for a round, exactly as in a coalition of one."""
        rows, report, _ = train_everybody(federation, state, self.settings, seed)
        return State(state.round + 1, {"parameters": rows}), report

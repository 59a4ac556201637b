"""Where a consortium's silos are: in this process, or at their organisations."""

from collections.abc import Sequence
from typing import Protocol

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation, StatefulFederation
from fedegoists.learning.data import SiloedData
from fedegoists.learning.models import build_model, model_options
from fedegoists.training.repetitions import data_digest, load_trainable

__all__ = ["Engine", "SimulatedEngine"]


class Engine(Protocol):
    """What a run needs to know of its silos, and how it reaches them."""

    @property
    def data(self) -> SiloedData:
        """Who takes part with how much of what; samples themselves need not be here."""

    @property
    def digest(self) -> str:
        """A hash that changes whenever anybody's data does."""

    @property
    def absent(self) -> tuple[str, ...]:
        """Participants of the consortium that are not there and are left out."""

    def federation(self, model: str, trials: int | None = None) -> StatefulFederation:
        """Return the silos that train a network; in several trials they are called ``0/name``."""


class SimulatedEngine:
    """All silos in this process.

    Parameters
    ----------
    participants : sequence of str, optional
        Who takes part, if not everybody whose data is there.
    """

    absent: tuple[str, ...] = ()

    def __init__(
        self, settings: ConsortiumSettings, participants: Sequence[str] | None = None
    ) -> None:
        self.data = load_trainable(
            settings.data.source,
            data_dir=settings.data.folder,
            seed=settings.data.seed,
            **settings.data.options,
        )
        if participants is not None:
            there = self.data.participants
            missing = [name for name in participants if name not in there]
            if missing:
                raise SettingsError(
                    f"{self.data.name} has no data of {missing[0]!r}; it has {', '.join(there[:8])}"
                )
            self.data = self.data.restricted_to(participants)
        self.digest = data_digest(self.data)
        self._device = settings.training.device

    def federation(self, model: str, trials: int | None = None) -> StatefulFederation:
        """Return the silos, looped or stacked on one device."""
        data = self.data if trials is None else dict.fromkeys(range(trials), self.data)
        network = build_model(model, 0, **model_options(self.data))
        return SimulatedFederation(data, network, device=self._device)

"""The engine ``simulation``: all silos in this process."""

from collections.abc import Sequence
from typing import TypeVar

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.engine import SiloAccess, Work
from fedegoists.errors import SettingsError
from fedegoists.federation import SimulatedFederation, StatefulFederation
from fedegoists.learning.data_description import DataDescription
from fedegoists.learning.own_models import model_parts
from fedegoists.training.repetitions import data_digest, load_trainable

Result = TypeVar("Result")


class SimulatedEngine:
    """Silos in this process, looped or stacked on one device.

    Parameters
    ----------
    participants : sequence of str, optional
        The participants; by default all that have data.

    Attributes
    ----------
    samples : SiloedData
        The data itself, which `data` describes.
    """

    local = True
    absent: tuple[str, ...] = ()

    def __init__(
        self, settings: ConsortiumSettings, participants: Sequence[str] | None = None
    ) -> None:
        self.samples = load_trainable(
            settings.data.source,
            data_dir=settings.data.folder,
            seed=settings.data.seed,
            **settings.data.options,
        )
        if participants is not None:
            known = self.samples.participants
            missing = [name for name in participants if name not in known]
            if missing:
                raise SettingsError(
                    f"{self.samples.name} has no data of {missing[0]!r}; "
                    f"it has {', '.join(known[:8])}"
                )
            self.samples = self.samples.restricted_to(participants)
        self.data = DataDescription.of(self.samples, data_digest(self.samples))
        self._device = settings.training.device
        self._execution = settings.training.execution

    def hindrance(self, answers: int, *, models: bool = True) -> str:
        """Return nothing: silos in this process answer everything."""
        del answers, models
        return ""

    def federation(self, model: str, repetitions: int | None = None) -> StatefulFederation:
        """Return the silos with a network."""
        data = (
            self.samples if repetitions is None else dict.fromkeys(range(repetitions), self.samples)
        )
        return SimulatedFederation(
            data,
            model_parts(self.data, model),
            device=self._device,
            execution=self._execution,
        )


def over_silos(
    settings: ConsortiumSettings,
    access: SiloAccess,
    work: Work[Result],
    *,
    resume: bool = False,
) -> Result:
    """Load the data and do some work over it, see `EngineKind.over_silos`."""
    engine = SimulatedEngine(settings, access.participants)
    for warning in engine.samples.warnings:
        access.progress.message(f"look at the data: {warning}")
    return work(engine, resume)

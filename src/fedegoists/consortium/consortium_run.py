"""The results of a consortium's run."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedegoists.benefit import BenefitEstimate
from fedegoists.coalitions import Formation
from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.gains import Gain
from fedegoists.graphs import BenefitGraph
from fedegoists.learning.data_description import DataDescription
from fedegoists.methods import Outcome
from fedegoists.training.repetitions import Repetitions
from fedegoists.training.summary import Summary


@dataclass(frozen=True)
class LearnedBenefit:
    """The benefit graph, and the estimate it was made from unless it was given."""

    graph: BenefitGraph
    estimate: BenefitEstimate | None = None


@dataclass(frozen=True)
class ConsortiumRun:
    """All results of a run.

    Attributes
    ----------
    folder : Path
        The run's folder.
    formation : Formation
        The coalitions, with their certificate.
    gains : list of Gain
        The participants' gains over training alone.
    outcomes : dict of Outcome by method
        All measurements; for a method that is only fine-tuned, also those before tuning.
    absent : tuple of str
        Members of the consortium that did not answer and were left out.
    undelivered : tuple of str
        Participants whose models could not be delivered to their silos.
    """

    folder: Path
    settings: ConsortiumSettings
    data: DataDescription
    benefit: LearnedBenefit
    formation: Formation
    gains: list[Gain]
    outcomes: dict[str, Outcome]
    repetitions: Repetitions
    seconds: dict[str, float]
    absent: tuple[str, ...] = ()
    undelivered: tuple[str, ...] = ()

    @property
    def wanted(self) -> dict[str, Outcome]:
        """The outcomes of the methods that were asked for."""
        return {method: self.outcomes[method] for method in self.settings.training.methods}

    @cached_property
    def summary(self) -> Summary:
        """Means of the test metric and of the costs."""
        return Summary.of(self.wanted, self.outcomes, self.repetitions.federation)

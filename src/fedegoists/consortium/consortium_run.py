"""The results of a consortium's run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedegoists.benefit import BenefitEstimate
from fedegoists.coalitions import Formation
from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.evaluations import Evaluations
from fedegoists.consortium.everybody_together import EverybodyTogether
from fedegoists.consortium.exposure import Exposure, MaskedSums
from fedegoists.consortium.participant_models import ChosenModel, trained_participants
from fedegoists.consortium.tree_yardstick import TreeYardstick
from fedegoists.graphs import BenefitGraph, UncertainBenefits
from fedegoists.learning.data_description import DataDescription
from fedegoists.methods import Outcome
from fedegoists.notebooks import data_frame, html_table
from fedegoists.training.contributions import Ledger
from fedegoists.training.gains import Gain
from fedegoists.training.repetitions import Repetitions
from fedegoists.training.summary import Summary


def alone_in(formation: Formation) -> tuple[str, ...]:
    """Return the participants whose coalition has no other member."""
    return tuple(group[0] for group in formation.coalitions if len(group) == 1)


@dataclass(frozen=True)
class LearnedBenefit:
    """The benefit graph, and the estimate it was made from unless it was given.

    `uncertain` has the errors of benefits that were given with them.
    """

    graph: BenefitGraph
    estimate: BenefitEstimate | None = None
    uncertain: UncertainBenefits | None = None


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
    seen : tuple of Exposure
        Coalitions of a deployed run whose members' single updates the coordinator saw.
    evaluations : Evaluations
        Intervals over test samples; empty in a deployed run, where only silos see samples.
    begun : mapping of str to str
        How each participant started, if the run started from an earlier one.
    masked : tuple of MaskedSums
        Coalitions of a deployed run whose sums were masked.
    yardstick : TreeYardstick
        The test metric of boosted trees that each participant trains alone, on tables.
    delivered : mapping of str to ChosenModel
        The model that each participant's silo has chosen to keep.
    everybody : EverybodyTogether, optional
        The comparison with training all together, where it was asked for.
    ledger : Ledger, optional
        What each member gave to the others of its coalition, where it was asked for.
    made : str
        The day on which the run was made.
    decided : bool
        Whether the decision was made before the run, and given to it.
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
    seen: tuple[Exposure, ...] = ()
    evaluations: Evaluations = field(default_factory=Evaluations)
    begun: Mapping[str, str] = field(default_factory=dict)
    masked: tuple[MaskedSums, ...] = ()
    yardstick: TreeYardstick = field(default_factory=TreeYardstick)
    delivered: Mapping[str, ChosenModel] = field(default_factory=dict)
    everybody: EverybodyTogether | None = None
    ledger: Ledger | None = None
    made: str = ""
    decided: bool = False

    @property
    def wanted(self) -> dict[str, Outcome]:
        """The outcomes of the methods that were asked for."""
        return {method: self.outcomes[method] for method in self.settings.training.methods}

    @property
    def incomplete(self) -> tuple[tuple[str, str], ...]:
        """Participants for which a stage failed, and what is not known of them."""
        estimate = self.benefit.estimate
        unknown = () if estimate is None else estimate.absent
        trained = trained_participants(self.wanted, self.repetitions.federation)
        return (
            *((name, "its benefits could not be estimated; it trains alone") for name in unknown),
            *(
                (name, "it has no model, because training gave no result for it")
                for name in self.data.participants
                if name not in trained
            ),
        )

    @property
    def alone(self) -> tuple[str, ...]:
        """Participants without a coalition: they train alone with every method."""
        return alone_in(self.formation)

    @cached_property
    def summary(self) -> Summary:
        """Means of the test metric and of the costs."""
        return Summary.of(self.wanted, self.outcomes, self.repetitions.federation, alone=self.alone)

    def _rows(self) -> list[tuple[object, ...]]:
        """Return each participant's results with each method, with the widest known interval."""
        gains = {(one.participant, one.method): one for one in self.gains}
        rows: list[tuple[object, ...]] = []
        for name in self.data.participants:
            for method in self.wanted:
                gain = gains.get((name, method))
                judged = self.evaluations.methods.get((method, name))
                between = gain if judged is None or judged.gain is None else judged.gain
                rows.append(
                    (
                        name,
                        method,
                        self.summary.row(method, name).mean,
                        None if gain is None else gain.gain,
                        None if gain is None or between is None else between.low,
                        None if gain is None or between is None else between.high,
                    )
                )
        return rows

    def to_frame(self) -> Any:
        """Return a pandas data frame of each participant's results with each method.

        The columns are participant, method, the test metric, and the gain over training alone with
        its interval: over test samples and repetitions in a simulation, else over repetitions.
        """
        return data_frame(self._columns, self._rows())

    @property
    def _columns(self) -> tuple[str, ...]:
        return ("participant", "method", self.summary.metric, "gain", "low", "high")

    def _repr_html_(self) -> str:
        few = {name: one.few for name, one in self.evaluations.models.items() if one.few}
        rows = [(f"{row[0]} †" if row[0] in few else row[0], *row[1:]) for row in self._rows()]
        title = f"Run {self.folder.name}: test results, and gains over training alone"
        if few:
            title += " († too few test samples for a result)"
        return self.formation._repr_html_() + html_table(title, self._columns, rows)

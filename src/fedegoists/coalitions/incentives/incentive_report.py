"""What each participant could gain by false reports, for one decision."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.formation_options import FormationMethod
from fedegoists.coalitions.forming import check_fewest_members, form
from fedegoists.coalitions.incentives.competitor_lies import competitor_temptations, price_of_names
from fedegoists.coalitions.incentives.inspection_rates import inspection_probability
from fedegoists.coalitions.incentives.leaving_together import leaving_temptations
from fedegoists.coalitions.incentives.received_lies import MOST_EXACT, received_temptation
from fedegoists.coalitions.incentives.reporting import LIES, Lie, Temptation, Truth, decision_rule
from fedegoists.coalitions.incentives.two_names import duplicate_temptation
from fedegoists.errors import SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.coalition_values import Benefits
from fedegoists.graphs.uncertain_benefits import UncertainBenefits
from fedegoists.notebooks import data_frame, html_table

DEFAULT_SECONDS = 60.0
"""Time for a report."""

IncentiveProgress = Callable[[int, int], None]
"""Called with the number of participants that are done, and of all."""


@dataclass(frozen=True)
class ParticipantIncentives:
    """What one participant receives, and what false reports would add.

    Attributes
    ----------
    participant : str
        Its name.
    utility : float
        What it receives if all reports are true.
    temptations : tuple of Temptation
        The best lie of each kind.
    inspection_probability : float
        The lowest probability that its received benefit is inspected at which a misreport does not
        pay, if a liar is excluded and loses its deposit.
    price_of_names : float or None
        What the pairs of competitors that it is in take from all others; for method ``best`` only.
    """

    participant: str
    utility: float
    temptations: tuple[Temptation, ...]
    inspection_probability: float
    price_of_names: float | None

    def by(self, lie: Lie) -> Temptation:
        """Return the temptation by one kind of lie."""
        return self.temptations[LIES.index(lie)]


@dataclass(frozen=True)
class IncentiveReport:
    """The incentives of all participants; made by `incentives`.

    Attributes
    ----------
    method : str
        The formation method that decides.
    welfare : float
        The welfare if all reports are true.
    participants : tuple of ParticipantIncentives
        In order.
    deposit : float
        What a liar that is found loses besides its place.
    notes : tuple of str
        What was not tried, as sentences.
    """

    method: FormationMethod
    welfare: float
    participants: tuple[ParticipantIncentives, ...]
    deposit: float = 0.0
    notes: tuple[str, ...] = ()

    def tempted(self, lie: Lie) -> tuple[str, ...]:
        """Return the participants that gain by one kind of lie."""
        return tuple(one.participant for one in self.participants if one.by(lie).gain > 0)

    @property
    def inspection_probability(self) -> float:
        """The lowest probability of an inspection at which no misreport pays."""
        return max((one.inspection_probability for one in self.participants), default=0.0)

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values for JSON."""
        return {
            "method": self.method,
            "welfare": self.welfare,
            "deposit": self.deposit,
            "inspection_probability": self.inspection_probability,
            "participants": [
                {
                    "participant": one.participant,
                    "utility": one.utility,
                    "inspection_probability": one.inspection_probability,
                    "price_of_names": one.price_of_names,
                    "lies": [
                        {
                            "lie": found.lie,
                            "gain": found.gain,
                            "bound": found.bound,
                            "exact": found.exact,
                            "report": found.report,
                            "others_lose": found.others_lose,
                        }
                        for found in one.temptations
                    ],
                }
                for one in self.participants
            ],
            "notes": list(self.notes),
        }

    @property
    def _columns(self) -> tuple[str, ...]:
        return ("participant", "utility", *LIES, "inspection_probability")

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (
                one.participant,
                one.utility,
                *(found.gain for found in one.temptations),
                one.inspection_probability,
            )
            for one in self.participants
        ]

    def to_frame(self) -> Any:
        """Return a pandas data frame with the gain of each participant by each kind of lie."""
        return data_frame(self._columns, self._rows())

    def _repr_html_(self) -> str:
        return html_table(f"Gains by false reports ({self.method})", self._columns, self._rows())


def incentives(
    benefit: Benefits | Formation,
    competition: CompetitionGraph | None = None,
    method: FormationMethod = "best",
    *,
    seed: int = 0,
    fewest_members: int = 1,
    deposit: float = 0.0,
    time_limit: float = DEFAULT_SECONDS,
    progress: IncentiveProgress | None = None,
) -> IncentiveReport:
    """Compute what each participant could gain by false reports, if all others tell the truth.

    The graphs given are taken as true. Gains are in true utility: the sum of the true benefits that
    a participant receives in its coalition. For up to ten participants, every report of received
    benefit that matters is tried (`received_lies` says why these suffice). With more, a local
    search gives a gain and `Temptation.bound` an upper bound. One competitor is invented or hidden
    at a time, and `two_names` lists the ways to take part under two names. Methods ``cliques`` and
    ``truthful`` need no trials of received benefit: there is a proof that no misreport pays.

    Parameters
    ----------
    benefit : BenefitGraph or Formation
        The true benefits; or a formation, whose graphs, method, seed and demand then apply.
    competition : CompetitionGraph
        The true competition; left out with a formation.
    method : {"best", "stable", "published", "cliques", "truthful"}
        The formation method that decides.
    seed, fewest_members : int
        As for `form`.
    deposit : float
        What a participant loses, besides its place, if a lie is found.
    time_limit : float
        Seconds for the whole report; what was not tried is then bounded.
    progress : callable, optional
        Called with the number of participants that are done, and of all.

    Examples
    --------
    k and l benefit each other, k benefits i, and i benefits j. i gives to nobody who gives, so it
    is alone, until it invents a benefit from j:

    >>> edges = [("k", "l", 1), ("l", "k", 1), ("k", "i", 5), ("i", "j", 1)]
    >>> benefit = BenefitGraph.from_edges(edges, ["i", "j", "k", "l"])
    >>> nobody = CompetitionGraph([], benefit.participants)
    >>> found = incentives(benefit, nobody).participants[0].by("misreport")
    >>> found.gain, found.exact, found.report
    (5.0, True, 'a large benefit from j, k, nothing from the others')
    >>> incentives(benefit, nobody, "truthful").tempted("misreport")
    ()
    """
    if isinstance(benefit, Formation):
        formation = benefit
        if competition is not None:
            raise SettingsError("a formation has its competition graph; leave the second one out")
        if formation.objective != "welfare":
            raise SettingsError(
                f"incentives are computed for the objective 'welfare', not {formation.objective!r};"
                " form the coalitions again without an objective"
            )
        benefit, competition = formation.benefits, formation.competition
        method, seed = formation.method, formation.seed
        fewest_members = formation.fewest_members
    if isinstance(benefit, UncertainBenefits):
        raise SettingsError(
            "incentives are computed for benefits without standard errors, taken as true; give the "
            "graph alone (benefits.graph), or files without the column error"
        )
    if not isinstance(benefit, BenefitGraph):
        raise SettingsError(
            "incentives are computed for benefit graphs; coalition values are predicted from "
            "learning curves that the coordinator fits, not from reports of single benefits"
        )
    if competition is None:
        raise SettingsError("expected a benefit graph and a competition graph, or a formation")
    if not 0 < time_limit < float("inf"):
        raise SettingsError(f"the time limit must be a positive number of seconds: {time_limit!r}")
    inspection_probability(0.0, 0.0, deposit)  # refuses a deposit that is none
    check_fewest_members(fewest_members, method)
    # `form` checks everything else, and loads the solvers before the clock runs.
    form(benefit, competition, method, seed=seed, fewest_members=fewest_members)
    return _report(
        Truth(benefit, competition, decision_rule(method, seed, fewest_members, None)),
        method,
        fewest_members,
        deposit,
        time.perf_counter() + time_limit,
        progress,
    )


def _report(
    truth: Truth,
    method: FormationMethod,
    fewest_members: int,
    deposit: float,
    deadline: float,
    progress: IncentiveProgress | None,
) -> IncentiveReport:
    leaving = leaving_temptations(truth, fewest_members, deadline)
    found = []
    n = truth.benefit.n
    for i, name in enumerate(truth.names):
        if progress is not None:
            progress(i, n)
        utility = float(truth.utilities[i])
        # Each participant has an equal share of the time that is left; misreports half of it.
        began = time.perf_counter()
        share = max(deadline - began, 0.0) / (n - i)
        if began < deadline:
            invent, hide = competitor_temptations(truth, i, began + share / 2)
            duplicate = duplicate_temptation(truth, i, began + share / 2)
            price = price_of_names(truth, i) if method == "best" else None
        else:
            bound = max(float(truth.highest[i]) - utility, 0.0)
            invent, hide = Temptation("invent", 0.0, bound), Temptation("hide", 0.0, bound)
            givers = float(truth.benefit.weights[:, i].sum())
            duplicate, price = Temptation("duplicate", 0.0, givers - utility), None
        misreport = received_temptation(truth, i, method, began + share)
        found.append(
            ParticipantIncentives(
                name,
                utility,
                (misreport, invent, hide, duplicate, leaving[i]),
                inspection_probability(utility, misreport.bound, deposit),
                price,
            )
        )
    if progress is not None:
        progress(n, n)
    notes = []
    unfinished = [
        one.participant
        for one in found
        if not all(one.by(lie).exact for lie in ("invent", "hide", "duplicate"))
    ]
    if unfinished:
        notes.append(
            f"the time limit ended the search; for {len(unfinished)} of {n} participants, such as "
            f"{unfinished[0]}, not all lies were tried, and the bounds hold for all"
        )
    if any(not one.by("misreport").exact for one in found):
        why = (
            f"with more than {MOST_EXACT} participants not all reports are tried"
            if n > MOST_EXACT
            else "the time limit ended the search"
        )
        notes.append(f"{why}; the bounds hold for all reports")
    return IncentiveReport(method, truth.welfare, tuple(found), deposit, tuple(notes))

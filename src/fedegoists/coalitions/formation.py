"""The result of forming coalitions: a partition, how good it is, and how it was reached."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedegoists.coalitions.formation_options import (
    DEFAULT_SCENARIOS,
    FormationMethod,
    Objective,
    Risk,
)
from fedegoists.coalitions.principles import Coalition
from fedegoists.coalitions.proof.price_proof import PriceProof
from fedegoists.coalitions.value_principles import gain_probability
from fedegoists.coalitions.welfare import as_rows, gain_errors, utilities_by
from fedegoists.errors import SettingsError, shown
from fedegoists.graphs import BenefitGraph, CoalitionValues, CompetitionGraph, UncertainBenefits
from fedegoists.graphs.coalition_values import Benefits
from fedegoists.graphs.participants import index_of
from fedegoists.notebooks import data_frame, html_table

if TYPE_CHECKING:
    from fedegoists.coalitions.certificate import Certificate
    from fedegoists.coalitions.doubt_report import DoubtReport


@dataclass(frozen=True)
class Merge:
    """One step of a formation: the coalitions that were united, the rule, and the gain.

    Attributes
    ----------
    sets : tuple of coalitions
        The coalitions that were united.
    rule : str
        ``cycle``, ``path`` and ``neighbors`` are the rules of Algorithm 1; ``search`` is a set
        found by the search for mergers; ``optimum`` and ``best found`` mark a coalition of the
        best partition, whose members are united in one step.
    gain : float
        By how much the utility of the union exceeds the utilities of its parts.
    """

    sets: tuple[Coalition, ...]
    rule: str
    gain: float

    def __str__(self) -> str:
        sets = " + ".join(f"{{{', '.join(s)}}}" for s in self.sets)
        return f"{sets} ({self.rule}, gain {self.gain:.6g})"


@dataclass(frozen=True)
class Formation:
    """Coalitions, how good they are, and how they were reached; made by `form`.

    Attributes
    ----------
    coalitions : tuple of tuples of names
        A partition in canonical order: members in the order of the participants, coalitions in the
        order of their first members.
    welfare : float
        The sum of all benefits inside the coalitions.
    upper_bound : float
        No partition that satisfies both principles, and has enough members where a number is
        demanded, has a higher welfare.
    stable : bool or None
        Whether no set of coalitions could still gain by merging: True if proven, False if a set is
        known, None if it was not proven within the budget.
    trace : tuple of Merge
        Every merge, in order; see `start`.
    start : tuple of coalitions
        The partition to which the first merge of the trace applies.
    objective : {"welfare", "fair", "participation"}
        The objective of method ``best``.
    fewest_members : int
        The fewest members of a coalition of two or more that were demanded; 1 if none were.
    best_by_objective : bool
        For another objective than welfare, whether no partition is better by it; see `proven`.
    notes : tuple of str
        What was not reached within the budget, as sentences.
    values : CoalitionValues or None
        The coalition values, if the coalitions were formed from these. `welfare` is then the total
        expected gain, and `benefit` holds the gains of pairs alone, for pictures.
    confidence : float or None
        With coalition values: the least probability of gaining that was demanded of each member.
        With uncertain benefits: the least probability that nobody rides free in a coalition.
    risk : {"expected", "worst-decile"} or None
        With uncertain benefits: what was maximised.
    scenarios : int
        With uncertain benefits: the number of scenarios for the worst tenth and for regret.
    prices : tuple of PriceProof
        Of method ``best``: prices from which the certificate proves the upper bound.
    closed : bool or None
        Whether welfare and upper bound meet in every component; None if only the totals are known.
    """

    benefit: BenefitGraph = field(repr=False)
    competition: CompetitionGraph = field(repr=False)
    method: FormationMethod
    coalitions: tuple[Coalition, ...]
    welfare: float
    upper_bound: float
    stable: bool | None
    start: tuple[Coalition, ...] = field(repr=False, default=())
    trace: tuple[Merge, ...] = field(repr=False, default=())
    seed: int = 0
    notes: tuple[str, ...] = ()
    objective: Objective = "welfare"
    best_by_objective: bool = field(repr=False, default=False)
    fewest_members: int = field(repr=False, default=1)
    values: CoalitionValues | None = field(repr=False, default=None)
    confidence: float | None = field(repr=False, default=None)
    risk: Risk | None = field(repr=False, default=None)
    scenarios: int = field(repr=False, default=DEFAULT_SCENARIOS)
    prices: tuple[PriceProof, ...] = field(repr=False, compare=False, default=())
    closed: bool | None = field(repr=False, compare=False, default=None)

    @property
    def benefits(self) -> Benefits:
        """What decided: the coalition values, or else the benefit graph."""
        return self.benefit if self.values is None else self.values

    @property
    def participants(self) -> tuple[str, ...]:
        """All participants, in order."""
        return self.benefit.participants

    @property
    def optimal(self) -> bool:
        """Whether the welfare is proven to be the highest possible, up to rounding.

        Each component is judged by itself, relative to its own benefits, so that one large benefit
        does not hide what others could still gain.
        """
        return self.closed is not False and self.welfare >= self.upper_bound * (1 - 1e-9)

    @property
    def proven(self) -> bool:
        """Whether no valid partition is better by the objective, up to rounding."""
        return self.optimal if self.objective == "welfare" else self.best_by_objective

    @property
    def gap(self) -> float:
        """The relative distance from the welfare to the upper bound; 0 if optimal."""
        return 0.0 if self.optimal else max(1 - self.welfare / self.upper_bound, 0.0)

    @cached_property
    def utilities(self) -> Mapping[str, float]:
        """The utility u_i(S) of each participant: the benefit it receives in its coalition.

        With coalition values: its expected gain.
        """
        groups = positions(self.coalitions, self._place)
        received = utilities_by(self.benefits, groups).tolist()
        return MappingProxyType(dict(zip(self.participants, received, strict=True)))

    @cached_property
    def standard_errors(self) -> Mapping[str, float]:
        """The standard error of each expected gain; zeros without coalition values."""
        errors = [0.0] * len(self.participants)
        if self.values is not None:
            groups = positions(self.coalitions, self._place)
            errors = gain_errors(self.values, groups).tolist()
        return MappingProxyType(dict(zip(self.participants, errors, strict=True)))

    @cached_property
    def probabilities(self) -> Mapping[str, float]:
        """The probability to gain of each participant in company.

        By a normal approximation; with uncertain benefits, the probability to receive any.
        """
        if isinstance(self.values, UncertainBenefits):
            rows = as_rows(positions(self.coalitions, self._place), len(self.participants))
            likely = self.values.receiving(rows).min(axis=0).tolist()
            named = zip(self.participants, likely, strict=True)
            return MappingProxyType(
                {name: p for name, p in named if len(self.coalition_of(name)) > 1}
            )
        gains, errors = self.utilities, self.standard_errors
        company = (name for group in self.coalitions if len(group) > 1 for name in group)
        return MappingProxyType(
            {name: gain_probability(gains[name], errors[name]) for name in company}
        )

    @cached_property
    def _home(self) -> dict[str, Coalition]:
        return {name: group for group in self.coalitions for name in group}

    def coalition_of(self, participant: str | int) -> Coalition:
        """Return the coalition a participant is in."""
        return self._home[self.name_of(participant)]

    def name_of(self, participant: str | int) -> str:
        """Return a participant's name; an unknown name or position is an error."""
        return self.participants[index_of(participant, self.participants, "formation", self._place)]

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.participants)}

    @property
    def _columns(self) -> tuple[str, ...]:
        more = () if self.values is None else ("standard error", "probability of gaining")
        return ("participant", "coalition", "utility", *more)

    def _rows(self) -> list[tuple[str | float | None, ...]]:
        rows = [
            (name, number, self.utilities[name])
            for number, group in enumerate(self.coalitions, 1)
            for name in group
        ]
        if self.values is None:
            return list(rows)
        errors, likely = self.standard_errors, self.probabilities
        return [(*row, errors[row[0]], likely.get(row[0])) for row in rows]

    def to_frame(self) -> Any:
        """Return a pandas data frame: participant, number of its coalition, utility.

        With coalition values, also the standard error, and the probability of gaining.
        """
        return data_frame(self._columns, self._rows())

    def to_dict(self) -> dict[str, object]:
        """Return the formation as plain values for JSON, without the graphs."""
        valued: dict[str, object] = {}
        if self.values is not None:
            valued = {
                "unit": self.values.unit,
                "confidence": self.confidence,
                "standard_errors": dict(self.standard_errors),
                "probabilities": dict(self.probabilities),
            }
            if self.doubt is not None:
                doubt = self.doubt.to_dict()
                valued["doubt"] = {
                    key: value
                    for key, value in doubt.items()
                    if key not in ("partitions", "scenario_best")
                }
        return {
            "method": self.method,
            "objective": self.objective,
            "fewest_members": self.fewest_members,
            "seed": self.seed,
            "coalitions": [list(group) for group in self.coalitions],
            "welfare": self.welfare,
            "upper_bound": self.upper_bound,
            "gap": self.gap,
            "optimal": self.optimal,
            "proven": self.proven,
            "stable": self.stable,
            "utilities": dict(self.utilities),
            **valued,
            "trace": [
                {"sets": [list(one) for one in merge.sets], "rule": merge.rule, "gain": merge.gain}
                for merge in self.trace
            ],
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        best = "proven to be the highest" if self.optimal else f"at most {self.upper_bound:.4g}"
        title = f"Coalitions ({self.method}): total benefit {self.welfare:.4g}, {best}"
        return html_table(title, self._columns, self._rows())

    @cached_property
    def doubt(self) -> "DoubtReport | None":
        """With uncertain benefits: how sure the decision is, and what would make it surer."""
        if not isinstance(self.values, UncertainBenefits):
            return None
        from fedegoists.coalitions.doubt_report import doubt_report

        return doubt_report(self)

    @cached_property
    def certificate(self) -> "Certificate":
        """The result for a third party to re-check, with claims by the independent checker."""
        from fedegoists.coalitions.certificate import Certificate

        return Certificate.of(self)


def check_formation(given: object) -> None:
    """Refuse what is no formation, such as a certificate or a graph."""
    if not isinstance(given, Formation):
        certificate = callable(getattr(given, "formation", None))
        fix = "give certificate.formation()" if certificate else "make one with form()"
        raise SettingsError(f"expected a Formation first, got {shown(given)}; {fix}")


def positions(
    coalitions: Iterable[Coalition], participants: Iterable[str] | Mapping[str, int]
) -> list[list[int]]:
    """Return coalitions by the positions of their members among the participants."""
    if not isinstance(participants, Mapping):
        participants = {name: k for k, name in enumerate(participants)}
    return [[participants[name] for name in group] for group in coalitions]

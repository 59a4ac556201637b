"""The top of the manager's page: what to do, what each member gains, and what it costs."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.consortium.report.plain_units import PlainUnit
from fedegoists.consortium.report.results_section import FEW, SIGNS, Results
from fedegoists.consortium.report.setup_section import versions
from fedegoists.consortium.report.wording import (
    counted,
    decimals_for,
    fixed,
    listed,
    signed,
    spoken_time,
)
from fedegoists.federation import SimulatedFederation
from fedegoists.federation.delivery import OWN
from fedegoists.learning.estimates import Estimate, Interval
from fedegoists.methods.method_registry import METHOD_ENTRIES, base_of
from fedegoists.training.summary import EVERYBODY

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun
    from fedegoists.consortium.delivered_gains import DeliveredGain

MOST_NAMED = 12
"""Participants up to which a sentence names all coalitions."""

SEEN = {
    "nothing": "nothing of any model",
    "sums": "sums over the models of coalitions of three or more members",
    "single updates": "models of single members",
    "gradients": "models and gradients of single members",
}
"""What the coordinator sees of each kind of method, where silos are deployed."""


@dataclass(frozen=True)
class MemberLine:
    """What one participant gains, as text.

    Attributes
    ----------
    company : str
        The other members of its coalition; empty if it is alone.
    alone, value : str
        The result of its own model, and of the model it keeps.
    result, predicted : str
        The gain with its interval, measured after and expected before training.
    together : str
        The gain if everybody trained together; empty if that was not measured.
    """

    participant: str
    company: str
    alone: str
    value: str
    predicted: str
    result: str
    verdict: str
    sign: str
    together: str
    together_verdict: str


@dataclass(frozen=True)
class BottomLine:
    """The first screen of the report."""

    advice: str
    reasons: tuple[str, ...]
    unit: str
    lines: tuple[MemberLine, ...]
    together_by: str
    costs: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]


def bottom_line(run: "ConsortiumRun", results: Results, why_alone: str) -> BottomLine:
    """Return the top of the manager's page.

    Parameters
    ----------
    why_alone : str
        Why no coalition was formed, where none was.
    """
    unit = plain_unit(run)
    advice, reasons = _advice(run, results, unit, why_alone)
    lines = member_lines(run, results, unit)
    compared = "" if run.everybody is None else run.everybody.methods[0]
    return BottomLine(
        advice,
        (*reasons, *_everybody(run, unit)),
        unit.words,
        lines,
        compared,
        _costs(run, results),
        _facts(run),
    )


def plain_unit(run: "ConsortiumRun") -> PlainUnit:
    """Return the unit of results; silos that add noise do not show errors in their own units."""
    federation = run.repetitions.federation
    target = getattr(run.data.schema, "target", "the number")
    known = isinstance(federation, SimulatedFederation)
    task = federation.task
    return PlainUnit.of(task.metric, task.higher_is_better, target if known else "")


def mean_gain(run: "ConsortiumRun", results: Results, unit: PlainUnit) -> Estimate:
    """Return the mean gain of the members of coalitions, by the models that they keep."""
    parts = []
    for one in results.delivered:
        if len(run.formation.coalition_of(one.participant)) < 2:
            continue
        known = run.evaluations.delivered.get(one.participant)
        if one.method == OWN:
            parts.append(Estimate(0.0, 0.0))
        elif known is not None:
            parts.append(unit.estimate(known, one.alone))
        else:
            parts.append(Estimate(unit.gain(one.gain, one.alone).value))
    return Estimate.mean_of(parts)


def _advice(
    run: "ConsortiumRun", results: Results, unit: PlainUnit, why_alone: str
) -> tuple[str, tuple[str, ...]]:
    """Return what to do, and the reasons."""
    formation = run.formation
    groups = [group for group in formation.coalitions if len(group) > 1]
    if not groups:
        return "Every participant should train alone.", (why_alone,)
    inside = [one for one in results.delivered if len(formation.coalition_of(one.participant)) > 1]
    if inside and all(one.method == OWN for one in inside):
        return "Every participant should keep the model that it trained alone.", (
            f"{counted(len(groups), 'coalition')} of two or more were expected to gain, but on "
            "their own validation data no member found the common model better.",
        )
    mean = mean_gain(run, results, unit)
    between, decimals = mean.interval(), _decimals((one.alone for one in inside), unit)
    verdicts = Counter(_verdict(one, results) for one in inside)
    told = _change(between, unit, decimals)
    tally = f"{verdicts['better']} of {len(inside)} members are clearly better than alone"
    worse = verdicts["worse"]
    tally += f", {worse} clearly worse." if worse else ", none is clearly worse."
    if between.verdict == "worse":
        return "Every participant should train alone.", (f"In these coalitions {told}.", tally)
    who = _who(run)
    if between.verdict == "better":
        return f"Train in {counted(len(groups), 'coalition')}: {who}.", (
            f"{told[0].upper()}{told[1:]}.",
            tally,
        )
    if between.verdict == "uncertain":
        tally = "Intervals over test samples are known to each member at home only."
    return f"Try {counted(len(groups), 'coalition')}: {who}.", (
        f"A gain is not certain: {told}. Each member keeps its own model unless another is better.",
        tally,
    )


def _who(run: "ConsortiumRun") -> str:
    """Return the coalitions in words, or their number where there are many participants."""
    groups = [group for group in run.formation.coalitions if len(group) > 1]
    if len(run.formation.participants) > MOST_NAMED:
        inside = sum(map(len, groups))
        return f"{inside} of {len(run.formation.participants)} participants, see below"
    named = "; ".join(listed(group) for group in groups)
    if not run.alone:
        return named
    return f"{named}. {listed(run.alone)} {'trains' if len(run.alone) == 1 else 'train'} alone"


def _change(gain: Interval, unit: PlainUnit, decimals: int) -> str:
    """Return a mean gain as the end of a sentence."""
    ends = ""
    if math.isfinite(gain.low):
        ends = f" (95 % interval {signed(gain.low, decimals)} to {signed(gain.high, decimals)})"
    if unit.rooted:
        way = "less" if gain.value >= 0 else "more"
        return (
            f"on average a member's {unit.noun} is {fixed(abs(gain.value), decimals)} {way} than "
            f"alone{ends.replace('(95', '(gain, 95')}"
        )
    if unit.factor == 100.0:
        way = "more" if gain.value >= 0 else "fewer"
        cases = unit.words.partition(",")[0].removeprefix("of ")
        return (
            f"on average {fixed(abs(gain.value), decimals)} {way} of {cases} than alone are "
            f"{unit.noun}{ends}"
        )
    return f"on average a member gains {signed(gain.value, decimals)} in {unit.noun}{ends}"


def _verdict(one: "DeliveredGain", results: Results) -> str:
    if one.method == OWN:
        return "as alone"
    return FEW if one.participant in results.few else one.gain.verdict


def _decimals(alone: Iterable[float], unit: PlainUnit) -> int:
    """Return the decimals for values: three digits, and at least one for cases of a hundred."""
    return max(1 if unit.factor == 100.0 else 0, decimals_for(map(unit.value, alone)))


def member_lines(run: "ConsortiumRun", results: Results, unit: PlainUnit) -> tuple[MemberLine, ...]:
    """Return what each participant gains: the prediction before, the result after."""
    decimals = _decimals((one.alone for one in results.delivered), unit)
    together = {}
    if run.everybody is not None:
        first = run.everybody.methods[0]
        together = {one.participant: one for one in run.everybody.gains if one.method == first}
    lines = []
    for one in results.delivered:
        others = [n for n in run.formation.coalition_of(one.participant) if n != one.participant]
        said = _verdict(one, results) if others else "trains alone"
        all_ = together.get(one.participant)
        harm = None if all_ is None else unit.gain(all_.interval, all_.alone)
        lines.append(
            MemberLine(
                one.participant,
                listed(others),
                fixed(unit.value(one.alone), decimals),
                fixed(unit.value(one.value), decimals),
                "" if one.predicted is None
                else _with_ends(unit.gain(one.predicted, one.alone), decimals),
                _with_ends(unit.gain(one.gain, one.alone), decimals) if others else "",
                said,
                SIGNS.get(said, ""),
                "" if harm is None else _with_ends(harm, decimals),
                "" if all_ is None else all_.interval.verdict,
            )
        )  # fmt: skip
    return tuple(lines)


def _with_ends(one: Interval, decimals: int) -> str:
    text = signed(one.value, decimals)
    if not math.isfinite(one.low) or one.low == one.high:
        return text
    return f"{text} ({signed(one.low, decimals)} to {signed(one.high, decimals)})"


def _everybody(run: "ConsortiumRun", unit: PlainUnit) -> tuple[str, ...]:
    """Return what training all together would do, in a sentence for each method."""
    if run.everybody is None:
        return ()
    names = run.formation.participants
    decimals = _decimals((one.alone for one in run.everybody.gains), unit)
    sentences = []
    for method in run.everybody.methods:
        own = [one for one in run.everybody.gains if one.method == method]
        found = Counter(one.interval.verdict for one in own)
        how = "" if method == base_of(method) else " and then tuned at home"
        parts = [
            unit.estimate(run.everybody.estimates[method, one.participant], one.alone)
            for one in own
            if (method, one.participant) in run.everybody.estimates
        ]
        told = _change(Estimate.mean_of(parts).interval(), unit, decimals)
        sentences.append(
            f"If all {len(names)} trained together ({base_of(method)}){how}, {found['worse']} "
            f"would be clearly worse than alone and {found['better']} clearly better: {told}."
        )
    if run.formation.competition.pairs:
        pairs = counted(len(run.formation.competition.pairs), "pair")
        sentences[-1] += f" {pairs} of competitors would then learn from each other."
    return tuple(sentences)


def _costs(run: "ConsortiumRun", results: Results) -> tuple[tuple[str, str], ...]:
    """Return what the run took: time, traffic, and what was shown to whom."""
    seconds = sum(spent for stage, spent in run.seconds.items() if stage != "report")
    simulated = isinstance(run.repetitions.federation, SimulatedFederation)
    where = "on this machine, for all members and methods" if simulated else "for the whole run"
    shared = [name for name in results.methods if name != OWN]
    traffic = "none: nobody trained with others"
    if shared and len(run.alone) < len(run.formation.participants):
        amounts = []
        for name in shared:
            _, sent, received = results.cost_of(name, EVERYBODY)
            amounts.append(f"{sent} MB sent and {received} MB received with {name}")
        traffic = f"for each member on average {listed(amounts)}"
    return (
        ("Time", f"{spoken_time(seconds)} {where}"),
        ("Traffic", traffic),
        ("Shown to others", _shown(run, shared, simulated)),
    )


def _shown(run: "ConsortiumRun", shared: list[str], simulated: bool) -> str:
    if simulated:
        seen = dict.fromkeys(SEEN[METHOD_ENTRIES[base_of(name)].server_sees] for name in shared)
        if not seen:
            return "nothing: silos were simulated on this machine"
        return (
            "nothing: silos were simulated on this machine. Deployed with these methods, members "
            "see their coalition's common model, and the coordinator at least "
            f"{listed(list(seen))}"
        )
    told = []
    if run.masked:
        sums = listed([f"{listed(one.members)} with {listed(one.methods)}" for one in run.masked])
        told.append(f"the coordinator saw sums only of {sums}")
    if run.seen:
        names = listed(sorted({name for one in run.seen for name in one.members}))
        told.append(f"the coordinator saw single updates of {names}, as their silos allow")
    return "; ".join(told) or "members saw their coalition's common model"


def _facts(run: "ConsortiumRun") -> tuple[tuple[str, str], ...]:
    """Return when, with what, on which data and by whom the decision was made."""
    formation = run.formation
    by = f"the method {formation.method}, from "
    if run.decided:
        by = "the coordinator's manager, before this run, from "
    evidence = "a benefit graph that was given"
    if run.benefit.estimate is not None:
        evidence = f"what the estimator {run.benefit.estimate.estimator} measured at the silos"
    elif run.settings.benefit.estimator == "everybody":
        evidence = "the assumption that everybody benefits everybody"
    facts = [
        ("Made", run.made or "not recorded"),
        ("Decided by", f"{by}{evidence}; certificate.json has the proof"),
        ("Software", ", ".join(f"{name} {version}" for name, version in versions())),
        ("Data", f"{run.data.name}, SHA-256 {run.data.digest[:16]}…"),
    ]
    if run.data.fingerprints:
        prints = (f"{name} {value[:12]}" for name, value in run.data.fingerprints.items())
        facts.append(("Data of each", ", ".join(prints)))
    return tuple(facts)

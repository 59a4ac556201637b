"""The top of the manager's page: what to do, what each member gains, and what it costs."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
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
    predicted, result, together : tuple of str
        The gain and its interval: expected before training, measured after it, and if everybody
        trained together; empty where not known.
    """

    participant: str
    company: str
    alone: str
    value: str
    predicted: tuple[str, str]
    result: tuple[str, str]
    verdict: str
    sign: str
    together: tuple[str, str]
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


def member_bottom_line(run: "ConsortiumRun", results: Results, participant: str) -> BottomLine:
    """Return the top of a participant's own page; nothing in it depends on other coalitions.

    Parameters
    ----------
    results : Results
        Those of this participant alone.
    """
    unit = plain_unit(run)
    others = [name for name in run.formation.coalition_of(participant) if name != participant]
    advice = f"{participant} trains {f'with {listed(others)}' if others else 'alone'}."
    reasons: tuple[str, ...] = ()
    for one in results.delivered if others else ():
        decimals = _decimals([one.alone], unit)
        if one.method == OWN:
            reasons = (
                "It keeps the model that it trained alone: on its own validation data no common "
                "model was clearly better.",
            )
            continue
        told = _change(unit.gain(one.gain, one.alone), unit, decimals)
        reasons = (f"With the model that it keeps, {told}.",)
        if participant in results.few:
            reasons += (f"That is no result yet: {results.few[participant]}.",)
    facts = [("Made", run.made or "not recorded"), ("Software", _software())]
    if participant in run.data.fingerprints:
        facts.append(("Its data", f"SHA-256 {run.data.fingerprints[participant][:16]}…"))
    shared = [name for name in results.methods if name != OWN]
    return BottomLine(
        advice,
        reasons,
        unit.words,
        member_lines(run, results, unit),
        "",
        (
            ("Traffic", _traffic(results, shared if others else [], participant)),
            ("Shown to others", _shown_of(run, others)),
        ),
        tuple(facts),
    )


def _shown_of(run: "ConsortiumRun", others: list[str]) -> str:
    """Return what the members of a coalition and the coordinator saw of a participant."""
    if isinstance(run.repetitions.federation, SimulatedFederation):
        return "nothing: silos were simulated on one machine"
    if not others:
        return "no model: it stayed in its silo"
    hidden = "a sum over the coalition" if len(others) > 1 else "its single updates"
    return f"the members saw the coalition's common model; the coordinator saw {hidden} at least"


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
        return "Every participant should train alone.", (
            f"On average over the members of coalitions, {told}.",
            tally,
        )
    who = _who(run)
    if between.verdict == "better":
        return f"Train in {counted(len(groups), 'coalition')}: {who}.", (
            f"On average over their members, {told}.",
            tally,
        )
    if between.verdict == "uncertain":
        tally = "Intervals over test samples are known to each member at home only."
    return f"Try {counted(len(groups), 'coalition')}: {who}.", (
        f"A gain is not certain: on average {told}. Each member keeps its own model unless another "
        "is better.",
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
    """Return a mean gain in words, with its interval.

    Examples
    --------
    >>> metres = PlainUnit.of("mse", False, "metres")
    >>> _change(Interval(2.0, 1.1, 2.9), metres, 1)
    'the typical error is 2.0 less than alone (95 % interval 1.1 to 2.9 less)'
    >>> _change(Interval(0.1, -0.2, 0.4), metres, 1)
    'the typical error is 0.1 less than alone (95 % interval 0.2 more to 0.4 less)'
    """
    up, down = ("less", "more") if unit.rooted else ("more", "fewer")
    if not unit.rooted and unit.factor == 1.0:
        ends = ""
        if math.isfinite(gain.low):
            ends = f" (95 % interval {signed(gain.low, decimals)} to {signed(gain.high, decimals)})"
        return f"the gain in {unit.noun} is {signed(gain.value, decimals)}{ends}"

    def amount(value: float, *, way: bool = True) -> str:
        text = fixed(abs(value), decimals)
        return f"{text} {up if value >= 0 else down}" if way else text

    ends = ""
    if math.isfinite(gain.low):
        near, far = sorted((gain.low, gain.high), key=abs)
        same = gain.low * gain.high > 0
        between = (near, far) if same else (gain.low, gain.high)
        ends = f"{amount(between[0], way=not same)} to {amount(between[1])}"
        ends = f" (95 % interval {ends})"
    if unit.rooted:
        return f"the {unit.noun} is {amount(gain.value)} than alone{ends}"
    cases = unit.words.partition(",")[0].removeprefix("of ")
    return f"{amount(gain.value)} of {cases} than alone are {unit.noun}{ends}"


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
                _with_ends(one.predicted and unit.gain(one.predicted, one.alone), decimals),
                _with_ends(unit.gain(one.gain, one.alone) if others else None, decimals),
                said,
                SIGNS.get(said, ""),
                _with_ends(harm, decimals),
                "" if all_ is None else all_.interval.verdict,
            )
        )
    return tuple(lines)


def _with_ends(one: Interval | None, decimals: int) -> tuple[str, str]:
    """Return a gain and its interval as text."""
    if one is None:
        return "", ""
    text = signed(one.value, decimals)
    if not math.isfinite(one.low) or one.low == one.high:
        return text, ""
    return text, f"{signed(one.low, decimals)} to {signed(one.high, decimals)}"


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
            f"If all {len(names)} trained together ({base_of(method)}){how}: on average {told}; "
            f"{found['worse']} clearly worse, {found['better']} clearly better."
        )
    if run.formation.competition.pairs:
        pairs = counted(len(run.formation.competition.pairs), "pair")
        sentences[-1] += f" {pairs} of competitors would learn from each other."
    return tuple(sentences)


def _costs(run: "ConsortiumRun", results: Results) -> tuple[tuple[str, str], ...]:
    """Return what the run took: time, traffic, and what was shown to whom."""
    seconds = sum(spent for stage, spent in run.seconds.items() if stage != "report")
    simulated = isinstance(run.repetitions.federation, SimulatedFederation)
    where = "on this machine, for all members and methods" if simulated else "for the whole run"
    shared = [name for name in results.methods if name != OWN]
    company = len(run.alone) < len(run.formation.participants)
    traffic = _traffic(results, shared if company else [], EVERYBODY)
    return (
        ("Time", f"{spoken_time(seconds)} {where}"),
        ("Traffic", f"for each member on average {traffic}" if shared and company else traffic),
        ("Shown to others", _shown(run, shared, simulated)),
    )


def _traffic(results: Results, shared: Sequence[str], participant: str) -> str:
    """Return the megabytes of each method."""
    amounts = []
    for name in shared:
        _, sent, received = results.cost_of(name, participant)
        amounts.append(f"{sent} MB sent and {received} MB received with {name}")
    return listed(amounts) if amounts else "none: nothing was trained with others"


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
        ("Software", _software()),
        ("Data", f"{run.data.name}, SHA-256 {run.data.digest[:16]}…"),
    ]
    if run.data.fingerprints:
        prints = (f"{name} {value[:12]}" for name, value in run.data.fingerprints.items())
        facts.append(("Data of each", ", ".join(prints)))
    return tuple(facts)


def _software() -> str:
    return ", ".join(f"{name} {version}" for name, version in versions())

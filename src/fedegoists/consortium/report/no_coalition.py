"""The reasons why no coalition was formed, for a manager who expected one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.coalitions import form
from fedegoists.consortium.evidence import LOWEST_CONFIDENCE, evidence, relaxed_rule
from fedegoists.consortium.report.heatmap import MOST_DRAWN
from fedegoists.consortium.report.wording import counted, listed, weight
from fedegoists.federation import SimulatedFederation
from fedegoists.graphs import CurveValues, UncertainBenefits

if TYPE_CHECKING:
    from fedegoists.benefit import BenefitEstimate
    from fedegoists.consortium.consortium_run import ConsortiumRun

MOST_SHOWN = 6


@dataclass(frozen=True)
class NoCoalition:
    """The explanation on the page where no coalition has two members.

    Attributes
    ----------
    lead : str
        The reason in one sentence, for the top of the page; empty where there are benefits.
    sentences : tuple of str
        The rule, the benefits found, and the coalitions that a less strict rule would give.
    rows : tuple of (source, target, weight, confidence, counts)
        The benefits with the strongest evidence; no confidence where a threshold is the rule.
    command : str
        The file and options of a run that accepts less evidence; empty if that would not help.
    """

    lead: str
    sentences: tuple[str, ...]
    rows: tuple[tuple[str, str, str, str, bool], ...]
    command: str


def no_coalition(run: "ConsortiumRun") -> NoCoalition | None:
    """Return why no coalition was formed; None if one was, or if the reason is obvious."""
    formation, estimate = run.formation, run.benefit.estimate
    n = len(formation.participants)
    if estimate is None or n < 2 or n > MOST_DRAWN or len(formation.coalitions) < n:
        return None
    if isinstance(formation.values, CurveValues):
        return None  # the expected gains say it
    section = run.settings.benefit
    by_threshold = section.threshold is not None
    counting = formation.benefit.weights > 0
    edges = int(counting.sum())
    if by_threshold:
        rule = f"its weight is above {section.threshold:g}"
    else:
        rule = f"it is above zero with a confidence of {100 * section.confidence:g} % or more"
    does = "does" if edges == 1 else "do"
    sentences = [
        f"A benefit counts where {rule}. Of {counted(n * (n - 1), 'possible benefit')}, "
        f"{edges or 'none'} {does}."
    ]
    if edges:
        sentences.append(
            "These are not enough: in a coalition every member must benefit another one and be "
            "benefited by another one, and nothing may reach a competitor."
        )
    if formation.fewest_members > 2:
        sentences.append(
            f"A coalition must have at least {formation.fewest_members} members here "
            "(formation.fewest_members)."
        )
    alternative, command = _less_strict(run, estimate, by_threshold)
    sentences.append(alternative)
    if estimate.absent:
        sentences.append(
            f"This is no answer: the estimates for {listed(estimate.absent)} failed. Repair that, "
            "and run again."
        )
    else:
        sentences.append(
            "This is an answer, not a failure: the data does not show that collaboration helps. "
            "More validation data makes benefits more certain; more repeats of the estimator "
            f"(benefit.repeats, now {estimate.repeats}) do, a little."
        )
    order = {name: k for k, name in enumerate(formation.participants)}
    strength = "large" if by_threshold else "certain"
    return NoCoalition(
        "" if edges else f"No benefit between any two participants is {strength} enough to count.",
        tuple(sentences),
        tuple(
            (
                one.source,
                one.target,
                weight(one.weight),
                "" if by_threshold else f"{100 * one.level:.0f} %" if one.level else "no saving",
                bool(counting[order[one.source], order[one.target]]),
            )
            for one in evidence(estimate, by_threshold=by_threshold)[:MOST_SHOWN]
        ),
        command,
    )


def _less_strict(
    run: "ConsortiumRun", estimate: "BenefitEstimate", by_threshold: bool
) -> tuple[str, str]:
    """Return what a less strict rule would give, and the option of a command that sets it."""
    deployed = not isinstance(run.repetitions.federation, SimulatedFederation)
    # A deployed run reads the file beside the coordinator's kit, as before.
    file = "consortium.toml --engine flare" if deployed else "config.toml"
    if isinstance(run.formation.values, UncertainBenefits):
        ignoring = form(
            run.formation.values,
            run.formation.competition,
            risk="ignore",
            fewest_members=run.formation.fewest_members,
        )
        together = [group for group in ignoring.coalitions if len(group) > 1]
        if together:
            groups = listed([f"{{{', '.join(group)}}}" for group in together])
            return (
                "The probability that nobody rides free would be too low: at least "
                f"{run.formation.confidence:g} is demanded (formation.confidence). If errors are "
                f"ignored, {groups} would train together.",
                f"{file} --set formation.risk=ignore",
            )
    less = relaxed_rule(
        estimate,
        run.formation.competition,
        by_threshold=by_threshold,
        fewest_members=run.formation.fewest_members,
    )
    key = "threshold" if by_threshold else "confidence"
    if less is not None:
        groups = listed([f"{{{', '.join(group)}}}" for group in less.coalitions])
        return (
            f"With a {key} of {less.level:g}, {counted(less.edges, 'benefit')} would count, and "
            f"{groups} would train together, on that much weaker evidence.",
            f"{file} --set benefit.{key}={less.level:g}",
        )
    lowest = estimate.graph(0.0) if by_threshold else estimate.graph(confidence=LOWEST_CONFIDENCE)
    most = int((lowest.weights > 0).sum())
    if not most:
        return "There is not even weak evidence for any benefit.", ""
    return (
        f"No lower {key} that was tried would change that: even with "
        f"{'0' if by_threshold else f'{100 * LOWEST_CONFIDENCE:g} %'}, "
        f"{counted(most, 'benefit')} would count, and in no coalition would every member give and "
        "receive without helping a competitor.",
        "",
    )

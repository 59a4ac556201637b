"""Why nobody trains together, for a manager who expected otherwise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.consortium.evidence import LEAST_SURE, Evidence, evidence, relaxed
from fedegoists.consortium.report.heatmap import MOST_DRAWN
from fedegoists.consortium.report.wording import counted, listed, weight

if TYPE_CHECKING:
    from fedegoists.consortium.pipeline import ConsortiumRun

__all__ = ["Nobody", "nobody"]

MOST_SHOWN = 6


@dataclass(frozen=True)
class Nobody:
    """What the page says where no coalition has two members.

    Attributes
    ----------
    lead : str
        The reason in one sentence, for the top of the page; empty where there are benefits.
    sentences : tuple of str
        What was asked for, what was found, and what would have been decided otherwise.
    rows : tuple of (source, target, weight, level, counts)
        The benefits with the strongest evidence.
    level : str
        What the fourth entry of a row is.
    command : str
        What to add to the command to accept less evidence; empty if that would not help.
    """

    lead: str
    sentences: tuple[str, ...]
    rows: tuple[tuple[str, str, str, str, bool], ...]
    level: str
    command: str


def nobody(run: "ConsortiumRun") -> Nobody | None:
    """Return why nobody trains together; nothing if somebody does, or if that is plain."""
    formation, estimate = run.formation, run.benefit.estimate
    n = len(formation.participants)
    if estimate is None or n < 2 or n > MOST_DRAWN or len(formation.coalitions) < n:
        return None
    section = run.settings.benefit
    by_threshold = section.threshold is not None
    found = evidence(estimate, by_threshold=by_threshold)
    counting = formation.benefit.weights > 0
    edges = int(counting.sum())
    if by_threshold:
        rule = f"A benefit counts where its weight is above {section.threshold:g}"
        key, level = "benefit.threshold", "Weight"
    else:
        rule = (
            "A benefit counts where it is above zero with a confidence of "
            f"{100 * section.confidence:g} % or more"
        )
        key, level = "benefit.confidence", "Sure to"
    are = "does" if edges == 1 else "do"
    sentences = [f"{rule}. Of {counted(n * (n - 1), 'possible benefit')}, {edges or 'none'} {are}."]
    if edges:
        sentences.append(
            "These are not enough: in a coalition everybody must benefit somebody and be benefited "
            "by somebody, and nothing may reach a competitor."
        )
    less = relaxed(estimate, formation.competition, by_threshold=by_threshold)
    command = ""
    if less is None:
        lowest = estimate.graph(0.0) if by_threshold else estimate.graph(confidence=LEAST_SURE)
        most = int((lowest.weights > 0).sum())
        lower = "threshold" if by_threshold else "confidence"
        sentences.append(
            f"No lower {lower} that was tried would change that: even with "
            f"{'0' if by_threshold else f'{100 * LEAST_SURE:g} %'}, "
            f"{counted(most, 'benefit')} would count, and in no coalition would everybody give "
            "and receive without helping a rival."
            if most
            else "There is not even weak evidence for any benefit."
        )
    else:
        groups = listed([f"{{{', '.join(group)}}}" for group in less.coalitions])
        sentences.append(
            f"With {less.level:g} instead, {counted(less.edges, 'benefit')} would count, and "
            f"{groups} would train together, on that much weaker evidence."
        )
        command = f"--set {key}={less.level:g}"
    sentences.append(
        "It is an answer, not a failure: that collaboration helps has not been shown with the data "
        "there is. More validation data makes benefits surer; more repeats "
        f"(benefit.repeats, now {estimate.repeats}) do, a little."
    )
    order = {name: k for k, name in enumerate(formation.participants)}
    return Nobody(
        ""
        if edges
        else "No benefit between any two participants is "
        f"{'large' if by_threshold else 'sure'} enough to count.",
        tuple(sentences),
        tuple(
            (
                one.source,
                one.target,
                weight(one.weight),
                _level(one, by_threshold=by_threshold),
                bool(counting[order[one.source], order[one.target]]),
            )
            for one in found[:MOST_SHOWN]
        ),
        level,
        command,
    )


def _level(one: Evidence, *, by_threshold: bool) -> str:
    if by_threshold:
        return weight(one.level)
    return f"{100 * one.level:.0f} %" if one.level > 0 else "no saving"

"""The page of the study of what Principle 1 costs."""

import math
import statistics
from collections.abc import Callable, Sequence

from reproduction import principle_one_study as study
from reproduction.principle_one import RANDOM, GraphCost
from reproduction.principle_one_study import MemberCost, means, test_ratio, welfare_lost
from reproduction.repeated_runs import corrected
from reproduction.table_results import interval

__all__ = ["principle_page"]

MISSING = "–"
"""What nobody has, or what is not measured."""
INTERVALS = (
    "Intervals are of 95 %, over repetitions, by Student's t; where repetitions divide the same "
    "patients, with the correction of Nadeau and Bengio."
)
EXACT = (
    "Nothing is trained here. Both partitions are the best there are, by the exact search of the "
    "package; welfare is the sum of all benefits inside coalitions."
)


def principle_page(graphs: Sequence[GraphCost], members: Sequence[MemberCost], origin: str) -> str:
    """Return the results as a page."""
    about = (study.__doc__ or "").partition("\n\n")[2].partition("    python")[0].strip()
    lines = ["# What Principle 1 costs", "", *about.splitlines(), ""]
    if members:
        lines += ["## Trained models", "", INTERVALS, "", *_bindings(members), ""]
        for task in dict.fromkeys(one.task for one in members):
            lines += [f"### {task}", "", *_costs([o for o in members if o.task == task]), ""]
    if graphs:
        drawn = [one for one in graphs if one.source == RANDOM]
        learned = [one for one in graphs if one.source != RANDOM]
        proven = sum(one.proven for one in graphs)
        lines += ["## Welfare, exactly", "", EXACT, ""]
        lines += [f"Proven for {proven:,} of {len(graphs):,} graphs.", ""]
        lines += ["### Benefit graphs of the tables", "", *_learned(learned), ""]
        lines += ["### Random graphs", "", *_random(drawn)]
    return "\n".join([*lines, origin, ""])


def _bindings(members: Sequence[MemberCost]) -> list[str]:
    """Return where the principle changes coalitions, and what that costs in expected welfare."""
    lines = [
        "In how many repetitions the principle changes who has company with whom, participants of "
        "these roles over all repetitions, and how much of the expected welfare it costs, in the "
        "repetitions in which anybody expects to gain:",
        "",
        "| task | benefits | coalitions change | nobody in company: with, without | riders "
        "| donors | lose their company | expected welfare lost |",
        "|---" * 8 + "|",
    ]
    for own in _parts(members):
        first = own[0]
        once = [one for one in own if one.method == first.method]
        seeds = sorted({one.repetition for one in once})
        changed = sum(any(_moved(one) for one in once if one.repetition == s) for s in seeds)
        nobody = [
            sum(max(size(one) for one in once if one.repetition == s) == 1 for s in seeds)
            for size in (_with, _without)
        ]
        count = len(seeds)
        lost = list(welfare_lost(once).values())
        riders, donors = (sum(one.role == role for one in once) for role in ("rider", "donor"))
        left = sum(one.members_with == 1 < one.members_without for one in once)
        some = f"{_shown(lost, test_ratio(once), 2)}, {len(lost)} repetitions"
        shown = some if lost else "nothing to lose"
        lines.append(
            f"| {first.task} | {first.source} | {changed} of {count} | {nobody[0]}, {nobody[1]} of "
            f"{count} | {riders} | {donors} | {left} of {len(once)} | {shown} |"
        )
    return lines


def _moved(one: MemberCost) -> bool:
    """Whether a participant has other company, as far as numbers of members and utility tell."""
    return (one.members_with, one.expected_with) != (one.members_without, one.expected_without)


def _with(one: MemberCost) -> int:
    return one.members_with


def _without(one: MemberCost) -> int:
    return one.members_without


def _costs(members: Sequence[MemberCost]) -> list[str]:
    """Return gains with and without the principle, and the cost to every role."""
    lines = [
        "| benefits | method | gain with it | gain without it | cost to everybody | to riders "
        "| to donors | to all others |",
        "|---" * 8 + "|",
    ]
    for part in _parts(members):
        for method in dict.fromkeys(one.method for one in part):
            own = [one for one in part if one.method == method]
            ratio = test_ratio(own)
            cells = [
                _shown(_averages(own, lambda one: one.gain_with), ratio),
                _shown(_averages(own, lambda one: one.gain_without), ratio),
                *(
                    _cost(means(own, role), ratio, own)
                    for role in (None, "rider", "donor", "member")
                ),
            ]
            lines.append(f"| {own[0].source} | {method} | {' | '.join(cells)} |")
    return lines


def _parts(members: Sequence[MemberCost]) -> list[list[MemberCost]]:
    """Return the rows of each task and source."""
    places = dict.fromkeys((one.task, one.source) for one in members)
    return [[one for one in members if (one.task, one.source) == place] for place in places]


def _averages(members: Sequence[MemberCost], number: Callable[[MemberCost], float]) -> list[float]:
    by_repetition: dict[int, list[float]] = {}
    for one in members:
        if math.isfinite(number(one)):
            by_repetition.setdefault(one.repetition, []).append(number(one))
    return [statistics.fmean(own) for own in by_repetition.values()]


def _cost(found: dict[int, float], ratio: float, own: Sequence[MemberCost]) -> str:
    """Return a mean with its interval, and of how many repetitions where these are not all."""
    if not found:
        return MISSING
    count = len({one.repetition for one in own})
    some = f", {len(found)} repetitions" if len(found) < count else ""
    return _shown(list(found.values()), ratio) + some


def _shown(values: Sequence[float], ratio: float, digits: int = 3) -> str:
    if not values:
        return MISSING
    if len(values) < 2:
        return f"{values[0]:+.{digits}f}"
    return corrected(values, ratio).shown(digits)


def _learned(graphs: Sequence[GraphCost]) -> list[str]:
    """Return a row for each kind of graph."""
    lines = [
        "Graphs of repetitions 0 to 9, with the competitors of the tables (images: 0.2). Means "
        "over graphs with any benefit, and the lowest and the highest:",
        "",
        "| graphs | number | density | welfare lost | graphs with a loss | all lost | riders, "
        "donors, participants that lose their company, per graph |",
        "|---" * 7 + "|",
    ]
    for source in dict.fromkeys(one.source for one in graphs):
        every = [one for one in graphs if one.source == source]
        own = [one for one in every if one.welfare_without > 0]
        lost = [max(one.lost, 0.0) for one in own]
        share = (
            f"{statistics.fmean(lost):.0%} ({min(lost):.0%} to {max(lost):.0%})"
            if lost
            else MISSING
        )
        counts = ", ".join(
            f"{statistics.fmean(values):.1f}"
            for values in zip(*((one.riders, one.donors, one.alone) for one in every), strict=True)
        )
        lines.append(
            f"| {source} | {len(every)}, {len(own)} with benefits | "
            f"{statistics.fmean(one.density for one in every):.2f} | {share} | "
            f"{sum(one.binds for one in own)} | {sum(one.welfare_with == 0 for one in own)} | "
            f"{counts} |"
        )
    return lines


def _random(graphs: Sequence[GraphCost]) -> list[str]:
    """Return a table for each level of competition, sizes in rows and densities in columns."""
    numbers = len({one.number for one in graphs})
    lines = [
        f"Benefits and competitors drawn independently, weights from 0 to 1, {numbers} graphs of "
        "each kind. The fraction of the welfare that is lost, by the probability of a benefit "
        "(mean, and its interval by Student's t over graphs in which anybody can gain), and in "
        "brackets the fraction of graphs in which all is lost:",
        "",
    ]
    densities = sorted({one.density for one in graphs})
    for competition in sorted({one.competition for one in graphs}):
        lines += [
            f"Probability of competition {competition:g}:",
            "",
            f"| participants | {' | '.join(f'{density:g}' for density in densities)} |",
            "|---" * (len(densities) + 1) + "|",
        ]
        for count in sorted({one.participants for one in graphs}):
            cells = []
            for density in densities:
                own = [
                    one
                    for one in graphs
                    if (one.participants, one.competition, one.density)
                    == (count, competition, density)
                    and one.welfare_without > 0
                ]
                cells.append(_fraction(own))
            lines.append(f"| {count} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _fraction(graphs: Sequence[GraphCost]) -> str:
    if not graphs:
        return MISSING
    mean, low, high = interval([one.lost for one in graphs])
    whole = sum(one.welfare_with == 0 for one in graphs) / len(graphs)
    return f"{mean:.1%}, {max(low, 0):.1%} to {min(high, 1):.1%} [{whole:.0%}]"

"""A page for each table: our numbers, the published ones, differences and their origin."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from fedegoists.methods.method_registry import TUNED
from reproduction.budgets import BUDGETS, BudgetName, budget_words
from reproduction.rate_choice import Company
from reproduction.reproduced_tables import ReproducedTable
from reproduction.table_results import (
    AVERAGE,
    Difference,
    TableLine,
    WorstCase,
    differences,
    interval,
    lower_is_better,
    published_value,
    published_worst,
    worst_compared,
)
from reproduction.variants import (
    BASELINES,
    FOUR_TIMES,
    INTERPOLATED_ENDING,
    MODERN,
    OURS,
    OURS_AT_BEST,
    SIXTEEN_TIMES,
    YARDSTICKS,
)

__all__ = ["page", "worst_page"]

RULES = (
    "All methods take the same number of steps with the same batch size. Exceptions are counted "
    "below: contributors of FedEgoists compute gradients for others, `+ft` adds tuning steps, and "
    "some rows train several times as long, as their names say. The step is chosen on validation "
    "data. In rows `+wise` it may also be a mean of the models before and after tuning.",
    "Momentum starts at zero in every round. Only rows of EgoMix, `local-kept` and `fedavgm-kept` "
    "keep it from round to round, unless a row says otherwise.",
    "Rows named `-wide` assume that all participants benefit all others, and train in the best "
    "coalitions: the widest ones that competition allows. All other rows have learned benefits, "
    "unless a row says otherwise.",
    "`fedegoists` learns its preferences by alignment, and only contributors contribute. The "
    "tables `hypernetwork` and `contributors` have the published slope and whole coalitions.",
)
COMPARED = (
    ("fedegoists", "local"),
    ("egomix", "local"),
    ("egomix", "local-kept"),
    ("egomix-wide", "local"),
    ("egomix-wide", "local-kept"),
    ("egomix-wide", "egomix"),
    ("egomix-0.8-wide", "local"),
    *((OURS_AT_BEST, name) for name in ("local", "fedavgm-kept-wide+wise")),
    *(
        (f"egomix{wide}", f"{name}{wide}+ft")
        for wide in ("", "-wide")
        for name in ("fedavgm", "slowmo")
    ),
    *(
        (f"{one}{more}", f"local{more}")
        for more in (FOUR_TIMES, SIXTEEN_TIMES)
        for one in YARDSTICKS
    ),
)
"""The comparisons of every table, besides those with the best baseline."""
BASELINE_NAMES = (*(variant.name for variant in BASELINES if not variant.tuned), *MODERN, "fedpac")
LIKE_EACH_OTHER = {
    "": "",
    "-wide": "",
    FOUR_TIMES: FOUR_TIMES,
    SIXTEEN_TIMES: SIXTEEN_TIMES,
    f"-wide{SIXTEEN_TIMES}": SIXTEEN_TIMES,
}
"""Ends of the names of baselines that are compared, and of our rows beside them."""
CHOSEN = (
    "At convergence every method's learning rate was chosen on validation data, as listed below. "
    "The published budget has published rates. All other settings are the methods' defaults."
)
NOT_CHOSEN = (
    "Nothing was chosen for this table: all rows have one learning rate and their own settings."
)
CORRECTED_CHOICE = (
    "The learning rate and one or two settings of every row were chosen on the validation data of "
    "repetitions 10 to 12, which no table shows, with as many trials for every row; see below. At "
    "another β only rows whose training diverges there choose again. "
    "All other settings are the methods' defaults. `egomix-0.8` is EgoMix with a momentum of "
    "mixtures of 0.8, which was chosen on the same repetitions among some twenty variants; "
    "`fedavgm-kept` is FedAvgM with the two momenta that EgoMix has."
)
BEST_OF_ALL = (
    "Against the best of all other rows, which is picked by these test results; that favours it:"
)
BEFORE_CORRECTIONS = (
    "**Trained before corrections of some methods.** The rows `feddisco` "
    "(divergences were not divided by their sum), `fedegoists` (one learning-rate schedule for "
    "both phases, nothing tuned), `fedora` (a pull through the momentum), `pfedgraph` (the "
    "aggregate instead of the own model) and, where there are classes, `egomix` (means weighted by "
    "labels, outputs by class), with all their variants, are not those of the methods as they are "
    "now. Benefits were learned once among all participants, where the released code "
    "learns again inside each clique, so baselines have smaller coalitions here than in the paper. "
    "Learning rates were chosen on repetitions that the table shows, nothing else was tuned, and "
    "averages with momentum at the server are missing. Corrected tables have names that end in "
    "`-corrected`."
)
WORST_CORRECTED = (
    "Not what the paper shows, which compares with nine baselines before tuning: here all rows of "
    "the corrected tables count, tuned or not, and the best of up to forty is picked by these "
    "results."
)
RATES_CHOSEN = (
    "Multiples of the budget's rate, with the mean validation metric of the deciding "
    "repetitions in brackets. The best mean decides for each untuned row; tuned rows have the "
    "rate of their method. On images the first repetition decides: half, once and twice are "
    "tried, and further while the smallest or the largest is best. Elsewhere all repetitions "
    "decide; on synthetic data a quarter to sixteen times are tried. A rate with more than one "
    "in a hundred failed rounds in these repetitions is not chosen. Costs above do not include "
    "this choice."
)
RATES_CHOSEN_CORRECTED = (
    "Multiples of the budget's rate, then the setting that was chosen if it is not the default, "
    "with the mean validation metric of repetitions 10 to 12 in brackets. Rates come first: half, "
    "once and twice the budget's, and further while the smallest or the largest is best; on "
    "synthetic data once, twice, four and eight times. Then two other settings are tried at the "
    "best rate, of one parameter or of two, or two rates beside it for methods without a "
    "parameter. On images, the score of a trial is the better of its validation metrics before and "
    "after tuning, and both rows have the same choice; in brackets is the metric before tuning. "
    "Elsewhere tuned rows have the choice of their method, which is made before tuning. Trials "
    "with failures in more than 1 % of rounds are not chosen, for any method. Costs above do not "
    "include this choice."
)
ABOUT_ROUNDS = (
    "",
    "Validation sets of hospitals have 15 to 78 patients, too few for each participant to choose "
    "its own round. Here the same mean also chooses the number of rounds, one for all participants "
    "and repetitions of a method. Fine-tuning begins there; each participant chooses its end.",
)
Rates = Mapping[str, Mapping[str, float | None]]
"""Chosen multiples of learning rates, by data set with partition, and by row."""
Companies = Mapping[str, Mapping[str, Company]]
"""Preferred coalitions, by data set with partition, and by method."""


def page(
    table: ReproducedTable,
    lines: Sequence[TableLine],
    command: str,
    rates: Rates,
    repetitions: Mapping[BudgetName, int],
    companies: Companies,
    rounds: Mapping[str, Mapping[str, int]],
    validation: Mapping[str, Mapping[str, float]],
    settings: Mapping[str, Mapping[str, str]],
) -> str:
    """Return a table's page in Markdown; empty `rates` mean that none were chosen."""
    parts = [f"# {table.title}", ""]
    first = (BEFORE_CORRECTIONS,) if table.revision == 1 else ()
    chosen = CHOSEN if table.revision == 1 else CORRECTED_CHOICE
    missing = _missing(table, lines, repetitions) if table.revision > 1 else ()
    notes = (*first, *missing, *table.notes, *RULES, chosen if rates else NOT_CHOSEN)
    parts += [f"{note}\n" for note in notes]
    for name in BUDGETS:
        own = [line for line in lines if line.budget == name]
        if own:
            parts += _budget_part(table, own, name, repetitions[name])
    if any(line.budget != "published" for line in lines):
        corrected = table.revision > 1
        parts += _chosen(rates, rounds, validation, settings, corrected=corrected)
        parts += _preferred(companies)
    parts += _origin(lines, command)
    return "\n".join(parts) + "\n"


def _missing(
    table: ReproducedTable, lines: Sequence[TableLine], repetitions: Mapping[BudgetName, int]
) -> tuple[str, ...]:
    """Return a note on the columns and rows of a table that are not trained; none if all are."""
    wanted = repetitions[table.budget] if table.budget else 0
    trained = {(_column(dict(line.key)), line.method): line.n for line in lines}
    places = [
        (_column(key), row.name)
        for key, scenario in table.scenarios
        for row in table.rows_in(scenario)
    ]
    columns = list(dict.fromkeys(column for column, _ in places))
    names = [variant.name for variant in table.variants]
    whole = sum(trained.get(place, 0) >= wanted for place in places)
    if whole == len(places):
        return ()
    text = (
        f"**Not complete**: {whole} of {len(places)} numbers have all of their {wanted} "
        "repetitions. Comparisons are among trained rows."
    )
    bare = [one for one in columns if not any((one, name) in trained for name in names)]
    text += f" Columns without any number: {'; '.join(bare)}." if bare else ""
    rows = [name for name in names if any((one, name) in trained for one in columns)]
    without = [name for name in names if name not in rows]
    if 2 * len(rows) < len(names):
        text += f" Only these rows have numbers: {'; '.join(rows)}."
    elif without:
        text += f" Rows without any number: {'; '.join(without)}."
    return (text,)


def _column(key: Mapping[str, Any]) -> str:
    """Return the scenario of a line in words; participants are no scenario."""
    return ", ".join(f"{AXES.get(k, '')}{x}" for k, x in key.items() if k != "participant")


def _chosen(
    rates: Rates,
    rounds: Mapping[str, Mapping[str, int]],
    validation: Mapping[str, Mapping[str, float]],
    settings: Mapping[str, Mapping[str, str]],
    *,
    corrected: bool,
) -> list[str]:
    """Return the part on chosen learning rates, settings and rounds."""
    if not rates:
        return []
    rows = dict.fromkeys(name for own in rates.values() for name in own)
    parts = [
        "## Learning rates",
        "",
        RATES_CHOSEN_CORRECTED if corrected else RATES_CHOSEN,
        *(ABOUT_ROUNDS if rounds else ()),
        "",
        f"| method | {' | '.join(rates)} |",
        "|---" * (len(rates) + 1) + "|",
    ]
    for name in rows:
        if corrected and all(own.get(name) is None for own in rates.values()):
            continue  # not trained yet, as the page says above
        shown = (
            ""
            if name not in rates[where]  # the table has no such number
            else _rate(
                rates[where][name],
                rounds.get(where, {}).get(name),
                validation.get(where, {}).get(name),
                settings.get(where, {}).get(name, ""),
            )
            for where in rates
        )
        parts.append(f"| {name} | {' | '.join(shown)} |")
    return [*parts, ""]


def _rate(
    factor: float | None, rounds: float | None, validation: float | None, setting: str
) -> str:
    if factor is None:
        return "not chosen yet"
    text = f"{factor:.3g}" if rounds is None else f"{factor:.3g}, {rounds} rounds"
    text = f"{text}, {setting}" if setting else text
    return text if validation is None else f"{text} ({validation:.3f})"


def _preferred(companies: Companies) -> list[str]:
    """Return the part on the coalitions that validation data prefers."""
    if not companies:
        return []
    parts = [
        "## Coalitions that validation data prefers",
        "",
        "Along learned benefits, or the widest; in brackets the mean validation metric of both, in "
        "the repetitions that decide about learning rates. For hospitals, the former is that of "
        "the row along another trial's benefits.",
        "",
        f"| method | {' | '.join(companies)} |",
        "|---" * (len(companies) + 1) + "|",
    ]
    for method in dict.fromkeys(name for own in companies.values() for name in own):
        places = (own.get(method) for own in companies.values())
        shown = ("" if one is None else _choice(method, one) for one in places)
        parts.append(f"| {method} | {' | '.join(shown)} |")
    return [*parts, ""]


def _choice(method: str, company: Company) -> str:
    words = {None: "neither", method: "learned"}.get(company.preferred, "widest")
    return f"{words} ({', '.join(f'{value:.3f}' for value in company.validation.values())})"


def _budget_part(
    table: ReproducedTable, lines: Sequence[TableLine], name: BudgetName, repetitions: int
) -> list[str]:
    parts = [f"## Budget {name}", "", budget_words(name), ""]
    parts += ["### In short", "", *_in_short(lines, fair=table.revision > 1), ""]
    unit = "mean squared error" if lower_is_better(lines) else "per cent"
    text = (
        f"Our mean ± standard deviation over repetitions, {unit}; in brackets the published number "
        "and our difference to it."
    )
    parts += ["### Numbers", "", text, ""]
    parts += _pivot(lines, lambda line: _number(table, line, repetitions))
    for yardstick in ("fedegoists", "local"):
        gaps = differences(lines, (yardstick,))
        if gaps:
            text = f"Paired differences to {yardstick}, with 95 % confidence intervals."
            shown = {(gap.line.key, gap.line.method): _gap(gap) for gap in gaps}
            parts += [f"### Against {yardstick}", "", text, ""]
            parts += _pivot(lines, _Lookup(shown))
    if table.revision > 1 and not table.of_participants:
        text = "The lowest metric of any participant, mean over repetitions."
        parts += ["### The worst participant", "", text, "", *_pivot(lines, _worst)]
    return [*parts, "### What it cost", "", *_costs(lines), ""]


def _worst(line: TableLine) -> str:
    """Return the mean over repetitions of the metric of the worst participant."""
    lowest = (
        min((value for value in result.test.values() if math.isfinite(value)), default=math.nan)
        for result in line.results
    )
    return f"{100 * statistics.fmean(lowest):.1f}"


def _number(table: ReproducedTable, line: TableLine, repetitions: int) -> str:
    digits = 3 if lower_is_better([line]) else 1
    text = f"{line.mean:.{digits}f} ± {line.std:.{digits}f}"
    if line.n < repetitions:
        text += f", {line.n} of {repetitions} repetitions"
    published = published_value(table, line)
    if published is None:
        return text
    return f"{text} ({published:.{digits}f}, {line.mean - published:+.{digits}f})"


@dataclass(frozen=True)
class _Lookup:
    """The text shown for a line; empty where there is none."""

    shown: Mapping[tuple[Any, ...], str]

    def __call__(self, line: TableLine) -> str:
        return self.shown.get((line.key, line.method), "")


def _gap(gap: Difference) -> str:
    digits = 3 if lower_is_better([gap.line]) else 1
    if math.isnan(gap.low):
        return f"{gap.mean:+.{digits}f}"
    return f"{gap.mean:+.{digits}f} [{gap.low:+.{digits}f}, {gap.high:+.{digits}f}]"


def _pivot(lines: Sequence[TableLine], shown: Callable[[TableLine], str]) -> list[str]:
    """Return tables with a row for each method and a column for each value of the finest key."""
    axis = next(
        (name for name, _ in lines[0].key if name in ("alpha", "beta", "participant")),
        lines[0].key[-1][0],
    )
    sections: dict[tuple[Any, ...], list[TableLine]] = {}
    for line in lines:
        rest = tuple(value for name, value in line.key if name != axis)
        sections.setdefault(rest, []).append(line)
    parts: list[str] = []
    for rest, own in sections.items():
        columns = list(dict.fromkeys(dict(line.key)[axis] for line in own))
        if rest:
            parts += [f"**{', '.join(map(str, rest))}**", ""]
        heads = [f"{AXES.get(axis, '')}{column}" for column in columns]
        parts += [f"| method | {' | '.join(heads)} |", "|---" * (len(columns) + 1) + "|"]
        rows: dict[str, dict[Any, str]] = {}
        for line in own:
            rows.setdefault(line.method, {})[dict(line.key)[axis]] = shown(line)
        for method, cells in rows.items():
            if any(cells.values()):
                parts.append(f"| {method} | {' | '.join(cells.get(c, '') for c in columns)} |")
        parts.append("")
    return parts


AXES = {"alpha": "α = ", "beta": "β = "}


def _in_short(lines: Sequence[TableLine], *, fair: bool) -> list[str]:
    """Return comparisons of means over all scenarios, with intervals over repetitions.

    In `fair` tables, which have all methods, also with the best of all other rows; and where not
    all scenarios have the same rows, for those that all have, and for each scenario with more.
    """
    whole = [line for line in lines if dict(line.key).get("participant", AVERAGE) == AVERAGE]
    rows: dict[tuple[tuple[str, Any], ...], set[str]] = {}
    for line in whole:
        rows.setdefault(line.key, set()).add(line.method)
    common = set.intersection(*rows.values())
    if not fair or all(names == common for names in rows.values()):
        return _comparisons(whole, lower=lower_is_better(lines), fair=fair)
    parts: list[tuple[str, list[TableLine]]] = []
    if any(name.startswith(OURS) for name in common):
        parts.append(("All columns, rows that all of them have", whole))
    for key, names in rows.items():
        if names > common and any(name.startswith(OURS) for name in names):
            parts.append((_column(dict(key)), [line for line in whole if line.key == key]))
    said: list[str] = []
    for title, own in parts:
        over = " over all columns" if own is whole else ""
        compared = _comparisons(own, lower=lower_is_better(lines), fair=fair, over=over)
        said += [f"**{title}**", "", *compared, ""]
    return said or ["Nothing is complete yet."]


def _comparisons(
    whole: Sequence[TableLine], *, lower: bool, fair: bool, over: str = " over all columns"
) -> list[str]:
    """Return comparisons of means over the scenarios of some lines."""
    means = _overall(whole)
    if not means:
        return ["Nothing is complete yet."]
    better, digits = (min, 3) if lower else (max, 1)
    complete = max(len(by_repetition) for by_repetition in means.values())
    average = {m: sum(v.values()) / len(v) for m, v in means.items() if len(v) == complete}
    first = better(average, key=lambda method: average[method])
    kind = "Lowest" if lower else "Highest"
    said = [f"- {kind} mean{over}: {first}, {average[first]:.{digits}f}."]
    for one, other in COMPARED:
        said += _compared(means, one, other, digits)
    for ending, ours in LIKE_EACH_OTHER.items():
        for tuned in ("", TUNED, INTERPOLATED_ENDING):
            rivals = {
                f"{name}{ending}{tuned}": average[f"{name}{ending}{tuned}"]
                for name in BASELINE_NAMES
                if f"{name}{ending}{tuned}" in average
            }
            if rivals:
                best, _ = better(rivals.items(), key=itemgetter(1))
                for one in YARDSTICKS:
                    said += _compared(means, f"{one}{ours}", best, digits)
    said = list(dict.fromkeys(said))
    others = {m: value for m, value in average.items() if not m.startswith(OURS)}
    if fair and others:
        best, _ = better(others.items(), key=itemgetter(1))
        said += ["", BEST_OF_ALL, ""]
        for one in sorted(set(average) - set(others)):
            said += _compared(means, one, best, digits)
    return said


def _overall(lines: Sequence[TableLine]) -> dict[str, dict[int, float]]:
    """Return each method's mean over all scenarios, in each repetition that all of them have."""
    scenarios = {line.key for line in lines}
    by_method: dict[str, list[TableLine]] = {}
    for line in lines:
        by_method.setdefault(line.method, []).append(line)
    found = {}
    for method, own in by_method.items():
        repetitions = set.intersection(*(set(line.values) for line in own))
        if len(own) == len(scenarios) and repetitions:
            found[method] = {
                repetition: sum(line.values[repetition] for line in own) / len(own)
                for repetition in repetitions
            }
    return found


def _compared(
    means: Mapping[str, Mapping[int, float]], one: str, other: str, digits: int
) -> list[str]:
    if one not in means or other not in means:
        return []
    both = sorted(means[one].keys() & means[other].keys())
    if not both:
        return []
    gap, low, high = interval(
        [means[one][repetition] - means[other][repetition] for repetition in both]
    )
    sure = "" if math.isnan(low) else f", 95 % interval {low:+.{digits}f} to {high:+.{digits}f}"
    return [f"- {one} minus {other}: {gap:+.{digits}f}{sure} ({len(both)} repetitions)."]


def _costs(lines: Sequence[TableLine]) -> list[str]:
    rows: dict[str, list[TableLine]] = {}
    for line in lines:
        rows.setdefault(line.method, []).append(line)
    parts = [
        "| method | thousand sample passes a participant | MB sent | samples a second | failures |",
        "|---|---|---|---|---|",
    ]
    for method, own in rows.items():
        results = [result for line in own for result in line.results]
        passes, sent = (
            sum(result.spent[kind] for result in results) / len(results)
            for kind in ("sample_passes", "bytes_sent")
        )
        speeds = [result.about.get("samples_per_second", 0) for result in results]
        speed = sum(speeds) / len(speeds)
        numbers = (f"{passes / 1e3:,.0f}", f"{sent / 1e6:,.1f}", f"{speed:,.0f}")
        parts.append(f"| {method} | {' | '.join(numbers)} | {_failures(own):,} |")
    return [*parts, "", "A failure is a participant without a number in a round, such as diverged."]


def _failures(lines: Sequence[TableLine]) -> int:
    """Return the failures in all cells behind some lines, each cell once."""
    cells = {id(result): result for line in lines for result in line.results}
    return sum(result.about.get("failures", 0) for result in cells.values())


def _origin(lines: Sequence[TableLine], command: str) -> list[str]:
    """Return command, commits, devices and times."""
    results = [result for line in lines for result in line.results]
    times: dict[tuple[str, ...], float] = {}
    for result in results:
        times[tuple(result.about.get("pass", ()))] = result.about.get("pass_seconds", 0.0)
    seen = {
        name: sorted({str(result.about.get(name)) for result in results})
        for name in ("commit", "device", "torch", "finished")
    }
    first, *_, last = [*seen["finished"][:1], *seen["finished"]]
    days = first if first == last else f"{first} to {last}"
    return [
        "## Origin",
        "",
        "```sh",
        command,
        "```",
        "",
        f"- commit: {', '.join(seen['commit'])}",
        f"- device: {', '.join(seen['device'])}; PyTorch {', '.join(seen['torch'])}",
        f"- time: {sum(times.values()):,.0f} s summed over {len(times)} groups of cells, "
        f"without choosing; several may have run at once; {days}",
        "- `cells/` has the command that trains each cell again",
        "",
    ]


def worst_page(table: ReproducedTable, cases: Sequence[WorstCase], command: str) -> str:
    """Return Table 3's page."""
    first = BEFORE_CORRECTIONS if table.revision == 1 else WORST_CORRECTED
    which = "nine baselines" if table.revision == 1 else "other rows that are trained"
    methods = worst_compared(table)
    parts = [f"# {table.title}", "", *(f"{note}\n" for note in (first, *table.notes))]
    parts += [
        f"Of all repetitions, the one in which the best of the {which} is best; there, that "
        "baseline minus the method. Negative where the method is ahead.",
        "",
        f"| data | α | distribution | budget | {methods[0]} | published | best baseline | "
        f"{' | '.join(methods[1:])} |",
        "|---" * (6 + len(methods)) + "|",
    ]
    places: dict[tuple[Any, ...], dict[str, WorstCase]] = {}
    for case in cases:
        places.setdefault((case.key, case.budget), {})[case.method] = case
    for (key, budget), by_method in places.items():
        own = dict(key)
        published = published_worst(own)
        first_value, *others = (
            f"{by_method[name].value:+.4f}" if name in by_method else "" for name in methods
        )
        any_case = next(iter(by_method.values()))
        cells = (
            *(own[name] for name in ("dataset", "alpha", "distribution")),
            budget,
            first_value,
            "" if published is None else f"{published:+.4f}",
            f"{any_case.baseline} (repetition {any_case.repetition})",
            *others,
        )
        parts.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*parts, "", "```sh", command, "```", ""])

"""Output of the commands: tables for people, JSON for programs."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedegoists.cli.live_progress import EVERY, PlainLines, is_quiet
from fedegoists.coalitions import (
    CertificateCheck,
    CoreAudit,
    Explanation,
    Formation,
    Sensitivity,
    Verification,
    WhatIf,
    usage_graph,
)
from fedegoists.errors import MissingDependencyError
from fedegoists.install_hints import install_command

LogOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LOG", help="Log training to tensorboard, mlflow or wandb. May be repeated."
    ),
]

screen = Console()
errors = Console(stderr=True)


@contextmanager
def working(what: str) -> Iterator[Callable[[float, float], None]]:
    """Context manager with a status line and the log of the package, on a terminal only.

    It yields a function that shows a value and its upper bound. Without a terminal it prints a
    line about them now and then.
    """
    if is_quiet() or not errors.is_terminal:
        began = time.monotonic()

        def tell(value: float, bound: float) -> None:
            nonlocal began
            if time.monotonic() >= began + EVERY:
                began = time.monotonic()
                PlainLines(errors).say(f"{what} {value:.6g} of at most {bound:.6g}")

        yield tell
        return
    shown = 0.0
    with errors.status(what) as status, _logged(lambda text: status.update(f"{what} {text}")):

        def update(value: float, bound: float) -> None:
            nonlocal shown
            if time.monotonic() < shown + 0.1:
                return
            shown = time.monotonic()
            gap = 1 - value / bound if bound else 0.0
            status.update(f"{what} {value:.6g} of at most {bound:.6g} (gap {gap:.1%})")

        yield update


@contextmanager
def _logged(show: Callable[[str], None]) -> Iterator[None]:
    """Context manager that passes on the log of the package."""

    class Show(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show(record.getMessage())

    logger = logging.getLogger("fedegoists")
    handler, level = Show(logging.INFO), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def print_json(value: object) -> None:
    """Print a value as JSON on standard output."""
    plain = not (screen.encoding or "").casefold().startswith("utf")
    screen.print(
        json.dumps(value, ensure_ascii=plain, indent=2),
        markup=False,
        highlight=False,
        soft_wrap=True,
        emoji=False,
    )


def line(text: str, style: str = "", *, whole: bool = False) -> None:
    """Print one line; names in it are never read as markup.

    A `whole` line, such as a command to copy, is not wrapped.
    """
    screen.print(Text(text, style=style), soft_wrap=whole)


def near(path: Path) -> Path:
    """Return a path relative to the current folder, if it is inside."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


@contextmanager
def needs_extra(what: str, extras: str) -> Iterator[None]:
    """Context manager for imports that names the missing extras if one fails."""
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(
            f"{what} needs {error.name}: {install_command(extras)}"
        ) from None


def training_extra(what: str) -> AbstractContextManager[None]:
    """Context manager for imports that need the extra ``train``."""
    return needs_extra(what, "train")


def show_formation(formation: Formation) -> None:
    """Print the coalitions with each member's utility, the welfare, and the stability."""
    together = [group for group in formation.coalitions if len(group) > 1]
    alone = [group[0] for group in formation.coalitions if len(group) == 1]
    if together:
        table = Table(title="Who trains with whom", title_justify="left", title_style="bold")
        table.add_column("coalition", justify="right")
        table.add_column("participant", overflow="fold")
        for heading in _gain_columns(formation):
            table.add_column(heading, justify="right")
        table.add_column("from", overflow="fold")
        usage = usage_graph(formation)
        for number, group in enumerate(together, 1):
            for k, name in enumerate(group):
                sources = usage.nodes[name]["contributors"]
                table.add_row(
                    str(number) if k == 0 else "",
                    Text(name),
                    *_gain_cells(formation, name),
                    Text(", ".join(sources)),
                    end_section=k == len(group) - 1,
                )
        screen.print(table)
    if alone:
        line(f"Alone: {', '.join(alone)}" if len(alone) <= 20 else f"Alone: {len(alone)} of them")
    if not formation.participants:
        line("There are no participants, so there is nothing to decide.")
    line(_quality(formation))
    if (least := formation.fewest_members) > 1:
        line(f"Demanded: a coalition is one participant alone or has at least {least} members.")
    if formation.doubt is not None:
        line(
            "Demanded: nobody rides free in a coalition with probability "
            f"{formation.confidence:g} or more."
        )
        for sentence in formation.doubt.lines:
            line(sentence)
    elif formation.confidence is not None:
        line(f"Demanded: each member gains with probability {formation.confidence:g} or more.")
    line(_stability(formation))
    for note in formation.notes:
        line(f"Note: {note}.", "yellow")


def _gain_columns(formation: Formation) -> tuple[str, ...]:
    if formation.values is None:
        return ("gets",)
    return (f"gains {formation.values.unit}".rstrip(), "standard error", "probability")


def _gain_cells(formation: Formation, name: str) -> tuple[str, ...]:
    """Return what a member gets; with coalition values also how sure that is."""
    gain = formation.utilities[name]
    if formation.values is None:
        return (f"{gain:.3g}",)
    error, probability = formation.standard_errors[name], formation.probabilities[name]
    likely = f"{probability:.0%}" if probability < 0.995 else "> 99%"
    return (f"{gain:+.3g}", f"{error:.2g}", likely)


def _quality(formation: Formation) -> str:
    total = f"Total benefit {formation.welfare:.6g}"
    if formation.values is not None:
        total = f"Total expected gain {formation.welfare:.6g} {formation.values.unit}".rstrip()
    if formation.objective != "welfare":
        goal = {
            "fair": "the fairest partition",
            "participation": "as few alone as possible, then the most benefit",
        }[formation.objective]
        return f"{total}; aim: {goal}, {'proven' if formation.proven else 'not proven'}."
    if formation.optimal:
        return f"{total}, proven to be the highest possible."
    return (
        f"{total}; at most {formation.upper_bound:.6g} is possible "
        f"(method {formation.method}, gap {formation.gap:.1%})."
    )


def _stability(formation: Formation) -> str:
    if formation.stable:
        return "No coalitions could still gain by merging: proven."
    if formation.stable is False and formation.method == "truthful":
        return (
            "Some coalitions could still gain by merging. Merging them would reward false reports: "
            "fedegoists incentives shows it."
        )
    if formation.stable is False:
        return "Some coalitions could still gain by merging; method 'stable' would merge them."
    return "Whether coalitions could still gain by merging is not proven."


def titled_table(title: str, *columns: str) -> Table:
    """Return a table with a title and columns that wrap."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _row(table: Table, ok: bool, *cells: str) -> None:
    table.add_row(Text("ok", "green") if ok else Text("FAILED", "bold red"), *map(Text, cells))


def show_certificate_check(check: CertificateCheck) -> None:
    """Print each claim as stated and as found."""
    table = titled_table("Certificate", "", "claim", "stated", "found")
    for claim in check.claims:
        _row(table, claim.ok, claim.claim, claim.stated, claim.found)
    screen.print(table)


def show_verification(verification: Verification) -> None:
    """Print the three checks with their witnesses."""
    table = titled_table("Coalitions", "", "check", "found")
    unproven = ["not proven: the budget ended"] if verification.stable is None else []
    for name, witnesses in (
        ("no free riders", [str(w) for w in verification.free_riders]),
        ("no conflicts", [str(w) for w in verification.conflicts]),
        ("enough members", [str(w) for w in verification.too_small]),
        ("participation constraint", [str(w) for w in verification.unlikely]),
        ("merge-stable", [str(w) for w in verification.mergers] + unproven),
    ):
        left_out = {
            "enough members": verification.fewest_members == 1,
            "participation constraint": verification.confidence is None,
        }
        if not left_out.get(name, False):
            _row(table, not witnesses, name, "\n".join(witnesses))
    screen.print(table)


def show_sensitivity(found: Sensitivity, most: int) -> None:
    """Print the smallest changes that change coalitions, and what an unnamed competitor reaches."""
    for title, changes in (("Benefits", found.weights), ("Competition", found.reports)):
        if not changes:
            line(f"{title}: no change of one pair would change a coalition.")
            continue
        table = titled_table(title, "change", "another coalition for")
        for change in changes[:most]:
            case, _, moved = str(change).partition(": another coalition for ")
            table.add_row(Text(case), Text(moved))
        screen.print(table)
        if len(changes) > most:
            line(f"{len(changes) - most} more; --most shows more, --json all.", "dim")
    if found.reach:
        line("If a member competed with another without anybody saying so:")
        for reach in found.reach:
            line(f"- {reach}.")
        line("No decision can prevent that; have members confirm that they named all competitors.")
    else:
        line("Nobody trains with others, so an unnamed competitor would reach nothing.")
    if not found.exact:
        line("Changes were found by a search: smaller ones may do, too.", "yellow")
    if found.reports_open:
        line(
            f"{found.reports_open} pairs of competitors, or that could be, were not examined "
            "within the time limit.",
            "yellow",
        )
    if found.examined < found.pairs:
        line(
            f"The time limit ended this after {found.examined} of {found.pairs} pairs, those with "
            "the largest benefits first.",
            "yellow",
        )


def show_core(audit: CoreAudit) -> None:
    """Print whether a group would rather leave."""
    table = titled_table("Coalitions", "", "check", "found")
    _row(table, audit.core_stable is True, "core-stable", str(audit))
    screen.print(table)


def show_explanations(explanations: list[Explanation]) -> None:
    """Print explanations, one paragraph each."""
    for explanation in explanations:
        line(explanation.sentence)


def show_what_if(result: WhatIf) -> None:
    """Print the difference, then the new formation."""
    line(str(result))
    screen.print()
    show_formation(result.after)

"""The command about incentives: who would gain by a false report."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fedegoists.cli.coalition_commands import certified_formation
from fedegoists.cli.live_progress import PlainLines, QuietOption, is_quiet
from fedegoists.cli.output import JsonOption, errors, line, print_json, screen, titled_table
from fedegoists.coalitions import FormationMethod
from fedegoists.coalitions.incentives import (
    IncentiveReport,
    Temptation,
    incentives,
    inspection_probability,
)
from fedegoists.coalitions.incentives.incentive_report import DEFAULT_SECONDS, IncentiveProgress
from fedegoists.coalitions.incentives.reporting import LIES
from fedegoists.errors import SettingsError
from fedegoists.graphs import read_graphs

LEGEND = (
    "misreport: of the benefit it receives. invent, hide: a competitor. duplicate: take part under "
    "two names. leave: together with others. inspect: how often, so that no misreport pays."
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("incentives")(incentives_command)


def incentives_command(
    benefit: Annotated[
        Path,
        typer.Argument(
            metavar="BENEFIT",
            help="CSV with source,target,weight, or JSON; or a certificate.json that `form` wrote.",
        ),
    ],
    competition: Annotated[
        Path | None,
        typer.Argument(
            metavar="[COMPETITION]", help="CSV with a,b; or JSON. Left out with a certificate."
        ),
    ] = None,
    method: Annotated[
        FormationMethod | None,
        typer.Option(help="The formation method (default: the certificate's, or best)."),
    ] = None,
    fewest_members: Annotated[
        int | None,
        typer.Option(
            "--fewest-members", min=1, metavar="K", help="As for `form` (default: as certified)."
        ),
    ] = None,
    deposit: Annotated[
        float,
        typer.Option(
            min=0, metavar="AMOUNT", help="What a liar that is found loses besides its place."
        ),
    ] = 0.0,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", metavar="SECONDS", min=0.01, help="Time for the command."),
    ] = DEFAULT_SECONDS,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
    as_json: JsonOption = False,
) -> None:
    """Compute who would gain by a false report. Manager only: it names competitors."""
    if competition is None:
        if benefit.suffix.casefold() != ".json":
            raise SettingsError(
                "expected two files, BENEFIT and COMPETITION; or one certificate.json"
            )
        formation = certified_formation(benefit)
        if formation.objective != "welfare" or formation.values is not None:
            incentives(formation)  # refused, with the reason
        graphs = formation.benefit, formation.competition
        default, seed, least = formation.method, formation.seed, formation.fewest_members
    else:
        graphs = read_graphs(benefit, competition, None, tell=lambda text: errors.print(text))
        default, seed, least = "best", 0, 1
    with _counting("Trying false reports") as progress:
        report = incentives(
            *graphs,
            method or default,
            seed=seed,
            fewest_members=least if fewest_members is None else fewest_members,
            deposit=deposit,
            time_limit=time_limit,
            progress=progress,
        )
    if as_json:
        print_json(report.to_dict())
    else:
        show_incentives(report)


@contextmanager
def _counting(what: str) -> Iterator[IncentiveProgress]:
    """Context manager that shows how many participants are done."""
    if is_quiet() or not errors.is_terminal:
        lines = PlainLines(errors)
        yield lambda done, total: lines(what, done, total, "participants")
        return
    with errors.status(what) as status:
        yield lambda done, total: status.update(f"{what}: {done}/{total} participants")


def show_incentives(report: IncentiveReport) -> None:
    """Print the gains of each participant, the lies that bring them, and the inspection rate."""
    title = f"What a false report would add (method {report.method})"
    table = titled_table(title, "participant", "gets", *LIES, "inspect")
    for one in report.participants:
        table.add_row(
            Text(one.participant),
            f"{one.utility:.3g}",
            *(_amount(one.by(lie)) for lie in LIES),
            f"{one.inspection_probability:.0%}" if one.inspection_probability else "–",
        )
    screen.print(table)
    line(LEGEND, "dim")
    for one in report.participants:
        found = one.by("misreport")
        if found.gain > 0:
            line(
                f"{one.participant} gains {found.gain:.3g} by reporting {found.report}; "
                f"all others together {_change(-found.others_lose)}."
            )
    prices = [(one.participant, one.price_of_names or 0.0) for one in report.participants]
    if costly := [f"{name} {price:.3g}" for name, price in prices if price > 0]:
        line(f"What competitors take from all others, by participant: {', '.join(costly)}.")
    line(_verdict(report))
    for note in report.notes:
        line(f"Note: {note}.", "yellow")


def _amount(found: Temptation) -> str:
    """Return a gain, with the upper bound where not all lies were tried."""
    if found.exact:
        return f"+{found.gain:.3g}" if found.gain > 0 else "–"
    return f"+{found.gain:.3g} to {found.bound:.3g}" if found.gain > 0 else f"≤ {found.bound:.3g}"


def _change(amount: float) -> str:
    return f"gain {amount:.3g}" if amount > 0 else f"lose {-amount:.3g}"


def _verdict(report: IncentiveReport) -> str:
    if all(one.by("misreport").bound <= 0 for one in report.participants):
        return "No participant gains by misreporting the benefit it receives."
    rate = report.inspection_probability
    beside = f" and a deposit of {report.deposit:g}" if report.deposit else ""
    if not all(one.by("misreport").exact for one in report.participants):
        found = max(
            inspection_probability(one.utility, one.by("misreport").gain, report.deposit)
            for one in report.participants
        )
        return (
            f"Not all reports were tried. With exclusion{beside} for liars, the lies that were "
            f"found do not pay if each report is inspected with probability {found:.0%}; "
            f"{rate:.0%} is enough for all. Under method 'truthful' misreports never pay."
        )
    if rate >= 1:
        return (
            "No rate of inspections makes misreports unprofitable by exclusion alone, as a "
            "participant that receives nothing has nothing to lose. Ask for a deposit (--deposit), "
            "measure benefits instead of asking for them, or use method 'truthful'."
        )
    return (
        f"With exclusion{beside} for liars, misreports do not pay if each report is inspected with "
        f"probability {rate:.0%} or more. Under method 'truthful' they never pay."
    )

"""The command demo: built-in examples."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedegoists.cli.coalition_commands import FORMATION_FILES, write_formation
from fedegoists.cli.consortium_commands import run_consortium
from fedegoists.cli.live_progress import QuietOption
from fedegoists.cli.output import (
    line,
    screen,
    show_certificate_check,
    show_formation,
    training_extra,
)
from fedegoists.coalitions import explain, form
from fedegoists.errors import SettingsError
from fedegoists.folder_swap import check_replaceable

KINDS = ("registries", "synthetic", "coalitions")
OTHER_NAMES = {"consortium": "registries"}
"""Earlier names."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("demo")(demo_command)


def demo_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[registries|synthetic|coalitions]",
            help="Eight registries of a rare disease, from data to report; the same for the "
            "synthetic data of the paper; or the coalitions of ten banks only.",
        ),
    ] = "registries",
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write the example's files.")
    ] = Path("demo"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the results of an earlier call in DIR.")
    ] = False,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
) -> None:
    """Run a built-in consortium from data to report, or form and explain ten banks' coalitions."""
    kind = OTHER_NAMES.get(kind, kind)
    if kind not in KINDS:
        raise SettingsError(f"unknown demo {kind!r}; there are {', '.join(KINDS)}")
    if kind == "coalitions":
        _coalitions(out / "coalitions", replace=replace)
    else:
        _consortium(out / kind, kind, replace=replace)


STORIES = {
    "registries": (
        "Eight registries of a rare muscle disease, with 140 to 240 patients each, predict how far "
        "a patient will walk a year from now. There are two forms of the disease; which registry "
        "has which form is not told to anybody. Two registries compete."
    ),
    "synthetic": (
        "Eight participants learn one task; four have much data, four little, and some compete."
    ),
}


def _consortium(out: Path, kind: str, *, replace: bool) -> None:
    with training_extra("this demo (unlike `fedegoists demo coalitions`)"):
        from fedegoists.consortium import pipeline  # noqa: F401
    from fedegoists.consortium.example_files import init

    file = out / "consortium.toml"
    if not file.exists():
        init(out, kind)  # type: ignore[arg-type]
    line(STORIES[kind])
    line(f"{file} describes them.\n")
    run_consortium(file, resume=True, replace=replace)
    line("\nNow change something in the file and run it again, or start your own:")
    line(f"  {_command()} run {file} --name again", "bold", whole=True)
    line(f"  {_command()} init my-consortium --example own", "bold", whole=True)


def _coalitions(out: Path, *, replace: bool) -> None:
    from fedegoists.examples import banks

    check_replaceable(out, FORMATION_FILES, replace=replace)
    benefit, competition = banks()
    line("Ten banks could learn from one another's data, but some compete.\n")
    formation = form(benefit, competition)
    show_formation(formation)
    published = form(benefit, competition, "published")
    line(
        f"The published algorithm reaches {published.welfare:.6g}, "
        f"{published.welfare / formation.welfare:.0%} of that.\n"
    )
    show_certificate_check(formation.certificate.check())
    line("\nWhy is it so? Two of the 45 answers:")
    for pair in (("Coastal Trust", "Harbour Mutual"), ("Danube Bank", "Harbour Mutual")):
        line(f"  {explain(formation, *pair)}")
    write_formation(
        formation,
        out,
        {"benefit.csv": benefit.csv_bytes(), "competition.csv": competition.csv_bytes()},
        replace=replace,
    )
    line(f"\nWritten to {out}: the two input files, certificate and picture. Now try your own:")
    line(f"  {_command()} form {out}/benefit.csv {out}/competition.csv", "bold")
    line(f"  {_command()} what-if {out}/certificate.json --leaves 'Juniper Bank'", "bold")
    screen.print()


def _command() -> str:
    """Return the command as the user can call it."""
    return sys.argv[0] if "/" in sys.argv[0] else "fedegoists"

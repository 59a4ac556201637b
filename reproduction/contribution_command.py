"""The command that measures what finds free riders and copycats."""

import time
from pathlib import Path
from typing import Annotated

import typer

from fedegoists.cli.benefit_commands import DeviceOption, OutOption
from fedegoists.cli.output import line
from fedegoists.folder_swap import write_folder
from reproduction import RESULTS
from reproduction.contribution_study import (
    BEHAVIOURS,
    CLEAN,
    PARTS,
    MemberResult,
    contribution_page,
    contribution_rows,
    members_csv,
    read_members,
)
from reproduction.folder_locks import held
from reproduction.real_data_commands import MOST_DIVISIONS, origin, origins
from reproduction.running import commit

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("contributions")(contributions_command)


def contributions_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TASK", help=f"{', '.join(PARTS)}.")
    ] = None,
    out: OutOption = RESULTS / "contributions",
    only: Annotated[
        list[str] | None,
        typer.Option("--behaviour", metavar="NAME", help=f"{', '.join(BEHAVIOURS)}."),
    ] = None,
    device: DeviceOption = "cpu",
    parts: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many parts; the next call goes on.")
    ] = None,
) -> None:
    """Find free riders and copycats by evidence and by accounting, and count false alarms.

    What is in DIR already is not measured again: a stopped study goes on. Several processes may
    write into DIR, one for each behaviour, say.
    """
    for name in names or ():
        if name not in PARTS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PARTS)}")
    for name in only or ():
        if name not in BEHAVIOURS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(BEHAVIOURS)}")
    table, done = out / "contributions.csv", 0
    for name in names or PARTS:
        behaviours = BEHAVIOURS[:1] if name == CLEAN else only or BEHAVIOURS
        for behaviour in behaviours:
            for part in PARTS[name]:
                with held(out.parent, f"{out.name}.lock", lambda: False):  # others may write it
                    known = read_members(table) if table.exists() else []
                found = {(one.task, one.behaviour, one.repetition) for one in known}
                if (name, behaviour, part[0]) not in found and done != parts:
                    _measure(name, behaviour, part, out, device)
                    done += 1


def _measure(name: str, behaviour: str, part: range, out: Path, device: str) -> None:
    """Measure one part, and write the table and the page anew."""
    began, code = time.monotonic(), commit()  # others may commit while this trains
    rows = contribution_rows(name, behaviour, part, device=device, tell=line)  # type: ignore[arg-type]
    command = f"contributions {name} --behaviour '{behaviour}'"
    if name == CLEAN:
        command = f"contributions {name}"
    if device != "cpu":
        command += f" --device {device}"
    told = f"{origin(command, MOST_DIVISIONS, began, code)} Repetitions {part[0]} to {part[-1]}."
    # Another process may measure another part; its results must be read before these are added.
    with held(out.parent, f"{out.name}.lock", lambda: False):
        _add(rows, told, out)


def _add(rows: list[MemberResult], told: str, out: Path) -> None:
    """Add results to those in a folder."""
    table, page = out / "contributions.csv", out / "contributions.md"
    known = (read_members(table) if table.exists() else []) + rows
    known.sort(key=lambda one: (list(PARTS).index(one.task), BEHAVIOURS.index(one.behaviour),
                                one.repetition))  # fmt: skip
    earlier = origins(page.read_text()) if page.exists() else []
    text = contribution_page(known, [*earlier, told])
    contents = {table.name: members_csv(known), page.name: text.encode()}
    write_folder(out, contents, replace=True, private=False)

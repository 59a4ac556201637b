"""The command that compares partitions of larger consortia."""

import time
from pathlib import Path
from typing import Annotated

import typer

from fedegoists.cli.benefit_commands import DeviceOption
from fedegoists.cli.output import line
from fedegoists.cli.training_commands import DataDirOption
from fedegoists.folder_swap import write_folder
from reproduction import COMMAND, RESULTS
from reproduction.larger_consortia import (
    REPETITIONS,
    LargerSettings,
    consortia,
    larger_page,
    member_gains,
    members_csv,
    read_members,
)
from reproduction.real_data_commands import Bf16Option, described_origin, origins, read_back
from reproduction.running import commit

__all__ = ["register"]

USUAL = LargerSettings()


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("larger")(larger_command)


def larger_command(
    sizes: Annotated[
        list[int] | None,
        typer.Argument(metavar="PARTICIPANTS", help=f"{', '.join(map(str, REPETITIONS))}."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = RESULTS / "larger",
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="Repetitions other than the usual number.")
    ] = None,
    steps: Annotated[int, typer.Option(min=4, help="Training steps.")] = USUAL.steps,
    graph_steps: Annotated[
        int, typer.Option(min=1, help="Steps of the hypernetwork.")
    ] = USUAL.graph_steps,
    device: DeviceOption = "cpu",
    bf16: Bf16Option = False,
    data_dir: DataDirOption = None,
) -> None:
    """Compare partitions of 20 and 40 participants by what their members gain.

    The rows of other numbers of participants stay as they are.
    """
    for count in sizes or ():
        if count not in REPETITIONS:
            raise typer.BadParameter(f"{count} is none of {', '.join(map(str, REPETITIONS))}")
    settings = LargerSettings(steps, graph_steps, device, bf16, data_dir)
    table, page = out / "larger.csv", out / "larger.md"
    for count in sizes or REPETITIONS:
        began, code = time.monotonic(), commit()  # others may commit while this trains
        data = consortia(count, settings, repetitions or REPETITIONS[count])
        rows = member_gains(data, settings, line)
        known = read_members(table) if table.exists() else []
        rows += [one for one in known if one.participants != count]
        rows.sort(key=lambda one: one.participants)
        content = members_csv(rows)
        command = f"larger {count} --steps {steps} --graph-steps {graph_steps} --device {device}"
        command = f"{COMMAND} {command}{' --bf16' if bf16 else ''}"
        told = origins(page.read_text(encoding="utf-8")) if page.exists() else []
        told = [one for one in told if f"larger {count} " not in one]
        told.append(described_origin(command, began, code))
        text = larger_page(read_back(read_members, content), "\n\n".join(told))
        contents = {table.name: content, page.name: text.encode()}
        write_folder(out, contents, replace=True, private=False)
    line(text)

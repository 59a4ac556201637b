"""The command that compares predicted with realised gains."""

import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from fedegoists.cli.benefit_commands import DeviceOption, OutOption
from fedegoists.cli.coalition_commands import ReplaceOption
from fedegoists.cli.training_commands import DataDirOption
from fedegoists.errors import SettingsError, shown
from fedegoists.folder_swap import check_replaceable, write_folder
from fedegoists.learning.datasets import load
from reproduction import RESULTS
from reproduction.gains_study import (
    GAIN_STUDIES,
    REPORTED_ON,
    decisions_csv,
    gain_page,
    gain_picture,
    gains_csv,
    gains_of,
)
from reproduction.image_gains import (
    DIVISIONS,
    committed_cells,
    image_gains,
    image_gains_csv,
    image_page,
)
from reproduction.real_data_commands import Bf16Option
from reproduction.running import commit

__all__ = ["register"]

IMAGE_REPETITIONS = range(5)
"""Those of Tables 1 and 2."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("gains")(gains_command)
    app.command("image-gains")(image_gains_command)


def gains_command(
    data: Annotated[str, typer.Argument(help=f"One of {', '.join(GAIN_STUDIES)}.")],
    out: OutOption,
    repetitions: Annotated[
        str, typer.Option(help="The first and the last repetition, such as 0-9.")
    ] = f"{REPORTED_ON[0]}-{REPORTED_ON[-1]}",
    device: DeviceOption = "cpu",
    bf16: Bf16Option = False,
    data_dir: DataDirOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Predict the gains in random coalitions, train, and compare."""
    if data not in GAIN_STUDIES:
        raise SettingsError(f"unknown study {shown(data)}; studies are {', '.join(GAIN_STUDIES)}")
    check_replaceable(out, [f"{data}.{kind}" for kind in ("csv", "md", "png")], replace=replace)
    chosen = _repetitions(repetitions)
    began, code = time.monotonic(), commit()  # others may commit while this trains
    result = gains_of(
        GAIN_STUDIES[data],
        repetitions=chosen,
        data_dir=data_dir,
        device=device,
        bf16=bf16,
        told=lambda line: typer.echo(f"{data}: {line}"),
    )
    options = f" --device {device}" * (device != "cpu") + " --bf16" * bf16
    origin = (
        f"Written by `python -m reproduction gains {data} --repetitions {repetitions}{options}` at "
        f"commit {code or 'unknown'}, torch {torch.__version__}, "
        f"{time.monotonic() - began:.0f} s."
    )
    page = gain_page(data, result, origin)
    contents = {
        f"{data}.csv": gains_csv(result.gains),
        f"{data}-decisions.csv": decisions_csv(result.decisions),
        f"{data}.md": page.encode(),
        f"{data}.png": gain_picture(data, result.gains),
    }
    write_folder(out, contents, replace=True, private=False)
    typer.echo(page)


def image_gains_command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = (
        RESULTS / "label-gains"
    ),
    data_dir: DataDirOption = None,
) -> None:
    """Compare gains on images that label counts tell with those of committed cells."""
    divided = {
        (data, division, repetition): load(
            data, data_dir=data_dir, seed=repetition, partition=division
        )
        for data, division in DIVISIONS
        for repetition in IMAGE_REPETITIONS
    }
    gains = image_gains(committed_cells(RESULTS / "cells"), divided)
    page = image_page(gains, "Written by `python -m reproduction image-gains`.")
    contents = {"label-gains.csv": image_gains_csv(gains), "label-gains.md": page.encode()}
    write_folder(out, contents, replace=True, private=False)
    typer.echo(page)


def _repetitions(text: str) -> range:
    first, _, last = text.partition("-")
    if not first.isdigit() or not (last or first).isdigit() or int(last or first) < int(first):
        raise SettingsError(f"repetitions are {shown(text)}; expected such as 0-9")
    return range(int(first), int(last or first) + 1)

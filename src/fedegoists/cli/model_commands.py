"""The commands about trained models: export, predict."""

from pathlib import Path
from typing import Annotated

import typer

from fedegoists.cli.output import errors, line, near, screen, training_extra
from fedegoists.files import write_bytes


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("export")(export_command)
    app.command("predict")(predict_command)


def export_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    participant: Annotated[str, typer.Argument(metavar="PARTICIPANT", help="Its name.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write; by default RUN/export/PARTICIPANT."),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write ONNX (needs the extra onnx).")
    ] = False,
) -> None:
    """Write a participant's model for use elsewhere, with an example that loads it."""
    with training_extra("a model"):
        from fedegoists.consortium.export import export

    for path in export(run, participant, out, onnx=onnx):
        line(f"Written: {near(path)}", whole=True)


def predict_command(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A .safetensors of a run or an export, or an .onnx."),
    ],
    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS",
            help="A table; a folder of both tables of sequences; an image, a folder of images or a "
            "table of their paths; or a function that returns arrays, data.py:load.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the CSV there, not to the screen.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Repeat a column of the table. May be repeated."),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Given to the function as folder, for new files."),
    ] = None,
) -> None:
    """Predict for new rows, images or sequences, after a check that they fit the model."""
    with training_extra("a model"):
        from fedegoists.consortium.prediction import predict

    found = predict(model, rows, keep=keep or (), folder=folder)
    for remark in found.remarks:
        # Standard output is for the predictions.
        errors.print(f"Note: {remark}.", style="yellow", markup=False, highlight=False)
    if out is None:
        screen.out(found.csv().decode(), end="", highlight=False)
        return
    write_bytes(out, found.csv(), private=True)
    line(f"Written: {near(out)}, {len(found.values)} rows", whole=True)

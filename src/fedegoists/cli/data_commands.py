"""The commands about data: list, show."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedegoists.cli.output import line, screen, titled_table
from fedegoists.cli.training_commands import DataDirOption, SetOption, options_from

if TYPE_CHECKING:
    from fedegoists.learning.datasets.image_schema import ImageSchema


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    data = typer.Typer(help="Look at data sets.", no_args_is_help=True)
    data.command("list")(list_command)
    data.command("show")(show_command)
    app.add_typer(data, name="data")


def list_command() -> None:
    """List the data sets that can be trained on."""
    from fedegoists.learning.datasets import available

    table = titled_table("Data sets", "name", "what", "options")
    for entry in available():
        fields = entry.options_type().model_fields
        options = "\n".join(f"{name}={field.default}" for name, field in fields.items())
        table.add_row(Text(entry.name), Text(entry.summary), Text(options))
    screen.print(table)


def show_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A data set, or a folder with one file for each organisation and a schema.toml.",
        ),
    ],
    settings: SetOption = None,
    seed: Annotated[int, typer.Option(min=0, help="The division among silos.")] = 0,
    data_dir: DataDirOption = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the labels of each silo to .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Show a profile of your own tables or images, and how a data set is divided among silos."""
    from fedegoists.learning.datasets import DATASETS, load

    if name not in DATASETS and Path(name).is_dir() and not _show_profiles(Path(name)):
        return
    data = load(name, data_dir=data_dir, seed=seed, **options_from(settings))
    table = Table(title=data.description, title_justify="left", title_style="bold")
    table.add_column("silo")
    for column in ("train", "validation", "test"):
        table.add_column(column, justify="right")
    for participant, sizes in data.sizes().items():
        table.add_row(Text(participant), *(f"{size:,}" for size in sizes))
    screen.print(table)
    for note in data.notes:
        line(f"- {note}")
    for warning in data.warnings:
        line(f"look at the data: {warning}", "yellow")
    if picture is not None:
        from fedegoists.learning.plots import draw_label_distribution

        draw_label_distribution(data, picture)
        line(f"Written to {picture}")


def _show_profiles(folder: Path) -> bool:
    """Show a profile of each organisation's data; return whether there is a schema.

    Without a schema, one is proposed.
    """
    from fedegoists.learning.datasets.image_profile import holds_images
    from fedegoists.learning.datasets.image_schema import ImageSchema
    from fedegoists.learning.datasets.own import (
        SCHEMA_FILE,
        own_folders,
        own_tables,
        read_schema,
    )

    path = folder / SCHEMA_FILE
    schema = read_schema(path) if path.is_file() else None
    if isinstance(schema, ImageSchema) or (schema is None and holds_images(folder)):
        proposed = _show_images(folder, schema)
    elif schema is not None and schema.sequence is not None:
        both = (schema.sequence.table, schema.sequence.steps_file)
        folders = own_folders(folder).items()
        proposed = _show_tables({f"{name}, {file}": own / file for name, own in folders
                                 for file in both})  # fmt: skip
    else:
        proposed = _show_tables(own_tables(folder))
    if schema is not None:
        return True
    line(f"There is no {path}. To start from, check and change this:", "bold")
    for text in proposed.splitlines():
        line(text, whole=True)
    return False


def _show_images(folder: Path, schema: "ImageSchema | None") -> str:
    """Show a profile of each organisation's images; return a schema to start from."""
    from fedegoists.learning.datasets.feature_encoding import Problems
    from fedegoists.learning.datasets.image_profile import (
        profiled_images,
        proposed_image_schema,
        shown_sizes,
    )
    from fedegoists.learning.datasets.own import own_folders

    problems, profiles = Problems(), {}
    table = titled_table("Images", "organisation", "images", "classes", "sizes", "kinds", "look at")
    for organisation, own in own_folders(folder).items():
        one = profiled_images(f"organisation {organisation!r}", own, schema, problems)
        profiles[organisation] = one
        remarks = [f"{one.copies:,} copies"] if one.copies else []
        remarks += [f"{len(one.unreadable):,} unreadable"] if one.unreadable else []
        classes = ", ".join(f"{name} ({count:,})" for name, count in sorted(one.classes.items()))
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in one.kinds.items())
        texts = (organisation, f"{one.images:,}", classes, shown_sizes(one.sizes), kinds)
        table.add_row(*map(Text, (*texts, "; ".join(remarks))))
    screen.print(table)
    for one in profiles.values():
        for text in one.unreadable:
            line(f"look at the data: {text}", "yellow")
    problems.tell()
    return proposed_image_schema(profiles)


def _show_tables(tables: Mapping[str, object]) -> str:
    """Show a profile of each organisation's table; return a schema to start from."""
    from fedegoists.learning.datasets.feature_encoding import Problems
    from fedegoists.learning.datasets.table_profile import profiled, proposed_schema

    problems, profiles = Problems(), {}
    for organisation, path in tables.items():
        found = problems.attempt(partial(profiled, f"organisation {organisation!r}", path))
        if found is None:
            continue
        profiles[organisation] = found
        copies = f", {found.copies:,} of them copies" if found.copies else ""
        title = f"{organisation}: {found.rows:,} rows{copies}"
        table = titled_table(title, "column", "kind", "missing", "different", "content", "look at")
        for one in found.columns:
            numbers = (f"{one.missing:,}", f"{one.different:,}")
            texts = (one.name, one.kind, *numbers, one.content, "; ".join(one.remarks))
            table.add_row(*map(Text, texts))
        screen.print(table)
    problems.tell()
    return proposed_schema(profiles)

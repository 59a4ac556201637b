"""Commands that were moved out of the package: each says where it is now."""

import shlex

import typer

from fedegoists.errors import SettingsError


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("reproduce", context_settings=anything, hidden=True)(reproduce_command)


def reproduce_command(context: typer.Context) -> None:
    """Say where this command is now: `python -m reproduction`, in a checkout."""
    given = shlex.join(["python", "-m", "reproduction", *context.args])
    raise SettingsError(
        "the paper's tables are no longer part of the package; in a checkout of the repository, "
        f"run: {given}"
    )

"""The command line of the laboratory: ``python -m reproduction …``.

Exit codes: 0 fine, 1 a check failed, 2 bad input.
"""

import sys

import typer

from fedegoists.cli import main as run_application
from fedegoists.cli.output import training_extra
from reproduction import COMMAND

__all__ = ["main"]

DEFAULT = "tables"
HELP = ("-h", "--help")


def main() -> None:
    """Run the command line; an error that a user can repair is printed without a traceback."""
    run_application(_run)


def _run() -> None:
    app = _application()
    names = {command.name for command in app.registered_commands}
    given = sys.argv[1:]
    if not given or given[0] not in (*names, *HELP):
        given = [DEFAULT, *given]
    app(given, prog_name=COMMAND)


def _application() -> typer.Typer:
    with training_extra("reproducing the paper"):
        from reproduction import (
            benefit_study_command,
            contribution_command,
            gains_command,
            larger_command,
            principle_one_command,
            real_data_commands,
            table_commands,
        )

    app = typer.Typer(
        help="Reproduce the paper: tables, figures, and studies that go beyond it. The name of the "
        f"command `{DEFAULT}` may be left out: `{COMMAND} table1 --list`.",
        pretty_exceptions_show_locals=False,  # a traceback must not show anybody's data
        rich_markup_mode="rich",
        add_completion=False,
        context_settings={"help_option_names": list(HELP)},
    )
    table_commands.register(app)
    benefit_study_command.register(app)
    real_data_commands.register(app)
    gains_command.register(app)
    contribution_command.register(app)
    larger_command.register(app)
    principle_one_command.register(app)
    return app


if __name__ == "__main__":
    main()

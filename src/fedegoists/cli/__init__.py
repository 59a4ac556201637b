"""The command line: ``fedegoists …``.

Exit codes: 0 fine, 1 a check failed, 2 bad input.
"""

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from fedegoists.cli import (
    benefit_commands,
    coalition_commands,
    consortium_commands,
    coordinator_commands,
    data_commands,
    demo_commands,
    deploy_commands,
    incentive_commands,
    model_commands,
    moved_commands,
    training_commands,
)
from fedegoists.cli.output import errors, print_json
from fedegoists.errors import FedEgoistsError

__all__ = ["app", "main"]

app = typer.Typer(
    name="fedegoists",
    help="Decide who trains with whom in cross-silo federated learning, and prove it.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,  # a traceback must not show private data
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
coalition_commands.register(app)
incentive_commands.register(app)
data_commands.register(app)
training_commands.register(app)
consortium_commands.register(app)
model_commands.register(app)
benefit_commands.register(app)
demo_commands.register(app)
deploy_commands.register(app)
coordinator_commands.register(app)
moved_commands.register(app)


PANELS = {
    "Start": ("demo", "init", "data"),
    "Decide who trains with whom": (
        "form", "verify", "explain", "what-if", "draw", "audit", "incentives", "sensitivity",
    ),
    "Estimate, train and report": ("run", "runs", "train", "methods", "benefit"),
    "Use a model": ("export", "predict"),
    "Between organisations": (
        "serve", "deploy", "backup", "restore", "manager-login", "audit-log",
    ),
}  # fmt: skip
"""The commands as the help lists them, by what a user wants to do."""


def _arrange() -> None:
    """Put every command into its panel of the help."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    order = list(panel_of)
    for command in app.registered_commands:
        command.rich_help_panel = panel_of.get(command.name or "")
    for group in app.registered_groups:
        assert group.typer_instance is not None
        group.rich_help_panel = panel_of.get(group.name or group.typer_instance.info.name or "")
    app.registered_commands.sort(key=lambda one: order.index(one.name) if one.name in order else 99)


_arrange()


def _version(value: bool) -> None:
    if value:
        from fedegoists import __version__

        typer.echo(f"fedegoists {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main(application: Callable[[], object] = app) -> None:
    """Run a command line; an error that a user can repair is printed without a traceback."""
    # On a busy machine, threads of PyTorch that wait actively take eight times the processor time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        if "--json" in sys.argv[1:] and isinstance(application, typer.Typer):
            _run_for_json(application)
        else:
            application()
    except FedEgoistsError as error:
        if "--json" in sys.argv[1:]:
            print_json({"error": str(error)})
        _say(str(error))
        sys.exit(2)
    except BrokenPipeError:
        # The reader of the output has gone, as with `| head`.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _say(f"the output cannot be written ({error.strerror})")
        sys.exit(2)


def _run_for_json(application: typer.Typer) -> None:
    """Run a command line; an error in its options is printed as JSON, too."""
    try:
        status = application(standalone_mode=False)
    except Exception as error:
        # The class depends on the version of Typer, which may have a copy of Click of its own.
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            raise
        print_json({"error": error.format_message()})
        _say(error.format_message())
        sys.exit(error.exit_code)
    sys.exit(status if isinstance(status, int) else 0)


def _say(message: str) -> None:
    """Print an error; it may quote files, so control characters are shown as codes."""
    safe = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in message)
    errors.print("[bold red]error:[/] ", end="")
    errors.print(safe, markup=False, highlight=False, soft_wrap=True)

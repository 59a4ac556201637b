"""The commands of the coordinator: serve, backup, restore, audit-log, manager-login."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fedegoists.cli.output import errors, line, needs_extra, print_json
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import write_bytes

if TYPE_CHECKING:
    from fedegoists.coordinator.store import CoordinatorStore

DataOption = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="The coordinator's folder.")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="FEDEGOISTS_DATABASE",
        help="postgresql://… instead of the SQLite file in the folder.",
    ),
]
DEFAULT_DATA = Path("coordinator")

audit_log = typer.Typer(no_args_is_help=True, help="Check, or show, the coordinator's audit log.")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("serve")(serve_command)
    app.command("backup")(backup_command)
    app.command("restore")(restore_command)
    app.command("manager-login")(manager_login_command)
    app.add_typer(audit_log, name="audit-log")


def serve_command(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For HTTPS: the certificate.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For HTTPS: its private key.")
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Authority that signs the members' client certificates."),
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Trust the headers of a proxy on this machine.")
    ] = False,
    requests_per_minute: Annotated[
        int, typer.Option(min=1, help="Limit for each token or session.")
    ] = 600,
    kit: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The coordinator's kit that `deploy init` wrote, for runs over FLARE.",
        ),
    ] = None,
) -> None:
    """Run the coordinator: a trusted third party with web pages and an API."""
    with needs_extra("the coordinator", "coordinator"):
        from fedegoists.coordinator.server import ServerSettings, serve
        from fedegoists.coordinator.service.coordinator_service import Limits

    settings = ServerSettings(
        data=data,
        host=host,
        port=port,
        database=database,
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        behind_proxy=behind_proxy,
        limits=Limits(requests_per_minute=requests_per_minute),
        kit=kit,
    )
    serve(settings, typer.echo, _warn)


def backup_command(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="A new .tar.gz file.")],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
) -> None:
    """Write a backup of the coordinator to one archive; it may go on running."""
    with _opened(data, database) as store:
        from fedegoists.coordinator.store.backup import KEY_FILE, back_up, backup_key

        check = back_up(store, archive, backup_key(data), data / "runs")
    line(f"Written to {archive}. To restore it you need {data / KEY_FILE} and the hash of entry")
    line(f"{check.count} of the audit log; keep both elsewhere, apart from the archive:")
    typer.echo(check.head)
    _tell(check.problems)


def restore_command(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="A backup.")],
    head: Annotated[
        str,
        typer.Option(
            metavar="HASH", help="A hash of the audit log that you kept, the latest you have."
        ),
    ],
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="backup.key of the coordinator that made the backup."),
    ] = None,
    unauthenticated: Annotated[
        bool,
        typer.Option(
            "--unauthenticated", help="Accept a backup of an earlier version, which has no code."
        ),
    ] = False,
) -> None:
    """Restore a backup into an empty folder or database, of either kind.

    All tokens, invitations and sessions end.
    """
    if (key is None) != unauthenticated:
        raise SettingsError(
            "give the key of the coordinator that made the backup: --key FILE, its backup.key; or "
            "--unauthenticated for a backup of an earlier version, which has none"
        )
    with needs_extra("the coordinator", "coordinator"):
        from fedegoists.coordinator.store.backup import KEY_FILE, read_key, restore
    content = None if key is None else read_key(key)
    with _opened(data, database, new=True) as store, store.alone():
        check = restore(archive, store, content, head.strip().lower(), data / "runs")
    if content is not None and not (data / KEY_FILE).exists():
        write_bytes(data / KEY_FILE, f"{content.hex()}\n".encode(), private=True)
    line("All tokens and sessions have ended. The next `fedegoists serve` prints a login for the")
    line("manager, who then invites the members again; their earlier reports are sealed.")
    line(f"Restored, up to entry {check.count} of the audit log:")
    typer.echo(check.head)


def manager_login_command(
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
    label: Annotated[str, typer.Option(help="The manager's name.")] = "manager",
) -> None:
    """Print a one-time login for another manager, such as after a token was lost."""
    with _opened(data, database) as store:
        from fedegoists.coordinator.domain.accounts import invite_account

        with store.write() as session:
            invitation = invite_account(session, "coordinator", "manager", label)
    typer.echo(invitation)


@audit_log.command("verify")
def verify_log_command(
    data: DataOption = DEFAULT_DATA,
    database: DatabaseOption = None,
    head: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="A hash noted earlier, which an entry must still have."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that nothing was altered: the chain, and the tables against the log.

    Exits with 1 if anything was altered.
    """
    with _opened(data, database) as store:
        from fedegoists.coordinator.store.audit_check import check_log

        with store.read() as session:
            check = check_log(session, head)
    if as_json:
        result = {"ok": check.ok, "entries": check.count, "head": check.head}
        print_json({**result, "problems": check.problems})
    else:
        line(f"{check.count} entries; the hash of the last one, to be kept elsewhere:")
        typer.echo(check.head)
        if check.ok:
            line("Nothing was altered.")
    _tell(() if as_json else check.problems)
    raise typer.Exit(0 if check.ok else 1)


@audit_log.command("show")
def show_log_command(data: DataOption = DEFAULT_DATA, database: DatabaseOption = None) -> None:
    """Print all entries, one JSON object a line."""
    with _opened(data, database) as store:
        from fedegoists.coordinator.store.audit_log import entries, entry_line

        with store.read() as session:
            for entry in entries(session):
                typer.echo(entry_line(entry))


def _warn(text: str) -> None:
    errors.print(Text(f"warning: {text}", "yellow"), soft_wrap=True)


def _tell(problems: tuple[str, ...]) -> None:
    for problem in problems:
        line(f"FAILED: {problem}", "bold red")


@contextmanager
def _opened(data: Path, database: str | None, *, new: bool = False) -> "Iterator[CoordinatorStore]":
    """Context manager for the store of a folder or database."""
    with needs_extra("the coordinator", "coordinator"):
        from fedegoists.coordinator.server import DATABASE, open_store

    if not new and database is None and not (data / DATABASE).exists():
        raise FileError(f"{data}: no coordinator keeps its data here; give its folder with --data")
    with closing(open_store(data, database)) as store:
        yield store

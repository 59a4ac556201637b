"""Backups: one archive with every table as text and the runs' files, for either database."""

import hashlib
import io
import json
import os
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sqlalchemy import Table, func, insert, select, text, update
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import StoreError
from fedegoists.coordinator.store.audit_check import check_log
from fedegoists.coordinator.store.audit_log import Action, LogCheck, append
from fedegoists.coordinator.store.database import CoordinatorStore
from fedegoists.coordinator.store.database_tables import Base, CredentialRow
from fedegoists.coordinator.store.migrate import latest, revision_of
from fedegoists.errors import FileError
from fedegoists.files import write_bytes

FORMAT = "fedegoists backup"
VERSION = 1
MANIFEST = "manifest.json"
BATCH = 500

Rows = list[dict[str, str | int | float | None]]


def back_up(store: CoordinatorStore, path: Path, runs: Path | None = None) -> LogCheck:
    """Write one consistent state of everything to an archive that only its owner can read.

    The service may go on meanwhile. The data of silos is not included.

    Returns
    -------
    LogCheck
        Whether the archived tables agree with the audit log.
    """
    path = Path(path)
    if path.exists():
        raise FileError(f"{path} is there already; nothing was written")
    new = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with store.read() as session, _private(new) as raw:
            with tarfile.open(fileobj=raw, mode="w:gz") as archive:
                check = _write(session, archive)
                if runs is not None and runs.is_dir():
                    _add_files(archive, runs)
            raw.flush()
            os.fsync(raw.fileno())
        new.replace(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        new.unlink(missing_ok=True)
    return check


def _private(path: Path) -> BinaryIO:
    """Open a new file that only its owner can read, from its creation on."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write(session: Session, archive: tarfile.TarFile) -> LogCheck:
    tables: dict[str, dict[str, str]] = {}
    for table in Base.metadata.sorted_tables:
        content = b"".join(_lines(session, table))
        tables[table.name] = {"sha256": hashlib.sha256(content).hexdigest()}
        _add(archive, f"tables/{table.name}.jsonl", content)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "revision": revision_of(session.connection()),
        "tables": tables,
    }
    _add(archive, MANIFEST, json.dumps(manifest, indent=1).encode())
    return check_log(session)


def _lines(session: Session, table: Table) -> Iterator[bytes]:
    for row in session.execute(select(table).order_by(*table.primary_key)).mappings():
        yield (json.dumps(dict(row), ensure_ascii=False) + "\n").encode()


def _add_files(archive: tarfile.TarFile, runs: Path) -> None:
    """Add the files of runs, each in one consistent state; a run may be writing others."""
    for folder, _, names in os.walk(runs):
        for path in (Path(folder, name) for name in sorted(names)):
            try:
                if path.is_file() and not path.is_symlink():
                    _add(archive, f"runs/{path.relative_to(runs).as_posix()}", path.read_bytes())
            except FileNotFoundError:
                continue  # a temporary file of a run, renamed meanwhile


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o600
    archive.addfile(info, io.BytesIO(content))


def restore(path: Path, store: CoordinatorStore, runs: Path | None = None) -> LogCheck:
    """Fill an empty store, of either kind, from a backup.

    Open invitations and sessions end; tokens remain valid.

    Raises
    ------
    StoreError
        If the store is not empty, or the archive is not a backup, damaged, or of another version.
        The store is then as empty as before.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            revision, tables = _read(path, archive)
            with store.write() as session:
                current = latest(session.connection())
                if revision != current:
                    raise StoreError(
                        f"{path}: of another version (revision {revision}, not {current}); "
                        "restore it with that version, then update"
                    )
                _fill(session, tables)
                check = check_log(session)
                if not check.ok:
                    raise StoreError(f"{path}: not to be relied on: {check.problems[0]}")
                append(session, "coordinator", Action.RESTORED, head=check.head)
                # They may have been used, or signed out of, since the backup was made.
                session.execute(
                    update(CredentialRow)
                    .where(CredentialRow.kind.in_(("invitation", "session")))
                    .where(CredentialRow.ended.is_(None))
                    .values(ended=session.now())
                )
                if runs is not None:
                    _extract_files(archive, runs)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FileError(f"{path}: cannot be read as a backup ({error})") from None
    return check


def _extract_files(archive: tarfile.TarFile, runs: Path) -> None:
    """Write the files of runs, and nothing outside their folder, whatever the archive says."""
    for member in archive:
        first, *rest = PurePosixPath(member.name).parts or ("",)
        if first != "runs" or not rest or not member.isfile():
            continue
        if ".." in rest:
            raise tarfile.TarError(f"{member.name!r} would be outside the folder")
        file = archive.extractfile(member)
        assert file is not None
        write_bytes(runs.joinpath(*rest), file.read(), private=True)


def _read(path: Path, archive: tarfile.TarFile) -> tuple[str, dict[str, Rows]]:
    """Return the revision and the rows of each table, after checking their hashes."""
    contents: dict[str, bytes] = {}
    for member in archive:
        if member.isfile() and (member.name == MANIFEST or member.name.startswith("tables/")):
            file = archive.extractfile(member)
            assert file is not None
            contents[member.name] = file.read()
    try:
        manifest = json.loads(contents[MANIFEST])
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise ValueError("another format")
        revision: str = manifest["revision"]
        found: dict[str, Rows] = {}
        for name, stated in manifest["tables"].items():
            content = contents[f"tables/{name}.jsonl"]
            if hashlib.sha256(content).hexdigest() != stated["sha256"]:
                raise StoreError(f"{path}: damaged: {name} is not what was written")
            found[name] = [json.loads(line) for line in content.splitlines()]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: not a backup of this version ({error!r})") from None
    return revision, found


def _fill(session: Session, tables: dict[str, Rows]) -> None:
    # Every action is in the log, so a store with an empty log is empty.
    if session.scalar(select(func.count()).select_from(Base.metadata.tables["audit_log"])):
        raise StoreError("the store is not empty; restore into a new folder or database")
    for table in Base.metadata.sorted_tables:
        rows = tables.get(table.name, [])
        for start in range(0, len(rows), BATCH):
            session.execute(insert(table), rows[start : start + BATCH])
        if session.get_bind().dialect.name == "postgresql" and table.name != "audit_log" and rows:
            session.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "  # noqa: S608
                    f"(SELECT max(id) FROM {table.name}))"
                )
            )

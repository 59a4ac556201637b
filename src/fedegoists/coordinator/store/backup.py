"""Backups: one archive with every table as text and the runs' files, for either database.

An archive names the hash of each of its files, and is authenticated by a key that is not in it.
"""

import hashlib
import hmac
import io
import json
import os
import secrets
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sqlalchemy import Table, func, insert, select, text, update
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import StoreError
from fedegoists.coordinator.store.audit_check import check_log
from fedegoists.coordinator.store.audit_log import Action, LogCheck, append
from fedegoists.coordinator.store.database import CoordinatorStore
from fedegoists.coordinator.store.database_tables import Base, CredentialRow, FormationRow
from fedegoists.coordinator.store.migrate import latest, revision_of
from fedegoists.errors import FileError
from fedegoists.files import read_text, write_bytes

FORMAT = "fedegoists backup"
VERSION = 2
UNAUTHENTICATED = 1
"""Version of archives that have no code of authentication, nor hashes of the runs' files."""

MANIFEST = "manifest.json"
CODE = "manifest.hmac"
KEY_FILE = "backup.key"
BATCH = 500

READABLE = ("0002", "0003")
"""Earlier revisions whose rows still fit the tables: since then only columns were added."""

Rows = list[dict[str, str | int | float | None]]


def backup_key(folder: Path) -> bytes:
    """Return the key that authenticates backups of a coordinator's folder; made when needed."""
    path = folder / KEY_FILE
    if not path.exists():
        write_bytes(path, (secrets.token_hex(32) + "\n").encode(), private=True)
    return read_key(path)


def read_key(path: Path) -> bytes:
    """Return the key in a file.

    Raises
    ------
    FileError
        If the file is missing or holds no key.
    """
    try:
        found = bytes.fromhex(read_text(path).strip())
    except ValueError:
        found = b""
    if len(found) != 32:
        raise FileError(f"{path}: not a key of backups, which has 64 hexadecimal digits")
    return found


def back_up(store: CoordinatorStore, path: Path, key: bytes, runs: Path | None = None) -> LogCheck:
    """Write one consistent state of everything to an archive that only its owner can read.

    The service may go on meanwhile. The data of silos is not included, nor is the key.

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
                writer = _Writer(archive)
                check = _write(session, writer)
                if runs is not None and runs.is_dir():
                    _add_files(writer, runs)
                revision = revision_of(session.connection())
                writer.close(key, revision=revision, head=check.head)
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


class _Writer:
    """Adds files to an archive, and at last their hashes, with a code over all of them."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._hashes: dict[str, str] = {}

    def add(self, name: str, content: bytes) -> None:
        self._hashes[name] = hashlib.sha256(content).hexdigest()
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o600
        self._archive.addfile(info, io.BytesIO(content))

    def close(self, key: bytes, **more: object) -> None:
        content = {"format": FORMAT, "version": VERSION, **more, "files": self._hashes}
        manifest = json.dumps(content, indent=1).encode()
        self.add(MANIFEST, manifest)
        self.add(CODE, _code(key, manifest).encode())


def _code(key: bytes, manifest: bytes) -> str:
    return hmac.digest(key, FORMAT.encode() + b"\0" + manifest, "sha256").hex()


def _write(session: Session, writer: _Writer) -> LogCheck:
    for table in Base.metadata.sorted_tables:
        writer.add(f"tables/{table.name}.jsonl", b"".join(_lines(session, table)))
    return check_log(session)


def _lines(session: Session, table: Table) -> Iterator[bytes]:
    for row in session.execute(select(table).order_by(*table.primary_key)).mappings():
        yield (json.dumps(dict(row), ensure_ascii=False) + "\n").encode()


def _add_files(writer: _Writer, runs: Path) -> None:
    """Add the files of runs, each in one consistent state; a run may be writing others."""
    for folder, _, names in os.walk(runs):
        for path in (Path(folder, name) for name in sorted(names)):
            try:
                if path.is_file() and not path.is_symlink():
                    writer.add(f"runs/{path.relative_to(runs).as_posix()}", path.read_bytes())
            except FileNotFoundError:
                continue  # a temporary file of a run, renamed meanwhile


# Restoring ------------------------------------------------------------------------------------


def restore(
    path: Path,
    store: CoordinatorStore,
    key: bytes | None,
    head: str,
    runs: Path | None = None,
) -> LogCheck:
    """Fill an empty store, of either kind, from a backup.

    All tokens, client certificates, invitations and sessions end: some may have been ended since
    the backup was made, and none could be told from one that was added to it.

    Parameters
    ----------
    key : bytes or None
        The key of the coordinator that made the backup. None accepts an archive of an earlier
        version, which has no code of authentication, and no other.
    head : str
        A hash of the audit log that was kept elsewhere; an entry of the backup must have it.

    Raises
    ------
    StoreError
        If the store is not empty, or the archive is not a backup, changed, of another version, or
        does not hold the head. The store is then as empty as before.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            backup = _read(path, archive, key)
            with store.write() as session:
                current = latest(session.connection())
                if backup.revision not in (current, *READABLE):
                    raise StoreError(
                        f"{path}: of another version (revision {backup.revision}, not {current}); "
                        "restore it with that version, then update"
                    )
                _fill(session, backup.tables)
                if backup.revision != current:  # there were no drafts
                    unpublished = update(FormationRow).where(FormationRow.published.is_(None))
                    session.execute(unpublished.values(published=FormationRow.created))
                check = check_log(session, head)
                if not check.ok:
                    raise StoreError(f"{path}: not to be relied on: {check.problems[0]}")
                append(
                    session,
                    "coordinator",
                    Action.RESTORED,
                    head=check.head,
                    credentials="ended",
                    authenticated=key is not None,
                )
                session.execute(
                    update(CredentialRow)
                    .where(CredentialRow.ended.is_(None))
                    .values(ended=session.now())
                )
                if runs is not None:
                    _extract_files(path, archive, backup.files, runs)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FileError(f"{path}: cannot be read as a backup ({error})") from None
    return check


def _extract_files(
    path: Path, archive: tarfile.TarFile, files: dict[str, str] | None, runs: Path
) -> None:
    """Write the files of runs, and nothing outside their folder, whatever the archive says."""
    for name, content in _contents(path, archive):
        first, *rest = PurePosixPath(name).parts or ("",)
        if first != "runs" or not rest:
            continue
        if ".." in rest:
            raise tarfile.TarError(f"{name!r} would be outside the folder")
        if files is not None:
            _check_hash(path, name, content, files.get(name))
        target = runs.joinpath(*rest)
        for folder in reversed([target.parent, *target.parent.parents]):
            if folder == runs or runs in folder.parents:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes(target, content, private=True)


def _contents(path: Path, archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file; two of one name would be told apart by chance."""
    seen: set[str] = set()
    for member in archive:
        if not member.isfile():
            continue
        if member.name in seen:
            raise StoreError(f"{path}: changed: it holds {member.name!r} twice")
        seen.add(member.name)
        file = archive.extractfile(member)
        assert file is not None
        yield member.name, file.read()


def _check_hash(path: Path, name: str, content: bytes, stated: str | None) -> None:
    if stated is None:
        raise StoreError(f"{path}: changed: {name!r} was not written by the backup")
    if hashlib.sha256(content).hexdigest() != stated:
        raise StoreError(f"{path}: changed or damaged: {name!r} is not what was written")


@dataclass(frozen=True)
class _Backup:
    """The revision and the rows of each table; and the hashes of all files, if there are any."""

    revision: str
    tables: dict[str, Rows]
    files: dict[str, str] | None


def _read(path: Path, archive: tarfile.TarFile, key: bytes | None) -> _Backup:
    """Return the content of an archive, after checking all of it."""
    kept: dict[str, bytes] = {}
    hashes: dict[str, str] = {}
    for name, content in _contents(path, archive):
        hashes[name] = hashlib.sha256(content).hexdigest()
        if name in (MANIFEST, CODE) or name.startswith("tables/"):
            kept[name] = content
    try:
        manifest = json.loads(kept[MANIFEST])
        if manifest["format"] != FORMAT:
            raise ValueError("another format")
        if manifest["version"] not in (VERSION, UNAUTHENTICATED):
            raise ValueError(f"version {manifest['version']}")
        files = _stated(path, manifest, kept, key)
        if manifest["version"] == VERSION:
            for name in sorted(files.keys() | (hashes.keys() - {MANIFEST, CODE})):
                if name not in hashes:
                    raise StoreError(f"{path}: changed: {name!r} is missing")
                if files.get(name) != hashes[name]:
                    raise StoreError(
                        f"{path}: changed or damaged: {name!r} is not what was written"
                    )
        found: dict[str, Rows] = {}
        for name, stated in files.items():
            if name.startswith("tables/"):
                if hashes.get(name) != stated:
                    raise StoreError(f"{path}: damaged: {name} is not what was written")
                table = PurePosixPath(name).stem
                found[table] = [json.loads(line) for line in kept[name].splitlines()]
        return _Backup(
            manifest["revision"], found, files if manifest["version"] == VERSION else None
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}: not a backup of this version ({error!r})") from None


def _stated(
    path: Path, manifest: dict[str, object], kept: dict[str, bytes], key: bytes | None
) -> dict[str, str]:
    """Return the hashes that a manifest states, after checking who wrote it."""
    if manifest["version"] == UNAUTHENTICATED:
        if key is not None:
            raise StoreError(
                f"{path}: an earlier version wrote it, without a code of authentication: its "
                "maker cannot be checked. If you know where it was since, add --unauthenticated"
            )
        tables = manifest["tables"]
        assert isinstance(tables, dict)
        return {f"tables/{name}.jsonl": stated["sha256"] for name, stated in tables.items()}
    if key is None:
        raise StoreError(
            f"{path}: it has a code of authentication: leave out --unauthenticated and give the "
            "key with --key"
        )
    if not hmac.compare_digest(_code(key, kept[MANIFEST]), kept[CODE].decode("ascii", "replace")):
        raise StoreError(
            f"{path}: not written with this key, or changed since; nothing was restored"
        )
    files = manifest["files"]
    assert isinstance(files, dict)
    return files


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

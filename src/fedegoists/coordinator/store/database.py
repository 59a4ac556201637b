"""The database and its transactions, which are kept whole or not at all."""

import datetime
import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, select, text
from sqlalchemy.orm import Session

from fedegoists.coordinator.coordinator_errors import (
    DamagedStoreError,
    FullStoreError,
    NotFoundError,
    StoreError,
    UnavailableStoreError,
)
from fedegoists.coordinator.store.database_tables import (
    AuditEntry,
    BenefitRow,
    ConsortiumRow,
    FormationRow,
    RunRow,
)
from fedegoists.coordinator.store.migrate import is_current, upgrade
from fedegoists.coordinator.store.moments import (
    BACK_SECONDS,
    CLOCK_WENT_BACK,
    as_moment,
    seconds_between,
    system_clock,
)
from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.install_hints import install_command

WRITER_LOCK = 0xFED_E60
"""Advisory lock of PostgreSQL: one transaction at a time writes, as in SQLite."""

SERVICE_LOCK = 0xFED_E61
"""Advisory lock of PostgreSQL that a service holds while it runs."""

BUSY_SECONDS = 30

Owned = TypeVar("Owned", BenefitRow, FormationRow, RunRow)
Numbered = TypeVar("Numbered", FormationRow, RunRow)


def sqlite_url(path: Path) -> str:
    """Return the address of a database in one file."""
    return f"sqlite:///{path}"


class Transaction(Session):
    """A transaction on the coordinator's database, with the coordinator's clock."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime.datetime]) -> None:
        super().__init__(engine, expire_on_commit=False)
        self._clock = clock

    def now(self) -> str:
        """Return the time; it does not go back slightly behind the last entry of the audit log.

        A clock that went back further is believed: it may have been far ahead before, and no
        deadline would ever pass again. The next entry of the log is then preceded by one that
        records it.
        """
        clock, earliest = as_moment(self._clock()), self.earliest()
        return clock if seconds_between(clock, earliest) > BACK_SECONDS else max(clock, earliest)

    def latest(self, table: type[Owned], consortium: ConsortiumRow) -> Owned | None:
        """Return the latest row of a consortium in a table, if there is one."""
        own = select(table).where(table.consortium_id == consortium.id)
        return self.scalar(own.order_by(table.id.desc()).limit(1))

    def numbered(self, table: type[Numbered], consortium: ConsortiumRow, number: int) -> Numbered:
        """Return the row of a consortium with a number."""
        own = select(table).where(table.consortium_id == consortium.id, table.number == number)
        found = self.scalar(own)
        if found is None:
            raise NotFoundError(f"there is no such {table.__tablename__.removesuffix('s')}")
        return found

    def next_number(self, table: type[Numbered], consortium: ConsortiumRow) -> int:
        """Return the number of a consortium's next row in a table."""
        last = self.latest(table, consortium)
        return 1 if last is None else last.number + 1

    def earliest(self) -> str:
        """Return the earliest time that the next entry of the audit log can have."""
        last = self.scalar(select(AuditEntry).order_by(AuditEntry.id.desc()).limit(1))
        return as_moment(self._clock()) if last is None else earliest_after(last)


class CoordinatorStore:
    """The database of a coordinator.

    Parameters
    ----------
    url : str
        ``sqlite:///PATH`` or ``postgresql://USER:PASSWORD@HOST/NAME``.
    clock : callable, optional
        Returns the time.

    Raises
    ------
    StoreError
        If the database is damaged, cannot be reached, or was written by a later version.
    """

    def __init__(self, url: str, *, clock: Callable[[], datetime.datetime] = system_clock) -> None:
        self.url = url
        self.clock = clock
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        try:
            if self.is_sqlite:
                self._check_file()
            with self.write() as session:
                current = is_current(session.connection())
            if not current:
                # Not under a service of another version, which would go on with other tables.
                with self.alone(), self.write() as session:
                    upgrade(session.connection())
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Path:
        """The file of SQLite, without links."""
        return Path(self.engine.url.database or "").resolve()

    def _check_file(self) -> None:
        """Find damage now rather than in the middle of a decision."""
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)  # it will hold confidential reports
        with self._translated(), self.engine.connect() as connection:
            found = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
        if found != "ok":
            raise DamagedStoreError(self._damaged(str(found)))

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Context manager for a transaction that writes: one at a time, whole or not at all."""
        with self._translated(), Transaction(self.engine, self.clock) as session:
            if self.is_sqlite:
                session.connection(execution_options={"fedegoists_begin": "IMMEDIATE"})
            else:
                session.execute(text(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"))
            yield session
            session.commit()

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Context manager for a transaction that reads one consistent state."""
        with self._translated(), Transaction(self.engine, self.clock) as session:
            if not self.is_sqlite:
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Context manager that refuses a second service over the same database.

        Both would work on the same runs. A file of SQLite has a lock beside it, by whichever
        folder or link it is reached; PostgreSQL has one inside.
        """
        if self.is_sqlite:
            with _locked(self.path):
                yield
            return
        with self._translated():
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        with connection:
            with self._translated():
                lock = text(f"SELECT pg_try_advisory_lock({SERVICE_LOCK})")
                taken = connection.execute(lock).scalar_one()
            if not taken:
                raise StoreError("another coordinator is running over this database")
            try:
                yield
            finally:
                connection.invalidate()  # releases the lock, even if the connection is broken

    def seconds_behind(self) -> float:
        """Return by how much the clock is behind the last entry of the audit log, or 0."""
        with self.read() as session:
            return max(0.0, seconds_between(as_moment(self.clock()), session.earliest()))

    def close(self) -> None:
        """Close all connections; all data of SQLite is then in its one file."""
        if self.is_sqlite:
            self._checkpoint()
        self.engine.dispose()

    def _checkpoint(self) -> None:
        """Move what is in the write-ahead log into the file, unless another process needs it."""
        with suppress(exc.DBAPIError, sqlite3.Error, OSError):  # such as of a damaged file
            connection = self.engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute("PRAGMA busy_timeout=1000")
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                cursor.close()
            finally:
                connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of the database driver into errors that an operator can act upon."""
        try:
            yield
        except exc.DBAPIError as error:
            raise self._translation(error) from None
        except exc.TimeoutError:
            raise UnavailableStoreError(
                "the database is busy: too many requests at once; try again"
            ) from None

    def _translation(self, error: exc.DBAPIError) -> StoreError:
        original = error.orig
        code = getattr(original, "sqlite_errorcode", None)
        state = getattr(original, "sqlstate", None)
        if code == sqlite3.SQLITE_FULL or state == "53100":
            return FullStoreError(
                "there is no room left on the disk; nothing of this was kept. "
                "Make room, then do it again"
            )
        if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return DamagedStoreError(self._damaged(str(original)))
        if state in ("XX001", "XX002"):
            return DamagedStoreError(
                f"PostgreSQL finds its data damaged ({str(original).splitlines()[0]}); nothing of "
                "this was kept. Restore a backup into a new database: fedegoists restore BACKUP"
            )
        if code is not None and code & 0xFF == sqlite3.SQLITE_IOERR:
            return UnavailableStoreError(
                f"the database file cannot be read or written ({original}); nothing of this was "
                "kept. Is the disk full or broken?"
            )
        if isinstance(error, exc.OperationalError):
            reason = str(original).splitlines()[0] if str(original) else type(original).__name__
            return UnavailableStoreError(f"the database does not answer: {reason}")
        return StoreError(f"the database refused: {str(original).splitlines()[0]}")

    def _damaged(self, found: str) -> str:
        return (
            f"{self.engine.url.database}: the database file is damaged ({found}); nothing was "
            "changed. Put it aside and restore a backup: fedegoists restore BACKUP --data DIR"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Context manager that holds the lock beside a file."""
    beside = path.with_name(f"{path.name}.lock")
    try:
        file = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(f"{beside}: cannot be locked ({error.strerror})") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(
                f"{path}: another coordinator is running over this database file; stop it first, "
                "or give another file with --data or --database"
            ) from None
        yield
    finally:
        os.close(file)


def earliest_after(entry: AuditEntry) -> str:
    """Return the earliest time that the entry after this one can have."""
    if entry.action == CLOCK_WENT_BACK:
        return str(json.loads(entry.details)["clock"])
    return entry.at


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        # The address may hold a password, so it is not shown.
        raise SettingsError(
            "the database's address is not one; expected sqlite:///PATH or "
            "postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise SettingsError(f"databases are sqlite and postgresql, not {parsed.get_backend_name()}")
    try:
        if parsed.get_backend_name() == "postgresql":
            return create_engine(parsed, hide_parameters=True, pool_pre_ping=True, pool_size=20)
        engine = create_engine(
            parsed,
            hide_parameters=True,
            pool_size=20,
            connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        )
    except ImportError as error:
        raise MissingDependencyError(
            f"PostgreSQL needs {error.name}: {install_command('postgresql')}"
        ) from None
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    cursor = connection.cursor()
    # Readers never wait for a writer, and committed transactions survive a power cut.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    kind = connection.get_execution_options().get("fedegoists_begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {kind}")

"""Databases for tests: SQLite always, PostgreSQL where its server's programs are installed."""

import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["database_url", "postgres_server", "tampered"]


def _programs() -> Path | None:
    """Where initdb and pg_ctl are, if anywhere."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return installed[-1].parent if installed else None


@contextmanager
def postgres_server() -> Iterator[Callable[[], str]]:
    """Start a server of our own; yield a function that makes a database and returns its address."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's server is not installed (apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra postgresql)")
    as_user: dict[str, object] = {}
    if os.getuid() == 0:  # the server refuses to run as root
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        def call(program: str, *arguments: str) -> None:
            subprocess.run(
                [programs / program, *arguments],
                check=True,
                cwd="/",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **as_user,
            )

        cluster = str(folder / "cluster")
        call("initdb", "-D", cluster, "-U", "fedegoists", "--auth=trust", "-E", "UTF8", "-N")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
        call("pg_ctl", "-D", cluster, "-w", "-o", options, "-l", f"{cluster}.log", "start")

        def new_database() -> str:
            import psycopg

            address = f"postgresql://fedegoists@127.0.0.1:{port}"
            database = f"d{uuid.uuid4().hex}"
            with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {database}")
            return f"{address}/{database}"

        def restart() -> None:
            call("pg_ctl", "-D", cluster, "-m", "fast", "-w", "-l", f"{cluster}.log", "restart")

        new_database.restart = restart  # type: ignore[attr-defined]
        new_database.cluster = Path(cluster)  # type: ignore[attr-defined]
        new_database.owner = as_user.get("user", os.getuid())  # type: ignore[attr-defined]
        try:
            yield new_database
        finally:
            call("pg_ctl", "-D", cluster, "-m", "immediate", "-w", "stop")


def database_url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'coordinator.db'}"
    return request.getfixturevalue("new_postgres_database")()


def tampered(path, *statements):
    """Change a database behind the coordinator's back, as its owner could."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER IF EXISTS audit_log_no_update")
        connection.execute("DROP TRIGGER IF EXISTS audit_log_no_delete")
        for statement in statements:
            connection.execute(statement)
    connection.close()

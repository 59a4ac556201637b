"""Stores and consortia that the coordinator's tests share."""

import datetime
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the extra coordinator is not installed")
pytest.importorskip("fastapi", reason="the extra coordinator is not installed")

from fedegoists.coordinator.runs.run_queue import RunQueue
from fedegoists.coordinator.store import CoordinatorStore
from tests.cli.conftest import run
from tests.coordinator.databases import database_url, postgres_server
from tests.coordinator.served import inside

__all__ = ["run"]


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.time

    def move(self, **by: float) -> None:
        self.time += datetime.timedelta(**by)


@pytest.fixture
def tmp_path(tmp_path):
    """A folder in memory where there is one: tests wait for thousands of commits to be on disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture(scope="session")
def new_postgres_database():
    with postgres_server() as new_database:
        yield new_database


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path, clock):
    """Both kinds of store."""
    opened = CoordinatorStore(database_url(request.param, tmp_path, request), clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(tmp_path, clock):
    opened = CoordinatorStore(f"sqlite:///{tmp_path / 'coordinator.db'}", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def served(sqlite_store, tmp_path):
    """A client of the application, and the manager's token."""
    with inside(sqlite_store, tmp_path) as both:
        yield both


@pytest.fixture
def any_plan(monkeypatch):
    """Plans are queued whether there is such data or not."""
    monkeypatch.setattr(RunQueue, "_check", lambda *_: None)

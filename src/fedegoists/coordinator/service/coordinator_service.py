"""The parts of a running coordinator, which all requests share."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, PositiveInt

from fedegoists.coordinator.domain.coalition_decisions import Decider
from fedegoists.coordinator.domain.consortia import consortium_with
from fedegoists.coordinator.runs.run_orders import LOCAL_ONLY, Reach
from fedegoists.coordinator.runs.run_queue import RunQueue
from fedegoists.coordinator.service.disk_room import DiskRoom
from fedegoists.coordinator.service.fresh_secrets import FreshSecrets
from fedegoists.coordinator.store import CoordinatorStore, Transaction
from fedegoists.coordinator.store.database_tables import ConsortiumRow


class Limits(BaseModel):
    """Limits of what callers may ask for.

    Attributes
    ----------
    requests_per_minute : int
        For each token or session; a fifth of it for each address without one.
    failures_per_minute : int
        Wrong tokens or invitations, for each address.
    body_bytes : int
        The largest request; a benefit graph of 200,000 edges fits.
    streams : int
        Browsers that follow runs at the same time.
    free_bytes : int
        With less room on a disk, health says so.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: PositiveInt = 600
    failures_per_minute: PositiveInt = 20
    body_bytes: PositiveInt = 16 * 1024 * 1024
    streams: PositiveInt = 100
    free_bytes: PositiveInt = 100 * 1024 * 1024


class Metrics:
    """Metrics for Prometheus. They count requests and runs, never reports of competitors."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fedegoists_requests", "Requests", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "fedegoists_request_seconds",
            "Time to answer",
            ["route"],
            registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 10.0),
        )
        self.refused = Counter(
            "fedegoists_refused", "Requests refused by a limit", ["why"], registry=self.registry
        )
        self.ended = Counter(
            "fedegoists_connections_ended",
            "Connections ended by a limit",
            ["why"],
            registry=self.registry,
        )
        self.runs = Gauge("fedegoists_runs", "Runs by state", ["state"], registry=self.registry)
        self.streams = Gauge("fedegoists_streams", "Open event streams", registry=self.registry)
        self.clock_behind = Gauge(
            "fedegoists_clock_behind_seconds",
            "By how much the clock is behind the audit log",
            registry=self.registry,
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class Service:
    """The parts of a running coordinator; nothing runs yet.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds, for the limits of requests.
    """

    def __init__(
        self,
        store: CoordinatorStore,
        data: Path,
        limits: Limits | None = None,
        reach: Reach = LOCAL_ONLY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.data, self.reach, self.clock = store, data, reach, clock
        self.limits = limits or Limits()
        self.decider = Decider(store)
        self.queue = RunQueue(store, data, reach)
        self.metrics = Metrics()
        self.fresh = FreshSecrets(clock)
        written = {"runs": data / "runs"}
        if store.is_sqlite:
            written["database"] = store.path.parent
        self.disks = DiskRoom(written, self.limits.free_bytes, clock)
        self.stopping = threading.Event()
        self.streams = 0

    @contextmanager
    def reading(self, consortium_id: int) -> Iterator[tuple[Transaction, ConsortiumRow]]:
        """Context manager for a transaction that reads about one consortium."""
        with self.store.read() as session:
            yield session, consortium_with(session, consortium_id)

    @contextmanager
    def writing(self, consortium_id: int) -> Iterator[tuple[Transaction, ConsortiumRow]]:
        """Context manager for a transaction that changes one consortium."""
        with self.store.write() as session:
            yield session, consortium_with(session, consortium_id)


def service_of(request: Request) -> Service:
    """Return the service of a request's application."""
    return cast("Service", request.app.state.service)

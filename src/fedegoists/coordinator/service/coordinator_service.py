"""The parts of a running coordinator, which all requests share."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from fastapi import Request
from pydantic import BaseModel, ConfigDict, PositiveInt

from fedegoists.coordinator.domain.coalition_decisions import Decider
from fedegoists.coordinator.domain.consortia import consortium_with
from fedegoists.coordinator.runs.run_queue import RunQueue
from fedegoists.coordinator.runs.run_task import LOCAL_ONLY, Reach
from fedegoists.coordinator.service.service_metrics import Metrics
from fedegoists.coordinator.store import CoordinatorStore, Transaction
from fedegoists.coordinator.store.database_tables import ConsortiumRow

__all__ = ["Limits", "Service", "service_of"]


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
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: PositiveInt = 600
    failures_per_minute: PositiveInt = 20
    body_bytes: PositiveInt = 16 * 1024 * 1024
    streams: PositiveInt = 100


@dataclass
class Service:
    """The parts of a running coordinator."""

    store: CoordinatorStore
    data: Path
    decider: Decider
    queue: RunQueue
    limits: Limits
    reach: Reach = LOCAL_ONLY
    metrics: Metrics = field(default_factory=Metrics)
    stopping: threading.Event = field(default_factory=threading.Event)
    streams: int = 0

    @classmethod
    def over(
        cls,
        store: CoordinatorStore,
        data: Path,
        limits: Limits | None = None,
        reach: Reach = LOCAL_ONLY,
    ) -> "Service":
        """Return the parts over a store and a folder; nothing runs yet."""
        queue = RunQueue(store, data, reach)
        return cls(store, data, Decider(store), queue, limits or Limits(), reach)

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

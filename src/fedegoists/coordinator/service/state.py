"""What all requests share."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from fastapi import Request

from fedegoists.coordinator.domain.coalition_decisions import Decider
from fedegoists.coordinator.runs.run_queue import RunQueue
from fedegoists.coordinator.runs.run_task import LOCAL_ONLY, Reach
from fedegoists.coordinator.service.metrics import Metrics
from fedegoists.coordinator.store import Store

__all__ = ["Limits", "Service", "service_of"]


@dataclass(frozen=True)
class Limits:
    """How much anybody may ask for.

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

    requests_per_minute: int = 600
    failures_per_minute: int = 20
    body_bytes: int = 16 * 1024 * 1024
    streams: int = 100


@dataclass
class Service:
    """The parts of a running coordinator."""

    store: Store
    data: Path
    decider: Decider
    queue: RunQueue
    limits: Limits = Limits()
    reach: Reach = LOCAL_ONLY
    metrics: Metrics = field(default_factory=Metrics)
    stopping: threading.Event = field(default_factory=threading.Event)
    streams: int = 0

    @classmethod
    def over(
        cls,
        store: Store,
        data: Path,
        limits: Limits | None = None,
        reach: Reach = LOCAL_ONLY,
    ) -> "Service":
        """Return the parts over a store and a folder; nothing runs yet."""
        queue = RunQueue(store, data, reach)
        return cls(store, data, Decider(store), queue, limits or Limits(), reach)


def service_of(request: Request) -> Service:
    """Return the service a request came to."""
    return cast("Service", request.app.state.service)

"""Metrics for Prometheus. They count requests and runs, never reports of competitors."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]


class Metrics:
    """The metrics of one service."""

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

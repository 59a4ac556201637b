"""Writing the report."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedegoists.consortium.pipeline import ConsortiumRun

__all__ = ["write_report"]


def write_report(run: "ConsortiumRun") -> None:
    """Write ``report.html`` and a page for each participant to the run's folder."""
    raise NotImplementedError(run)

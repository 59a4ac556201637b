"""The report of a run: pages that need nothing else, for the manager and for each participant."""

from fedegoists.consortium.report.report_files import write_report

__all__ = ["write_report"]

"""The report of a run: self-contained pages for the manager and for each participant."""

from fedegoists.consortium.report.report_files import write_report

__all__ = ["write_report"]

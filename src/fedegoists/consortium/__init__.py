"""A consortium described in one file: from data to decision to models to a report."""

from fedegoists.consortium.pipeline import Consortium, ConsortiumRun
from fedegoists.consortium.settings import ConsortiumSettings, read_settings

__all__ = ["Consortium", "ConsortiumRun", "ConsortiumSettings", "read_settings"]

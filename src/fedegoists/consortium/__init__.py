"""A consortium described in one file: from data to decision to models to a report."""

from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
from fedegoists.consortium.pipeline import Consortium, ConsortiumRun

__all__ = ["Consortium", "ConsortiumRun", "ConsortiumSettings", "read_settings"]

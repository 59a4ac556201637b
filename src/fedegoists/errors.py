"""Errors a user can cause, each with the fix in its message.

The command line prints the message without a traceback and exits with 2.
"""

__all__ = [
    "CertificateError",
    "FedEgoistsError",
    "FileError",
    "GraphError",
    "MissingDependencyError",
    "PartitionError",
    "SettingsError",
]


class FedEgoistsError(Exception):
    """Base of every error that a user can cause and repair."""


class GraphError(FedEgoistsError, ValueError):
    """A benefit or competition graph that cannot be what its author meant."""


class PartitionError(FedEgoistsError, ValueError):
    """Coalitions, or a clique cover, that are not a partition of the participants."""


class SettingsError(FedEgoistsError, ValueError):
    """An option with a value outside its range, or options that exclude each other."""


class CertificateError(FedEgoistsError, ValueError):
    """A certificate that is not one: unreadable, incomplete, or of another version."""


class FileError(FedEgoistsError, OSError):
    """A file that cannot be read or written."""


class MissingDependencyError(FedEgoistsError, ImportError):
    """A package that this feature needs and that is not installed."""

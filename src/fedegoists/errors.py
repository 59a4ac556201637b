"""Errors a user can cause, each with the fix in its message.

The command line prints the message without a traceback and exits with 2.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class FedEgoistsError(Exception):
    """Base of every error that a user can cause and repair."""


class GraphError(FedEgoistsError, ValueError):
    """A benefit or competition graph that is not valid."""


class PartitionError(FedEgoistsError, ValueError):
    """Coalitions, or a clique cover, that are not a partition of the participants."""


class SettingsError(FedEgoistsError, ValueError):
    """An option with a value outside its range, or options that exclude each other."""


class CertificateError(FedEgoistsError, ValueError):
    """A certificate that is unreadable, incomplete, or of another version."""


class FileError(FedEgoistsError, OSError):
    """A file that cannot be read or written."""


class MissingDependencyError(FedEgoistsError, ImportError):
    """A package that this feature needs and that is not installed."""


def shown(value: object, length: int = 60) -> str:
    """Return the representation of a value, cut to a readable length, for error messages.

    Examples
    --------
    >>> shown("x" * 100, 8)
    "'xxxxxxx…"
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or lists nested as deep
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= length else f"{text[:length]}…"


def first_problem(error: "ValidationError") -> str:
    """Return the first problem of a pydantic error: where it is, and what is wrong there."""
    first = error.errors()[0]
    place = " → ".join(shown(part) for part in first["loc"]) or "the file"
    return f"{place}: {first['msg']}"

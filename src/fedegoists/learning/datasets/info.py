"""What a user can know about a data set before loading it."""

from dataclasses import dataclass

__all__ = ["DatasetInfo", "Option"]


@dataclass(frozen=True)
class Option:
    """Something about a data set that a user can choose."""

    name: str
    default: object
    meaning: str


@dataclass(frozen=True)
class DatasetInfo:
    """A data set's name, what it is in one line, its options, its licence and its home."""

    name: str
    summary: str
    options: tuple[Option, ...]
    licence: str
    source: str

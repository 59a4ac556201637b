"""Participants: an organisation's name and, in repeated experiments, which repetition it is in."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Repetition = int | str
"""Which of several repeated experiments: usually its seed."""


@functools.total_ordering
@dataclass(frozen=True, repr=False)
class Participant:
    """An organisation that takes part, in one repetition of an experiment.

    Attributes
    ----------
    name : str
        The organisation.
    repetition : int or str, optional
        The repetition; nothing where an experiment is not repeated.

    Examples
    --------
    >>> Participant("North")
    'North'
    >>> str(Participant("North", 0))
    '0/North'
    """

    name: str
    repetition: Repetition | None = None

    def __str__(self) -> str:
        """Return the text for logs, files and seeds of random numbers; it is never parsed."""
        return self.name if self.repetition is None else f"{self.repetition}/{self.name}"

    def __repr__(self) -> str:
        return repr(str(self))

    def __lt__(self, other: "Participant") -> bool:
        return str(self) < str(other)

    @classmethod
    def groups(
        cls, coalitions: Iterable[Sequence[str]], repetition: Repetition | None = None
    ) -> list[tuple["Participant", ...]]:
        """Return coalitions of names as coalitions of participants of one repetition.

        Examples
        --------
        >>> Participant.groups([["North", "South"], ["East"]], 7)
        [('7/North', '7/South'), ('7/East',)]
        """
        return [tuple(cls(name, repetition) for name in group) for group in coalitions]

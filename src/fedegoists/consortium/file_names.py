"""Participants' names as names of files."""

from collections import Counter
from collections.abc import Sequence

from fedegoists.files import file_name, name_digest

__all__ = ["file_names"]


def file_names(participants: Sequence[str]) -> dict[str, str]:
    """Return for each participant a name, without a suffix, that every file system takes.

    No two are the same, capital letters aside, so that nobody's file is written over another's.

    Examples
    --------
    >>> file_names(["North Bank", "東京"])
    {'North Bank': 'North Bank', '東京': '東京'}
    >>> file_names(["a/b", "a_b"])
    {'a/b': 'a_b-c14cddc0', 'a_b': 'a_b-648fa9b3'}
    """
    plain = {name: file_name(name) for name in participants}
    taken = Counter(own.casefold() for own in plain.values())
    marked = {name: f"{own}-{name_digest(name)}" for name, own in plain.items()}
    found = {
        name: own if own and taken[own.casefold()] == 1 else marked[name]
        for name, own in plain.items()
    }
    # Somebody may be called what another's name was made into.
    return found if len({own.casefold() for own in found.values()}) == len(found) else marked

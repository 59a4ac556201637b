"""Participants' names as names of files."""

from collections import Counter
from collections.abc import Sequence

from fedegoists.files import file_name, name_digest


def file_names(participants: Sequence[str]) -> dict[str, str]:
    """Return a file name without suffix for each participant, valid on every file system.

    No two are the same in small letters, so that no file overwrites another.

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
    # A participant may have the very name that was made for another.
    return found if len({own.casefold() for own in found.values()}) == len(found) else marked

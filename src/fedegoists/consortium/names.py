"""Participants' names as names of files."""

import hashlib
from collections import Counter
from collections.abc import Sequence

__all__ = ["file_names"]

LONGEST = 50


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
    plain = {name: _plain(name) for name in participants}
    taken = Counter(own.casefold() for own in plain.values())
    marked = {name: f"{own}-{_digest(name)}" for name, own in plain.items()}
    found = {
        name: own if own and taken[own.casefold()] == 1 else marked[name]
        for name, own in plain.items()
    }
    # Somebody may be called what another's name was made into.
    return found if len({own.casefold() for own in found.values()}) == len(found) else marked


def _plain(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "._- " else "_" for c in name).strip("-. ")
    # A letter takes up to four bytes, and file systems allow 255.
    return kept if len(kept) <= LONGEST else f"{kept[:LONGEST].strip('-. ')}-{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]

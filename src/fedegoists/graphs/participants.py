"""Participants: an ordered list of distinct names, and how a user refers to one of them."""

import difflib
import operator
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence

from fedegoists.errors import GraphError
from fedegoists.files import read_text

__all__ = [
    "MAX_PARTICIPANTS",
    "Reference",
    "default_names",
    "index_of",
    "natural_order",
    "read_participants",
    "validated_name",
    "validated_names",
]

MAX_PARTICIPANTS = 5_000
"""Graphs over more participants are refused: their weights alone would need over 200 MB."""

MAX_NAME_LENGTH = 200

Reference = str | int
"""A participant, by name or by position."""


def default_names(n: int) -> tuple[str, ...]:
    """Return the names participants have when nobody named them, ``v0`` and so on.

    Examples
    --------
    >>> default_names(3)
    ('v0', 'v1', 'v2')
    """
    return tuple(f"v{i}" for i in range(n))


def validated_name(name: object, where: str = "participants") -> str:
    """Return a participant's name in Unicode normal form, or say what is wrong with it.

    Names are shown in terminals, reports and web pages, so control characters are refused.
    """
    if not isinstance(name, str):
        raise GraphError(f"{where}: {name!r} is not a name; participants are named by strings")
    name = unicodedata.normalize("NFC", name)
    if not name.strip():
        raise GraphError(f"{where}: a participant's name is empty")
    if name != name.strip():
        raise GraphError(f"{where}: the name {name!r} starts or ends with a space; remove it")
    if len(name) > MAX_NAME_LENGTH:
        raise GraphError(
            f"{where}: the name {name[:30]!r}… has {len(name)} characters; "
            f"at most {MAX_NAME_LENGTH} are allowed"
        )
    # Control, format (such as text direction) and lone surrogate characters, and line separators.
    if any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in name):
        raise GraphError(f"{where}: the name {name!r} contains a control character; remove it")
    return name


def validated_names(names: Iterable[object], where: str = "participants") -> tuple[str, ...]:
    """Return distinct names in the given order, or say which one is wrong."""
    if isinstance(names, str):
        raise GraphError(f"{where}: expected a list of names, not the single string {names!r}")
    valid = tuple(validated_name(name, where) for name in names)
    check_count(len(valid), where)
    if len(set(valid)) < len(valid):
        seen: set[str] = set()
        for position, name in enumerate(valid):
            if name in seen:
                first = valid.index(name)
                raise GraphError(
                    f"{where}: the name {name!r} stands twice (positions {first} and {position}); "
                    "names must differ"
                )
            seen.add(name)
    return valid


def check_count(n: int, where: str) -> None:
    """Refuse more participants than fit in memory."""
    if n > MAX_PARTICIPANTS:
        raise GraphError(
            f"{where}: {n:,} participants; at most {MAX_PARTICIPANTS:,} are supported. "
            "Are the columns in the right order?"
        )


def index_of(reference: object, participants: Sequence[str], where: str) -> int:
    """Return the position of a participant given by name or position.

    Examples
    --------
    >>> index_of("b", ["a", "b"], "pair 0"), index_of(0, ["a", "b"], "pair 0")
    (1, 0)
    """
    if isinstance(reference, str):
        name = unicodedata.normalize("NFC", reference)
        try:
            return participants.index(name)
        except ValueError:
            raise unknown_name(name, participants, where) from None
    try:
        position = operator.index(reference)  # type: ignore[arg-type]
    except TypeError:
        position = -1
    if isinstance(reference, bool) or not 0 <= position < len(participants):
        raise GraphError(
            f"{where}: {reference!r} is not a participant; expected a name or a position "
            f"from 0 to {len(participants) - 1}"
        )
    return position


def unknown_name(name: str, participants: Sequence[str], where: str) -> GraphError:
    """Return the error for a name that is not in the list, with the closest names there are."""
    close = difflib.get_close_matches(name, participants, n=3)
    hint = (
        f"did you mean {', '.join(map(repr, close))}?"
        if close
        else f"known are {', '.join(map(repr, participants[:8]))}"
        + (f" and {len(participants) - 8} more" if len(participants) > 8 else "")
        if participants
        else "the list of participants is empty"
    )
    return GraphError(f"{where}: unknown participant {name!r}; {hint}")


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names as people do, numbers by their value.

    Examples
    --------
    >>> natural_order(["v10", "v2", "Bank B", "Bank A"])
    ('Bank A', 'Bank B', 'v2', 'v10')
    """

    def key(name: str) -> tuple[list[tuple[bool, int, str]], str]:
        parts = re.findall(r"[0-9]+|[^0-9]+", name)
        is_number = re.compile(r"[0-9]{1,18}\Z").match
        return (
            [(True, int(p), "") if is_number(p) else (False, 0, p.casefold()) for p in parts],
            name,
        )

    return tuple(sorted(names, key=key))


def read_participants(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read a list of participants: one name a line; a first line ``participant`` is a header.

    The order of the lines is the order of the participants. Empty lines are passed over.
    """
    lines = [line.strip() for line in read_text(path).splitlines()]
    names = [line for line in lines if line]
    if names and names[0].casefold() in {"participant", "participants"}:
        names = names[1:]
    return validated_names(names, str(path))

"""Participants: an ordered list of distinct names, and references to them by name or position."""

import difflib
import io
import operator
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from fedegoists.errors import GraphError, shown
from fedegoists.files import read_text

MAX_PARTICIPANTS = 10_000
"""Graphs over more participants are refused: the searches are made for up to this many."""

MAX_NAME_LENGTH = 200

Reference = str | int
"""A participant, by name or by position."""


def default_names(n: int) -> tuple[str, ...]:
    """Return the default names of n participants: ``v0``, ``v1``, ….

    Examples
    --------
    >>> default_names(3)
    ('v0', 'v1', 'v2')
    """
    return tuple(f"v{i}" for i in range(n))


def validated_name(name: object, where: str = "participants") -> str:
    """Return a participant's name in Unicode normal form; a name that is not valid is an error.

    Names are shown in terminals, reports and web pages, so control characters are refused.
    """
    if not isinstance(name, str):
        raise GraphError(f"{where}: {shown(name)} is not a name; participants are named by strings")
    # Numpy's strings and other subclasses become plain ones.
    name = unicodedata.normalize("NFC", str.__str__(name))
    if not name.strip():
        raise GraphError(f"{where}: a participant's name is empty")
    if len(name) > MAX_NAME_LENGTH:
        raise GraphError(
            f"{where}: the name {name[:30]!r}… has {len(name)} characters; "
            f"at most {MAX_NAME_LENGTH} are allowed"
        )
    if name != name.strip():
        raise GraphError(f"{where}: the name {name!r} starts or ends with a space; remove it")
    # Control, format (such as text direction) and lone surrogate characters, and line separators.
    if any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in name):
        raise GraphError(f"{where}: the name {name!r} contains a control character; remove it")
    return name


def validated_names(names: Iterable[object], where: str = "participants") -> tuple[str, ...]:
    """Return distinct, valid names in the given order."""
    if isinstance(names, str):
        raise GraphError(f"{where}: expected a list of names, not the single string {shown(names)}")
    if isinstance(names, set | frozenset):
        raise GraphError(f"{where}: a set of names has no order; give the names in a list")
    try:
        in_order = iter(names)
    except TypeError:
        raise GraphError(f"{where}: expected a list of names, got {shown(names)}") from None
    positions: dict[str, int] = {}
    for position, given in enumerate(in_order):
        name = validated_name(given, where)
        if name in positions:
            raise GraphError(
                f"{where}: the name {name!r} is listed twice (positions {positions[name]} and "
                f"{position}); names must differ"
            )
        positions[name] = position
        check_count(len(positions), where)
    return tuple(positions)


def check_count(n: int, where: str) -> None:
    """Refuse more participants than fit in memory."""
    if n > MAX_PARTICIPANTS:
        raise GraphError(
            f"{where}: too many participants; at most {MAX_PARTICIPANTS:,} are supported"
        )


def index_of(
    reference: object,
    participants: Sequence[str],
    where: str,
    positions: Mapping[str, int] | None = None,
) -> int:
    """Return the position of a participant given by name or position.

    `positions` maps names to positions; it makes looking up many names fast.

    Examples
    --------
    >>> index_of("b", ["a", "b"], "pair 0"), index_of(0, ["a", "b"], "pair 0")
    (1, 0)
    """
    if isinstance(reference, str):
        if positions is not None and reference in positions:
            return positions[reference]
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
        expected = (
            f"expected a name or a position from 0 to {len(participants) - 1}"
            if participants
            else "the list of participants is empty"
        )
        raise GraphError(f"{where}: {shown(reference)} is not a participant; {expected}")
    return position


def close_names(name: str, participants: Sequence[str]) -> list[str]:
    """Return up to three names that are similar to this one, closest first.

    Examples
    --------
    >>> close_names("Nroth", ["North", "West"]), close_names("a", ["A", "B"])
    (['North'], ['A'])
    """
    same = [known for known in participants if known.casefold() == name.casefold()]
    if same:
        return same[:3]
    # Comparing a long name with thousands of others would take minutes.
    affordable = len(name) ** 2 * len(participants) <= 10_000_000
    return difflib.get_close_matches(name, participants, n=3) if affordable else []


def unknown_name(name: str, participants: Sequence[str], where: str) -> GraphError:
    """Return the error for a name that is not in the list, with the closest names as a hint."""
    close = close_names(name, participants)
    hint = (
        f"did you mean {', '.join(map(repr, close))}?"
        if close
        else f"known are {', '.join(map(repr, participants[:8]))}"
        + (f" and {len(participants) - 8} more" if len(participants) > 8 else "")
        if participants
        else "the list of participants is empty"
    )
    return GraphError(f"{where}: unknown participant {shown(name, MAX_NAME_LENGTH)}; {hint}")


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names in natural order: numbers by value, and before letters.

    Examples
    --------
    >>> natural_order(["v10", "v2", "Bank B", "Bank A"])
    ('Bank A', 'Bank B', 'v2', 'v10')
    """

    def key(name: str) -> tuple[list[tuple[bool, int, str]], str]:
        parts = re.findall(r"([0-9]+)|([^0-9]+)", name)
        return (
            [
                (False, int(digits), "") if digits else (True, 0, s.casefold())
                for digits, s in parts
            ],
            name,
        )

    return tuple(sorted(names, key=key))


def read_participants(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read a list of participants, one name per line; a first line ``participant`` is a header.

    The order of the lines is the order of the participants. Empty lines are skipped. A file
    with the header alone has no participants; an empty file is an error.
    """
    text = io.StringIO(read_text(path), newline=None)
    written = ((k, name) for k, line in enumerate(text, start=1) if (name := line.strip()))
    lines: dict[str, int] = {}  # the line of each name
    is_empty = True
    for k, line in written:
        is_header = is_empty and line.casefold() in {"participant", "participants"}
        is_empty = False
        if is_header:
            continue
        name = validated_name(line, f"{path}, line {k}")
        if name in lines:
            raise GraphError(
                f"{path}, line {k}: the name {name!r} is already on line {lines[name]}; "
                "names must differ"
            )
        lines[name] = k
        check_count(len(lines), f"{path}, line {k}")
    if is_empty:
        raise GraphError(f"{path}: the file is empty; write one name per line")
    return tuple(lines)

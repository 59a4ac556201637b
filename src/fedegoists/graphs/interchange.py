"""Reading the links of both graphs: from CSV, JSON, NetworkX and lists."""

import os
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError, shown
from fedegoists.files import csv_rows
from fedegoists.graphs.participants import (
    check_count,
    default_names,
    index_of,
    unknown_name,
    validated_name,
    validated_names,
)

if TYPE_CHECKING:
    import networkx as nx

Node = TypeVar("Node", bound=Hashable)
"""A node of a NetworkX graph."""

_ROW = {2: "a pair of two participants", 3: "two participants and a weight"}


@dataclass(frozen=True)
class Links:
    """Edges or pairs as they were read from a file, a list or a JSON object.

    `first` and `second` are positions in `names`; `place` tells where link k was read, for errors.
    """

    names: Sequence[str]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    place: Callable[[int], str]

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        first: "array[int]",
        second: "array[int]",
        weights: "array[float]",
        place: Callable[[int], str],
    ) -> "Links":
        """Make links from growing arrays, which need a tenth of the memory of lists."""
        ends = np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
        return cls(names, *ends, np.array(weights, dtype=np.float64), place)

    def located_in(
        self, participants: tuple[str, ...]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the links' ends as positions in `participants`; an unknown name is an error."""
        positions = {name: position for position, name in enumerate(participants)}
        located = np.array([positions.get(name, -1) for name in self.names], dtype=np.int64)
        first, second = located[self.first], located[self.second]
        unknown = np.flatnonzero((first < 0) | (second < 0))
        if len(unknown):
            k = int(unknown[0])
            name = self.names[self.first[k] if first[k] < 0 else self.second[k]]
            raise unknown_name(name, participants, self.place(k))
        return first, second

    def first_repeated(self, keys: npt.NDArray[np.int64]) -> int | None:
        """Return the first link whose key an earlier link has too."""
        order = np.argsort(keys, kind="stable")
        repeated = order[1:][keys[order[1:]] == keys[order[:-1]]]
        return int(repeated.min()) if len(repeated) else None


def read_links(path: str | os.PathLike[str], columns: tuple[str, ...]) -> Links:
    """Read a CSV file of links; `columns` are the two ends and possibly ``weight``."""
    known: dict[str, int] = {}  # the position in names, of a name as written
    names: dict[str, int] = {}
    first, second, weights, lines = array("q"), array("q"), array("d"), array("q")
    for number, row in csv_rows(path, columns, GraphError):
        for ends, name in ((first, row[0]), (second, row[1])):
            if name not in known:
                line = f"{path}, line {number}"
                valid = validated_name(name.strip(), line)
                known[name] = names.setdefault(valid, len(names))
                check_count(len(names), line)
            ends.append(known[name])
        if len(columns) > 2:
            try:
                weights.append(_number_from_text(row[2]))
            except ValueError:
                raise GraphError(
                    f"{path}, line {number}: the weight {shown(row[2])} of {row[0].strip()!r} for "
                    f"{row[1].strip()!r} is not a number; write numbers like 0.25"
                ) from None
        lines.append(number)
    return Links.of(tuple(names), first, second, weights, lambda k: f"{path}, line {lines[k]}")


def _number_from_text(text: str) -> float:
    text = text.strip()
    if "_" in text or not text.isascii():  # Python reads 1_000 and １ as numbers; nobody else does
        raise ValueError
    return float(text)


def links_from(
    rows: Iterable[Sequence[object]], width: int, participants: tuple[str, ...], what: str
) -> Links:
    """Return links from rows of two participants, by name or position, and maybe a weight.

    `width` is 2, or 3 for rows with a weight.
    """
    try:
        rows = iter(rows)
    except TypeError:
        raise GraphError(f"{what}s: expected a list of them, got {shown(rows)}") from None
    positions = {name: position for position, name in enumerate(participants)}
    first, second, weights = array("q"), array("q"), array("d")
    for k, row in enumerate(rows):
        place = f"{what} {k}"
        if isinstance(row, np.ndarray):
            row = row.tolist()
        if not isinstance(row, tuple | list) or len(row) != width:
            raise GraphError(f"{place}: {shown(row)} is not {_ROW[width]}")
        for ends, reference in ((first, row[0]), (second, row[1])):
            ends.append(index_of(reference, participants, place, positions))
        if width > 2:
            try:
                weights.append(_number(row[2]))
            except (TypeError, OverflowError):
                a, b = participants[first[-1]], participants[second[-1]]
                raise GraphError(
                    f"{place}: the weight {shown(row[2])} of {a!r} for {b!r} is not a finite number"
                ) from None
    return Links.of(participants, first, second, weights, lambda k: f"{what} {k}")


def _number(value: object) -> float:
    """Return a weight as a float; booleans and text are no weights."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return float(value)
    raise TypeError


def graph_object(
    data: object, links: str, width: int, where: str
) -> tuple[tuple[str, ...], list[list[object]]]:
    """Return names and links of a graph's JSON object after checking its shape."""
    if not isinstance(data, Mapping) or set(data) != {"participants", links}:
        raise GraphError(f"{where}: expected an object with 'participants' and {links!r}")
    names, rows = data["participants"], data[links]
    if not isinstance(names, list) or not isinstance(rows, list):
        raise GraphError(f"{where}: 'participants' and {links!r} must be lists")
    for k, row in enumerate(rows):
        # Named participants only: a number that meant a name would silently be a position.
        if (
            not isinstance(row, list)
            or len(row) != width
            or not all(isinstance(value, str) for value in row[:2])
        ):
            raise GraphError(
                f"{where}: entry {k} of {links!r} is {shown(row)}, not {_ROW[width]} by name"
            )
    return validated_names(names, where), rows


def networkx_names(
    graph: "nx.Graph[Node]", where: str
) -> tuple[tuple[str, ...], Mapping[object, str]]:
    """Return the participants of a NetworkX graph, and the name of each node."""
    nodes = list(graph.nodes)
    numbers = [node for node in nodes if isinstance(node, int) and not isinstance(node, bool)]
    if nodes and len(numbers) == len(nodes):
        if sorted(numbers) != list(range(len(nodes))):
            raise GraphError(
                f"{where}: numbered nodes must be 0 to {len(nodes) - 1}; "
                "give the nodes names with networkx.relabel_nodes"
            )
        names = default_names(len(nodes))
        return names, {node: names[k] for node, k in zip(nodes, numbers, strict=True)}
    names = validated_names(nodes, where)
    return names, dict(zip(nodes, names, strict=True))

"""What both graphs need to talk to CSV, JSON and NetworkX."""

import csv
import io
import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError
from fedegoists.files import read_text
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

__all__ = ["Links", "csv_bytes", "graph_object", "links_from", "networkx_names", "read_links"]


@dataclass(frozen=True)
class Links:
    """Edges or pairs as they stood somewhere: in a file, a list, a JSON object.

    `first` and `second` are positions in `names`; `place` tells where link k stood, for errors.
    """

    names: Sequence[str]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    place: Callable[[int], str]

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
    """Read a CSV file of links; its first row names the columns, in any order.

    `columns` are the two ends and possibly ``weight``. Empty rows are passed over.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    expected = ",".join(columns)
    order: list[int] | None = None
    known: dict[str, int] = {}  # as written, to its position in names
    names: dict[str, int] = {}
    first, second, weights, lines = array("q"), array("q"), array("d"), array("q")
    try:
        for row in reader:
            if len(row) != len(columns) or order is None:
                line = f"{path}, line {reader.line_num}"
                if not any(value.strip() for value in row):
                    continue
                if order is None:
                    order = _column_order(row, columns, line)
                    continue
                raise GraphError(
                    f"{line}: {len(row)} values where {len(columns)} are expected ({expected}); "
                    "is the file cut off, or a name with a comma not in quotes?"
                )
            for ends, k in ((first, order[0]), (second, order[1])):
                name = row[k]
                if name not in known:
                    line = f"{path}, line {reader.line_num}"
                    valid = validated_name(name.strip(), line)
                    known[name] = names.setdefault(valid, len(names))
                    check_count(len(names), line)
                ends.append(known[name])
            if len(columns) > 2:
                try:
                    weights.append(_number_from_text(row[order[2]]))
                except ValueError:
                    raise GraphError(
                        f"{path}, line {reader.line_num}: the weight {row[order[2]][:40]!r} is not "
                        "a number; write numbers like 0.25"
                    ) from None
            lines.append(reader.line_num)
    except csv.Error as error:
        raise GraphError(
            f"{path}, line {reader.line_num}: not valid CSV ({error}); is the file cut off?"
        ) from None
    if order is None:
        raise GraphError(f"{path}: the file is empty; expected the header {expected}")
    return Links(
        tuple(names),
        np.array(first, dtype=np.int64),
        np.array(second, dtype=np.int64),
        np.array(weights, dtype=np.float64),
        lambda k: f"{path}, line {lines[k]}",
    )


def _column_order(row: list[str], columns: tuple[str, ...], line: str) -> list[int]:
    header = [value.strip().casefold() for value in row]
    if sorted(header) != sorted(columns):
        hint = (
            " (separate the columns by commas, not semicolons)"
            if len(row) == 1 and ";" in row[0]
            else ""
        )
        raise GraphError(
            f"{line}: expected the header {','.join(columns)}, got {','.join(row)[:80]!r}{hint}"
        )
    return [header.index(column) for column in columns]


def _number_from_text(text: str) -> float:
    if "_" in text:  # Python reads 1_000 as a number; nobody else does
        raise ValueError
    return float(text)


def links_from(rows: Iterable[Sequence[Any]], participants: tuple[str, ...], what: str) -> Links:
    """Return links from rows of two references, each a name or a position, and maybe a weight."""
    positions = {name: position for position, name in enumerate(participants)}
    first, second, weights = array("q"), array("q"), array("d")
    for k, row in enumerate(rows):
        place = f"{what} {k}"
        for ends, reference in ((first, row[0]), (second, row[1])):
            found = positions.get(reference) if isinstance(reference, str) else None
            ends.append(index_of(reference, participants, place) if found is None else found)
        if len(row) > 2:
            weights.append(number(row[2], place))
    return Links(
        participants,
        np.array(first, dtype=np.int64),
        np.array(second, dtype=np.int64),
        np.array(weights, dtype=np.float64),
        lambda k: f"{what} {k}",
    )


def number(value: object, place: str) -> float:
    """Return a weight as a float; booleans and text are no weights."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise GraphError(f"{place}: the weight {value!r:.60} is not a number")


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    """Return a CSV file's content with Unix line ends."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def graph_object(
    data: Mapping[str, object], links: str, width: int, where: str
) -> tuple[tuple[str, ...], list[list[Any]]]:
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
            raise GraphError(f"{where}: entry {k} of {links!r} is {row!r:.80}, not names of two")
    return validated_names(names, where), rows


def networkx_names(
    graph: "nx.Graph[Any]", where: str
) -> tuple[tuple[str, ...], Callable[[Any], str]]:
    """Return the participants of a NetworkX graph, and how to rename its nodes to them."""
    nodes = list(graph.nodes)
    if nodes and all(isinstance(node, int) and not isinstance(node, bool) for node in nodes):
        if sorted(nodes) != list(range(len(nodes))):
            raise GraphError(
                f"{where}: numbered nodes must be 0 to {len(nodes) - 1}; "
                "give the nodes names with networkx.relabel_nodes"
            )
        names = default_names(len(nodes))
        return names, lambda node: names[node]
    names = validated_names(nodes, where)
    renamed = dict(zip(nodes, names, strict=True))
    return names, lambda node: renamed[node]

"""The base class of the benefit graph and the competition graph.

Both are immutable values over the same named participants, kept as lists of links, so that memory
grows with the links and not with the square of the participants. The square matrix of a graph, with
one row and one column per participant, is made when it is first asked for. This base class holds
the participants, restriction to some of them, the way to and from JSON and CSV, and identity
(equality, hash, SHA-256).
"""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError
from fedegoists.files import csv_bytes, json_value, write_bytes
from fedegoists.graphs.interchange import (
    Links,
    Node,
    graph_object,
    links_from,
    networkx_names,
    read_links,
)
from fedegoists.graphs.participants import (
    Reference,
    check_count,
    default_names,
    index_of,
    natural_order,
    validated_names,
)

if TYPE_CHECKING:
    import networkx as nx

Scalar = TypeVar("Scalar", bound=np.generic)
Ends = npt.NDArray[np.int64]


class Entries(NamedTuple, Generic[Scalar]):
    """The entries of a square matrix that are not zero, by rows, then by columns."""

    rows: Ends
    columns: Ends
    values: npt.NDArray[Scalar]
    n: int

    @classmethod
    def of(cls, matrix: npt.NDArray[Scalar]) -> "Entries[Scalar]":
        """Return the entries of a matrix."""
        rows, columns = (ends.astype(np.int64) for ends in np.nonzero(matrix))
        return cls(rows, columns, matrix[rows, columns], len(matrix))

    def dense(self) -> npt.NDArray[Scalar]:
        """Return the matrix."""
        matrix = np.zeros((self.n, self.n), dtype=self.values.dtype)
        matrix[self.rows, self.columns] = self.values
        return matrix

    @property
    def starts(self) -> Ends:
        """Where the entries of each row begin, and after the last row, where they end."""
        return np.searchsorted(self.rows, np.arange(self.n + 1)).astype(np.int64)


class ParticipantGraph(ABC, Generic[Scalar]):
    """An immutable graph over named participants, as lists of links."""

    __slots__ = ("_dense", "_entries", "_hash", "_participants", "_positions", "_starts")

    KIND: ClassVar[str]
    """What the links mean: ``benefit`` or ``competition``."""
    LINKS: ClassVar[str]
    """What a list of links is called in JSON: ``edges`` or ``pairs``."""
    COLUMNS: ClassVar[tuple[str, ...]]
    """The columns of the CSV file: two participants, and the weight where there is one."""
    VERB: ClassVar[str]
    """What one end of a link does to the other: ``benefit`` or ``compete with``."""
    DIRECTED: ClassVar[bool]

    _entries: Entries[Scalar]
    _starts: Ends
    _dense: npt.NDArray[Scalar] | None
    _participants: tuple[str, ...]
    _positions: Mapping[str, int]
    _hash: int | None

    def _fill(
        self,
        entries: Entries[Scalar],
        participants: tuple[str, ...],
        dense: npt.NDArray[Scalar] | None = None,
    ) -> None:
        """Set the content; the arrays are valid and belong to this graph alone."""
        self._entries, self._starts, self._dense = entries, entries.starts, dense
        for own in (entries.rows, entries.columns, entries.values, self._starts, dense):
            if own is not None:
                own.flags.writeable = False
        self._participants = participants
        self._positions = {name: position for position, name in enumerate(participants)}
        self._hash = None

    @classmethod
    def _of(cls, matrix: npt.NDArray[Scalar], participants: tuple[str, ...]) -> Self:
        """Make a graph from a matrix that is known to be valid, and belongs to it alone."""
        graph = cls.__new__(cls)
        graph._fill(Entries.of(matrix), participants, matrix)
        return graph

    @classmethod
    def _of_entries(
        cls, rows: Ends, columns: Ends, values: npt.NDArray[Scalar], participants: tuple[str, ...]
    ) -> Self:
        """Make a graph from entries that are known to be valid, in any order."""
        graph = cls.__new__(cls)
        order = np.lexsort((columns, rows))
        entries = Entries(rows[order], columns[order], values[order], len(participants))
        graph._fill(entries, participants)
        return graph

    @property
    def entries(self) -> Entries[Scalar]:
        """The entries of the matrix that are not zero; read-only.

        Unlike the matrix, they need memory in proportion to the links only.
        """
        return self._entries

    @property
    def _matrix(self) -> npt.NDArray[Scalar]:
        """The read-only square matrix, made when it is first asked for."""
        if self._dense is None:
            dense = self._entries.dense()
            dense.flags.writeable = False
            self._dense = dense
        return self._dense

    def _row(self, position: int) -> slice:
        """Return where the entries of a row are."""
        return slice(int(self._starts[position]), int(self._starts[position + 1]))

    def _at(self, row: int, column: int) -> int | None:
        """Return where the entry of a row and a column is; None where there is none."""
        own = self._row(row)
        at = own.start + int(np.searchsorted(self._entries.columns[own], column))
        return at if at < own.stop and self._entries.columns[at] == column else None

    def inside(self, group: Sequence[int]) -> npt.NDArray[Scalar]:
        """Return the values of the links among some participants, given by position."""
        members = np.asarray(group, dtype=np.int64)
        starts, counts = self._starts[members], np.diff(self._starts)[members]
        # The entries of all members' rows: a range for each, one after the other.
        before = np.cumsum(counts) - counts
        at = np.arange(counts.sum()) + np.repeat(starts - before, counts)
        belongs = np.zeros(self.n, dtype=np.bool_)
        belongs[members] = True
        values: npt.NDArray[Scalar] = self._entries.values[at[belongs[self._entries.columns[at]]]]
        return values

    @classmethod
    @abstractmethod
    def from_links(cls, links: Links, participants: tuple[str, ...]) -> Self:
        """Make a graph from links; an error names the place the link came from."""

    @classmethod
    def _ends(cls, links: Links, names: tuple[str, ...]) -> tuple[Ends, Ends]:
        """Return the ends of links as positions; a link to itself, or listed twice, is an error."""
        link = cls.LINKS[:-1]
        first, second = links.located_in(names)
        own = np.flatnonzero(first == second)
        if len(own):
            name = names[first[own[0]]]
            raise GraphError(
                f"{links.place(own[0])}: {name!r} cannot {cls.VERB} itself; remove the {link}"
            )
        keys = first * len(names) + second
        if not cls.DIRECTED:
            keys = np.minimum(keys, second * len(names) + first)
        repeated = links.first_repeated(keys)
        if repeated is not None:
            one, other = names[first[repeated]], names[second[repeated]]
            joined = f"from {one!r} to {other!r}" if cls.DIRECTED else f"of {one!r} and {other!r}"
            raise GraphError(
                f"{links.place(repeated)}: the {link} {joined} is listed twice; keep one"
            )
        return first, second

    @abstractmethod
    def _linked(self) -> npt.NDArray[np.intp]:
        """Return the positions of linked participants, one row per link, in ascending order."""

    @abstractmethod
    def _rows(self) -> Iterable[tuple[str | float, ...]]:
        """Return the links as they are written to CSV and JSON."""

    @abstractmethod
    def _canonical_links(self) -> list[list[int | str]]:
        """Return the links as they are hashed."""

    # Participants --------------------------------------------------------------------------

    @property
    def participants(self) -> tuple[str, ...]:
        """The participants' names in the order of rows and columns."""
        return self._participants

    @property
    def n(self) -> int:
        """The number of participants."""
        return len(self._participants)

    def _position(self, reference: Reference, where: str | None = None) -> int:
        return index_of(reference, self._participants, where or self.KIND, self._positions)

    def restricted_to(self, participants: Sequence[str]) -> Self:
        """Return the graph among some of the participants, in the order given."""
        keep = [self._position(name, "restriction") for name in participants]
        names = validated_names((self._participants[k] for k in keep), f"{self.KIND} graph")
        position = np.full(self.n, -1, dtype=np.int64)
        position[keep] = np.arange(len(keep))
        rows, columns = position[self._entries.rows], position[self._entries.columns]
        both = (rows >= 0) & (columns >= 0)
        return self._of_entries(rows[both], columns[both], self._entries.values[both], names)

    def to_numpy(self) -> npt.NDArray[Scalar]:
        """Return a copy of the matrix that may be changed."""
        return self._matrix.copy()

    @classmethod
    def _of_networkx(cls, graph: "nx.Graph[Node]", edges: Iterable[Sequence[object]]) -> Self:
        """Make a graph from NetworkX edges: two nodes each, and maybe a weight."""
        where = f"{cls.KIND} graph"
        names, name_of = networkx_names(graph, where)
        rows = ((name_of[a], name_of[b], *weight) for a, b, *weight in edges)
        what = f"{cls.KIND} {cls.LINKS[:-1]}"
        return cls.from_links(links_from(rows, len(cls.COLUMNS), names, what), names)

    # JSON ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """Return the graph as plain values for JSON: participants and links."""
        rows = [list(row) for row in self._rows()]
        return {"participants": list(self._participants), self.LINKS: rows}

    def to_json(self) -> str:
        """Return the graph as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: object, where: str = "") -> Self:
        """Make a graph from the mapping that `to_dict` returns; errors start with `where`."""
        where = where or f"{cls.KIND} graph"
        width = len(cls.COLUMNS)
        names, rows = graph_object(data, cls.LINKS, width, where)
        return cls.from_links(links_from(rows, width, names, f"{where}, {cls.LINKS[:-1]}"), names)

    @classmethod
    def from_json(cls, text: str, where: str = "") -> Self:
        """Make a graph from the JSON text that `to_json` returns; errors start with `where`."""
        return cls.from_dict(json_value(text, where or f"{cls.KIND} graph"), where)

    # CSV -----------------------------------------------------------------------------------

    def csv_bytes(self) -> bytes:
        """Return the content of the CSV file that `to_csv` writes; weights read back exactly."""
        return csv_bytes(self.COLUMNS, self._rows())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the links to a CSV file; participants without any link are not in the file."""
        write_bytes(path, self.csv_bytes())

    @classmethod
    def from_csv(
        cls, path: str | os.PathLike[str], participants: Iterable[str] | None = None
    ) -> Self:
        """Read the CSV file that `to_csv` writes.

        Without `participants` they are the names in the file, in natural order (``v2`` before
        ``v10``). With `participants`, any other name is an error.
        """
        links = read_links(path, cls.COLUMNS)
        names = (
            natural_order(links.names) if participants is None else validated_names(participants)
        )
        return cls.from_links(links, names)

    # Identity ------------------------------------------------------------------------------

    def canonical_bytes(self) -> bytes:
        """Return the canonical form of this graph, over which `sha256` is taken.

        UTF-8 JSON without spaces and with sorted keys. Links are lists of positions in ascending
        order: ``[i, j]`` with i < j for competing pairs; ``[j, i, w]`` for benefit edges, with the
        weight as the 16 hexadecimal digits of its big-endian IEEE 754 double, so that no two
        programs can disagree on how a number is written.
        """
        value = {
            self.LINKS: self._canonical_links(),
            "kind": self.KIND,
            "participants": self._participants,
        }
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()

    @property
    def sha256(self) -> str:
        """The SHA-256 of `canonical_bytes`, in hexadecimal."""
        return hashlib.sha256(self.canonical_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        own, others = self._entries, other._entries
        return (
            self._participants == other._participants
            and np.array_equal(own.rows, others.rows)
            and np.array_equal(own.columns, others.columns)
            and np.array_equal(own.values, others.values)
        )

    def __hash__(self) -> int:
        if self._hash is None:
            own = (part.tobytes() for part in self._entries[:3])
            self._hash = hash((self._participants, *own))
        return self._hash

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return type(self)._of_entries, (*self._entries[:3], self._participants)

    def __repr__(self) -> str:
        count = len(self._linked())
        return f"<{type(self).__name__}: {self.n} participants, {count} {self.LINKS}>"


def square_matrix(given: npt.ArrayLike, where: str, entries: str) -> npt.NDArray[np.generic]:
    """Return a square array of numbers of any type; `entries` names them in error messages."""
    expected = f"{where}: expected a square matrix of {entries}"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        raise GraphError(f"{expected}, got rows of different lengths") from None
    if array.dtype.kind not in "biuf":
        raise GraphError(f"{expected}, got values of type {array.dtype}")
    if array.shape == (0,):  # of an empty list
        array = array.reshape(0, 0)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise GraphError(f"{expected}, got shape {array.shape}")
    check_count(len(array), where)
    return array


def labelled_matrix(
    given: npt.ArrayLike, participants: Iterable[str] | None, where: str
) -> tuple[npt.ArrayLike, Iterable[str] | None]:
    """Return a matrix and its names, with the rows and columns of a data frame put in order.

    The rows and columns of a data frame have labels of their own. If these are names, they say
    which row belongs to whom, whatever their order; others than the participants are an error. A
    data frame that is only numbered, 0 to n − 1, is a plain matrix.
    """
    index, columns = getattr(given, "index", None), getattr(given, "columns", None)
    if index is None or columns is None or not hasattr(given, "loc"):
        return given, participants
    rows, across = list(index), list(columns)
    numbered = list(range(len(rows)))
    if rows == across == numbered:
        return given, participants
    names = validated_names(rows if participants is None else participants, where)
    for labels, kind in ((rows, "rows"), (across, "columns")):
        if len(set(labels)) < len(labels) or set(labels) != set(names):
            odd = sorted(set(map(str, labels)) ^ set(names)) or sorted(map(str, labels))
            raise GraphError(
                f"{where}: the {kind} of the data frame are not those of the participants, for "
                f"example {odd[0]!r}; name rows and columns by the same participants, or give a "
                "plain matrix with .to_numpy()"
            )
    return given.loc[list(names), list(names)].to_numpy(), names


def names_for(rows: int, participants: Iterable[str] | None, where: str) -> tuple[str, ...]:
    """Return the names of a matrix's rows: those given, or ``v0``, ``v1``, …."""
    names = default_names(rows) if participants is None else validated_names(participants, where)
    if len(names) != rows:
        raise GraphError(f"{where}: {rows} rows for {len(names)} participants")
    return names

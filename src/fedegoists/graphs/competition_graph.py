"""The competition graph: who must never profit from whose data."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError
from fedegoists.files import write_bytes
from fedegoists.graphs.interchange import (
    Links,
    csv_bytes,
    graph_object,
    json_value,
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
    shown,
    validated_names,
)

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["CompetitionGraph"]

COMPETITION_COLUMNS = ("a", "b")


class CompetitionGraph:
    """Who competes with whom: pairs without direction.

    Parameters
    ----------
    pairs : iterable of pairs
        Two participants each, by name or by index.
    participants : sequence of str, or int
        The participants' names, or how many there are (``v0``, ``v1``, …).

    Raises
    ------
    GraphError
        If somebody competes with itself, a pair stands twice, or a name is unknown.

    Examples
    --------
    >>> graph = CompetitionGraph([("North", "South")], ["North", "South", "East"])
    >>> graph.competes("South", "North"), graph.competitors("East")
    (True, ())
    >>> CompetitionGraph([(0, 2)], 3).pairs
    (('v0', 'v2'),)
    """

    __slots__ = ("_matrix", "_pairs", "_participants", "_positions")

    def __init__(
        self,
        pairs: Iterable[tuple[Reference, Reference]],
        participants: Iterable[str] | int,
    ) -> None:
        if isinstance(participants, int | np.integer) and not isinstance(participants, bool):
            if participants < 0:
                raise GraphError(
                    f"competition graph: {shown(participants)} participants; "
                    "expected a number that is not negative"
                )
            check_count(int(participants), "competition graph")
            names = default_names(int(participants))
        else:
            names = validated_names(participants, "competition graph")  # type: ignore[arg-type]
        self._fill(links_from(pairs, 2, names, "competition pair"), names)

    def _fill(self, links: Links, names: tuple[str, ...]) -> None:
        one, other = links.located_in(names)
        a, b = np.minimum(one, other), np.maximum(one, other)
        own = np.flatnonzero(a == b)
        if len(own):
            name = names[a[own[0]]]
            raise GraphError(
                f"{links.place(own[0])}: {name!r} cannot compete with itself; remove the pair"
            )
        repeated = links.first_repeated(a * len(names) + b)
        if repeated is not None:
            raise GraphError(
                f"{links.place(repeated)}: {names[one[repeated]]!r} and {names[other[repeated]]!r} "
                "stand as competitors twice; keep one of the pairs"
            )
        self._participants = names
        self._positions = {name: position for position, name in enumerate(names)}
        self._pairs = tuple(sorted(zip(a.tolist(), b.tolist(), strict=True)))
        matrix = np.zeros((len(names), len(names)), dtype=bool)
        matrix[a, b] = matrix[b, a] = True
        matrix.flags.writeable = False
        self._matrix: npt.NDArray[np.bool_] = matrix

    @classmethod
    def from_links(cls, links: Links, names: tuple[str, ...]) -> "CompetitionGraph":
        """Make a graph over `names` from links read elsewhere; errors name their place."""
        graph = cls.__new__(cls)
        graph._fill(links, names)
        return graph

    @property
    def participants(self) -> tuple[str, ...]:
        """The participants' names, in order."""
        return self._participants

    @property
    def n(self) -> int:
        """The number of participants."""
        return len(self._participants)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The competing pairs by name, each once, in the order of the participants."""
        names = self._participants
        return tuple((names[a], names[b]) for a, b in self._pairs)

    @property
    def matrix(self) -> npt.NDArray[np.bool_]:
        """The read-only symmetric matrix of who competes with whom."""
        return self._matrix.view()  # whose shape and flags are nobody else's

    def competes(self, a: Reference, b: Reference) -> bool:
        """Return whether two participants compete."""
        i = index_of(a, self._participants, "competition", self._positions)
        j = index_of(b, self._participants, "competition", self._positions)
        return bool(self._matrix[i, j])

    def competitors(self, participant: Reference) -> tuple[str, ...]:
        """Return everybody who competes with a participant."""
        i = index_of(participant, self._participants, "competition", self._positions)
        return tuple(self._participants[j] for j in np.flatnonzero(self._matrix[i]).tolist())

    def restricted_to(self, participants: Sequence[str]) -> "CompetitionGraph":
        """Return the graph among some of the participants, in the order given."""
        keep = [
            index_of(name, self._participants, "restriction", self._positions)
            for name in participants
        ]
        return CompetitionGraph.from_numpy(self._matrix[np.ix_(keep, keep)], participants)

    # Numbers -------------------------------------------------------------------------------

    def to_numpy(self) -> npt.NDArray[np.bool_]:
        """Return a copy of the matrix that may be changed."""
        return self._matrix.copy()

    @classmethod
    def from_numpy(
        cls, matrix: npt.ArrayLike, participants: Iterable[str] | None = None
    ) -> "CompetitionGraph":
        """Make a graph from a symmetric matrix of booleans, or of zeros and ones."""
        try:
            array = np.asarray(matrix)
        except (TypeError, ValueError):
            raise GraphError(
                "competition graph: expected a square matrix, got rows of different lengths"
            ) from None
        if array.shape == (0,):  # of an empty list
            array = array.reshape(0, 0)
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise GraphError(
                f"competition graph: expected a square matrix, got shape {array.shape}"
            )
        check_count(len(array), "competition graph")
        names = (
            default_names(len(array))
            if participants is None
            else validated_names(participants, "competition graph")
        )
        if len(names) != len(array):
            raise GraphError(f"competition graph: {len(array)} rows for {len(names)} participants")
        if array.dtype.kind not in "biuf":
            raise GraphError(
                "competition graph: expected a matrix of booleans, or of zeros and ones, "
                f"got values of type {array.dtype}"
            )
        strange = np.argwhere((array != 0) & (array != 1))
        if len(strange):
            i, j = strange[0]
            raise GraphError(
                f"competition graph: the entry of {names[i]!r} and {names[j]!r} is {array[i, j]}; "
                "expected booleans, or zeros and ones, as competition has no weight"
            )
        array = array.astype(bool)
        asymmetric = np.argwhere(array != array.T)
        if len(asymmetric):
            i, j = asymmetric[0]
            raise GraphError(
                f"competition graph: {names[i]!r} and {names[j]!r} compete in one direction only; "
                "the matrix must be symmetric"
            )
        own = np.flatnonzero(array.diagonal())
        if len(own):
            raise GraphError(
                f"competition graph: {names[own[0]]!r} competes with itself; "
                "set the diagonal to zero"
            )
        return cls([(i, j) for i, j in np.argwhere(np.triu(array)).tolist()], names)

    # NetworkX ------------------------------------------------------------------------------

    def to_networkx(self) -> "nx.Graph[str]":
        """Return an undirected NetworkX graph."""
        import networkx as nx

        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(self._participants)
        graph.add_edges_from(self.pairs)
        return graph

    @classmethod
    def from_networkx(cls, graph: "nx.Graph[Any]") -> "CompetitionGraph":
        """Make a graph from an undirected NetworkX graph over names, or over 0 to n − 1."""
        import networkx as nx

        if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
            raise GraphError("competition graph: expected a networkx.Graph (undirected)")
        names, rename = networkx_names(graph, "competition graph")
        return cls([(rename(a), rename(b)) for a, b in graph.edges()], names)

    # JSON ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """Return the graph as plain values for JSON: participants and pairs."""
        return {"participants": list(self._participants), "pairs": [list(p) for p in self.pairs]}

    def to_json(self) -> str:
        """Return the graph as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, object], where: str = "competition graph"
    ) -> "CompetitionGraph":
        """Make a graph from what `to_dict` returns."""
        names, pairs = graph_object(data, "pairs", 2, where)
        return cls.from_links(links_from(pairs, 2, names, f"{where}, pair"), names)

    @classmethod
    def from_json(cls, text: str, where: str = "competition graph") -> "CompetitionGraph":
        """Make a graph from JSON text with ``participants`` and ``pairs``."""
        return cls.from_dict(json_value(text, where), where)

    # CSV -----------------------------------------------------------------------------------

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``a,b``; participants without a competitor are not in the file."""
        write_bytes(path, self.csv_bytes())

    def csv_bytes(self) -> bytes:
        """Return the content `to_csv` writes."""
        return csv_bytes(COMPETITION_COLUMNS, self.pairs)

    @classmethod
    def from_csv(
        cls, path: str | os.PathLike[str], participants: Iterable[str] | None = None
    ) -> "CompetitionGraph":
        """Read ``a,b``.

        Without `participants` they are the names in the file, in natural order. With
        `participants`, a name that is not among them is an error.
        """
        links = read_links(path, COMPETITION_COLUMNS)
        names = (
            natural_order(links.names) if participants is None else validated_names(participants)
        )
        return cls.from_links(links, names)

    # Identity ------------------------------------------------------------------------------

    def canonical_bytes(self) -> bytes:
        """Return the one byte string that stands for this graph; `sha256` is taken over it.

        UTF-8 JSON without spaces and with sorted keys: ``pairs`` lists positions ``[i, j]`` with
        i < j in ascending order.
        """
        value = {"kind": "competition", "pairs": self._pairs, "participants": self._participants}
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()

    @property
    def sha256(self) -> str:
        """The SHA-256 of `canonical_bytes`, in hexadecimal."""
        return hashlib.sha256(self.canonical_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CompetitionGraph):
            return NotImplemented
        return self._participants == other._participants and self._pairs == other._pairs

    def __hash__(self) -> int:
        return hash((self._participants, self._pairs))

    def __reduce__(self) -> tuple[type["CompetitionGraph"], tuple[object, ...]]:
        return CompetitionGraph, (self._pairs, self._participants)

    def __repr__(self) -> str:
        return f"<CompetitionGraph: {self.n} participants, {len(self._pairs)} pairs>"

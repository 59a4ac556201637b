"""The benefit graph: whose data makes whose model better, and by how much."""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    validated_names,
)

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["BenefitGraph"]

BENEFIT_COLUMNS = ("source", "target", "weight")

LARGEST_SUM = 1e303
"""Graphs whose weights sum to more are refused: what is computed may be 10,001 times the sum."""


class BenefitGraph:
    """Who benefits whom: ``weights[j, i] > 0`` means that j's data makes i's model better.

    Parameters
    ----------
    weights : array-like of shape (n, n)
        Finite, non-negative numbers with a zero diagonal; zero means no benefit.
    participants : sequence of str, optional
        The participants' names in the order of the rows; ``v0``, ``v1``, … if left out.

    Raises
    ------
    GraphError
        If a weight is negative, infinite or not a number, if the weights sum to more than 1e303, if
        somebody benefits itself, if the matrix is not square, or if the names are not distinct
        names.

    Examples
    --------
    >>> graph = BenefitGraph([[0, 0.4], [0.1, 0]], ["North", "South"])
    >>> graph.benefit("North", "South")
    0.4
    >>> list(graph.edges())
    [('North', 'South', 0.4), ('South', 'North', 0.1)]
    """

    __slots__ = ("_hash", "_participants", "_positions", "_weights")

    def __init__(self, weights: npt.ArrayLike, participants: Iterable[str] | None = None) -> None:
        matrix = _validated_matrix(weights)
        names = (
            default_names(len(matrix))
            if participants is None
            else validated_names(participants, "benefit graph")
        )
        if len(names) != len(matrix):
            raise GraphError(
                f"benefit graph: {len(matrix)} rows of weights for {len(names)} participants"
            )
        _check_weights(matrix, names)
        matrix.flags.writeable = False
        self._weights = matrix
        self._participants = names
        self._positions = {name: position for position, name in enumerate(names)}
        self._hash: int | None = None

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The read-only matrix of benefits, source in rows and target in columns."""
        return self._weights.view()  # whose shape and flags are nobody else's

    @property
    def participants(self) -> tuple[str, ...]:
        """The participants' names in the order of rows and columns."""
        return self._participants

    @property
    def n(self) -> int:
        """The number of participants."""
        return len(self._participants)

    def benefit(self, source: Reference, target: Reference) -> float:
        """Return how much `source` benefits `target`; 0 if it does not."""
        j = index_of(source, self._participants, "benefit", self._positions)
        i = index_of(target, self._participants, "benefit", self._positions)
        return float(self._weights[j, i])

    def edges(self) -> Iterator[tuple[str, str, float]]:
        """Iterate over (source, target, weight) in the order of the participants."""
        names = self._participants
        for j, i in np.argwhere(self._weights > 0).tolist():
            yield names[j], names[i], float(self._weights[j, i])

    def restricted_to(self, participants: Sequence[str]) -> "BenefitGraph":
        """Return the graph among some of the participants, in the order given."""
        keep = [
            index_of(name, self._participants, "restriction", self._positions)
            for name in participants
        ]
        return BenefitGraph(self._weights[np.ix_(keep, keep)], participants)

    # Numbers -------------------------------------------------------------------------------

    def to_numpy(self) -> npt.NDArray[np.float64]:
        """Return a copy of the weights that may be changed."""
        return self._weights.copy()

    @classmethod
    def from_numpy(
        cls, weights: npt.ArrayLike, participants: Iterable[str] | None = None
    ) -> "BenefitGraph":
        """Make a graph from a matrix; the same as calling the class."""
        return cls(weights, participants)

    @classmethod
    def from_edges(
        cls, edges: Iterable[tuple[Reference, Reference, float]], participants: Iterable[str]
    ) -> "BenefitGraph":
        """Make a graph from (source, target, weight), with sources and targets by name or index.

        Examples
        --------
        >>> BenefitGraph.from_edges([("a", "b", 0.5)], ["a", "b"]).weights.tolist()
        [[0.0, 0.5], [0.0, 0.0]]
        """
        names = validated_names(participants, "benefit graph")
        return cls.from_links(links_from(edges, 3, names, "benefit edge"), names)

    @classmethod
    def from_links(cls, links: Links, names: tuple[str, ...]) -> "BenefitGraph":
        """Make a graph over `names` from links read elsewhere; errors name their place."""
        source, target = links.located_in(names)
        own = np.flatnonzero(source == target)
        if len(own):
            name = names[source[own[0]]]
            raise GraphError(
                f"{links.place(own[0])}: {name!r} cannot benefit itself; remove the edge"
            )
        bad = np.flatnonzero(~(np.isfinite(links.weights) & (links.weights >= 0)))
        if len(bad):
            k = bad[0]
            raise GraphError(
                f"{links.place(k)}: the benefit of {names[source[k]]!r} to {names[target[k]]!r} is "
                f"{links.weights[k]}; expected a finite number that is not negative"
            )
        repeated = links.first_repeated(source * len(names) + target)
        if repeated is not None:
            raise GraphError(
                f"{links.place(repeated)}: the edge from {names[source[repeated]]!r} to "
                f"{names[target[repeated]]!r} stands twice; keep one"
            )
        weights = np.zeros((len(names), len(names)))
        weights[source, target] = links.weights
        return cls(weights, names)

    # NetworkX ------------------------------------------------------------------------------

    def to_networkx(self) -> "nx.DiGraph[str]":
        """Return a directed NetworkX graph with the edge attribute ``weight``."""
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self._participants)
        graph.add_weighted_edges_from(self.edges())
        return graph

    @classmethod
    def from_networkx(cls, graph: "nx.DiGraph[Any]") -> "BenefitGraph":
        """Make a graph from a directed NetworkX graph; an edge without ``weight`` counts 1.

        Nodes are names, or the numbers 0 to n − 1, which become ``v0``, ``v1``, ….
        """
        import networkx as nx

        if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
            raise GraphError("benefit graph: expected a networkx.DiGraph, one edge per direction")
        names, rename = networkx_names(graph, "benefit graph")
        edges = ((rename(a), rename(b), w) for a, b, w in graph.edges(data="weight", default=1.0))
        return cls.from_links(links_from(edges, 3, names, "benefit edge"), names)

    # JSON ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """Return the graph as plain values for JSON: participants and edges."""
        return {
            "participants": list(self._participants),
            "edges": [list(edge) for edge in self.edges()],
        }

    def to_json(self) -> str:
        """Return the graph as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, object], where: str = "benefit graph") -> "BenefitGraph":
        """Make a graph from what `to_dict` returns."""
        names, edges = graph_object(data, "edges", 3, where)
        return cls.from_links(links_from(edges, 3, names, f"{where}, edge"), names)

    @classmethod
    def from_json(cls, text: str, where: str = "benefit graph") -> "BenefitGraph":
        """Make a graph from JSON text with ``participants`` and ``edges``."""
        return cls.from_dict(json_value(text, where), where)

    # CSV -----------------------------------------------------------------------------------

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``source,target,weight``; participants without any edge are not in the file."""
        write_bytes(path, self.csv_bytes())

    def csv_bytes(self) -> bytes:
        """Return the content `to_csv` writes; weights read back exactly."""
        return csv_bytes(BENEFIT_COLUMNS, ((a, b, repr(w)) for a, b, w in self.edges()))

    @classmethod
    def from_csv(
        cls, path: str | os.PathLike[str], participants: Iterable[str] | None = None
    ) -> "BenefitGraph":
        """Read ``source,target,weight``.

        Without `participants` they are the names in the file, in natural order (``v2`` before
        ``v10``). With `participants`, a name that is not among them is an error.
        """
        links = read_links(path, BENEFIT_COLUMNS)
        names = (
            natural_order(links.names) if participants is None else validated_names(participants)
        )
        return cls.from_links(links, names)

    # Identity ------------------------------------------------------------------------------

    def canonical_bytes(self) -> bytes:
        """Return the one byte string that stands for this graph; `sha256` is taken over it.

        UTF-8 JSON without spaces and with sorted keys: ``edges`` lists ``[j, i, w]`` row by row,
        with positions j and i and the weight as the 16 hexadecimal digits of its big-endian
        IEEE 754 double, so that no two programs can disagree on how a number is written.
        """
        edges = [
            [j, i, struct.pack(">d", self._weights[j, i]).hex()]
            for j, i in np.argwhere(self._weights > 0).tolist()
        ]
        value = {"edges": edges, "kind": "benefit", "participants": self._participants}
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()

    @property
    def sha256(self) -> str:
        """The SHA-256 of `canonical_bytes`, in hexadecimal."""
        return hashlib.sha256(self.canonical_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BenefitGraph):
            return NotImplemented
        return self._participants == other._participants and np.array_equal(
            self._weights, other._weights
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self._participants, self._weights.tobytes()))
        return self._hash

    def __reduce__(self) -> tuple[type["BenefitGraph"], tuple[object, ...]]:
        return BenefitGraph, (self._weights, self._participants)

    def __repr__(self) -> str:
        return f"<BenefitGraph: {self.n} participants, {np.count_nonzero(self._weights)} edges>"


def _validated_matrix(weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return a new square float64 array in row order, with zeros that have no sign."""
    try:
        array = np.asarray(weights)
    except (TypeError, ValueError):
        raise GraphError(
            "benefit graph: expected a square matrix of numbers, got rows of different lengths"
        ) from None
    if array.dtype.kind not in "biuf":
        raise GraphError(
            f"benefit graph: expected a square matrix of numbers, got values of type {array.dtype}"
        )
    if array.shape == (0,):  # of an empty list
        array = array.reshape(0, 0)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise GraphError(
            f"benefit graph: expected a square matrix of weights, got shape {array.shape}"
        )
    check_count(len(array), "benefit graph")
    with np.errstate(over="ignore"):  # a wider number that becomes infinite is reported as such
        matrix = np.array(array, dtype=np.float64, order="C")
    matrix += 0.0  # −0.0 becomes 0.0, so that equal graphs have equal bytes
    return matrix


def _check_weights(matrix: npt.NDArray[np.float64], names: tuple[str, ...]) -> None:
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if len(bad):
        j, i = bad[0]
        more = f" ({len(bad) - 1} more like it)" if len(bad) > 1 else ""
        raise GraphError(
            f"benefit graph: the benefit of {names[j]!r} to {names[i]!r} is {matrix[j, i]}; "
            f"expected a finite number that is not negative{more}"
        )
    with np.errstate(over="ignore"):
        total = matrix.sum()
    if total > LARGEST_SUM:
        raise GraphError(
            "benefit graph: the weights are so large that sums of them may not be finite numbers "
            f"(all together {total:.3g}, supported is up to {LARGEST_SUM:.0e}); "
            "divide all of them by the same number"
        )
    own = np.flatnonzero(matrix.diagonal())
    if len(own):
        i = own[0]
        raise GraphError(
            f"benefit graph: {names[i]!r} benefits itself with weight {matrix[i, i]}; "
            "set the diagonal to zero"
        )

"""The benefit graph: whose data makes whose model better, and by how much."""

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError
from fedegoists.graphs.interchange import Links, Node, links_from
from fedegoists.graphs.participant_graph import (
    Entries,
    ParticipantGraph,
    labelled_matrix,
    names_for,
    square_matrix,
)
from fedegoists.graphs.participants import Reference, validated_names

if TYPE_CHECKING:
    import networkx as nx

LARGEST_SUM = 1e303
"""Graphs whose weights sum to more are refused: some computations need 10,001 times the sum."""


class BenefitGraph(ParticipantGraph[np.float64]):
    """The paper's benefit graph G_b: ``weights[j, i] > 0`` means that j's data benefits i.

    Parameters
    ----------
    weights : array-like of shape (n, n)
        Finite, non-negative numbers with a zero diagonal; zero means no benefit.
    participants : sequence of str, optional
        The participants' names in the order of the rows; ``v0``, ``v1``, … by default. A pandas
        data frame has names of its own: its rows and columns are put in the order given here.

    Raises
    ------
    GraphError
        If a weight is negative, infinite or not a number, if the weights sum to more than 1e303, if
        the diagonal is not zero, if the matrix is not square, or if the names are not distinct
        names.

    Examples
    --------
    >>> graph = BenefitGraph([[0, 0.4], [0.1, 0]], ["North", "South"])
    >>> graph.benefit("North", "South")
    0.4
    >>> list(graph.edges())
    [('North', 'South', 0.4), ('South', 'North', 0.1)]
    """

    __slots__ = ()
    KIND = "benefit"
    LINKS = "edges"
    COLUMNS = ("source", "target", "weight")
    VERB = "benefit"
    DIRECTED = True

    def __init__(self, weights: npt.ArrayLike, participants: Iterable[str] | None = None) -> None:
        weights, participants = labelled_matrix(weights, participants, "benefit graph")
        array = square_matrix(weights, "benefit graph", "numbers")
        with np.errstate(over="ignore"):  # a wider number that becomes infinite is refused below
            matrix = np.array(array, dtype=np.float64, order="C")
        matrix += 0.0  # −0.0 becomes 0.0, so that equal graphs have equal bytes
        names = names_for(len(matrix), participants, "benefit graph")
        _check_weights(matrix, names)
        self._fill(Entries.of(matrix), names, matrix)

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The read-only matrix of benefits, source in rows and target in columns."""
        return self._matrix.view()  # a view of its own: reshaping it leaves the graph alone

    def benefit(self, source: Reference, target: Reference) -> float:
        """Return how much `source` benefits `target`; 0 if it does not."""
        at = self._at(self._position(source), self._position(target))
        return 0.0 if at is None else float(self._entries.values[at])

    def edges(self) -> Iterator[tuple[str, str, float]]:
        """Iterate over (source, target, weight) in the order of the participants."""
        names = self._participants
        for j, i, weight in zip(*(part.tolist() for part in self._entries[:3]), strict=True):
            yield names[j], names[i], weight

    _rows = edges

    def _linked(self) -> npt.NDArray[np.intp]:
        return np.stack((self._entries.rows, self._entries.columns), axis=1)

    def _canonical_links(self) -> list[list[int | str]]:
        return [
            [j, i, struct.pack(">d", weight).hex()]
            for j, i, weight in zip(*(part.tolist() for part in self._entries[:3]), strict=True)
        ]

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
    def from_links(cls, links: Links, participants: tuple[str, ...]) -> Self:
        """Make a graph from links; an error names the place the link came from."""
        names = participants
        source, target = cls._ends(links, names)
        bad = np.flatnonzero(~(np.isfinite(links.weights) & (links.weights >= 0)))
        if len(bad):
            k = bad[0]
            raise GraphError(
                f"{links.place(k)}: the benefit of {names[source[k]]!r} to {names[target[k]]!r} is "
                f"{links.weights[k]}; expected a finite number that is not negative"
            )
        _check_sum(links.weights)
        some = links.weights > 0
        return cls._of_entries(source[some], target[some], links.weights[some], names)

    def to_networkx(self) -> "nx.DiGraph[str]":
        """Return a directed NetworkX graph with the edge attribute ``weight``."""
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self._participants)
        graph.add_weighted_edges_from(self.edges())
        return graph

    @classmethod
    def from_networkx(cls, graph: "nx.DiGraph[Node]") -> "BenefitGraph":
        """Make a graph from a directed NetworkX graph; an edge without ``weight`` counts 1.

        Nodes are names, or the numbers 0 to n − 1, which become ``v0``, ``v1``, ….
        """
        import networkx as nx

        if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
            raise GraphError("benefit graph: expected a networkx.DiGraph, one edge per direction")
        return cls._of_networkx(graph, graph.edges(data="weight", default=1.0))


def _check_weights(matrix: npt.NDArray[np.float64], names: tuple[str, ...]) -> None:
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if len(bad):
        j, i = bad[0]
        more = f" ({len(bad) - 1} more like it)" if len(bad) > 1 else ""
        raise GraphError(
            f"benefit graph: the benefit of {names[j]!r} to {names[i]!r} is {matrix[j, i]}; "
            f"expected a finite number that is not negative{more}"
        )
    _check_sum(matrix)
    own = np.flatnonzero(matrix.diagonal())
    if len(own):
        i = own[0]
        raise GraphError(
            f"benefit graph: {names[i]!r} benefits itself with weight {matrix[i, i]}; "
            "set the diagonal to zero"
        )


def _check_sum(weights: npt.NDArray[np.float64]) -> None:
    with np.errstate(over="ignore"):
        total = weights.sum()
    if total > LARGEST_SUM:
        raise GraphError(
            "benefit graph: the weights are so large that sums of them may not be finite numbers "
            f"(they sum to {total:.3g}, supported is up to {LARGEST_SUM:.0e}); "
            "divide all of them by the same number"
        )

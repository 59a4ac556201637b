"""The competition graph: pairs of participants that must never profit from each other's data."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from fedegoists.errors import GraphError, SettingsError, shown
from fedegoists.graphs.interchange import Links, Node, links_from
from fedegoists.graphs.participant_graph import (
    ParticipantGraph,
    labelled_matrix,
    names_for,
    square_matrix,
)
from fedegoists.graphs.participants import (
    Reference,
    check_count,
    default_names,
    validated_names,
)

if TYPE_CHECKING:
    import networkx as nx

Pair = tuple[Reference, Reference]


class CompetitionGraph(ParticipantGraph[np.bool_]):
    """The paper's competing graph G_c: pairs of competitors, without direction.

    Parameters
    ----------
    pairs : iterable of pairs
        Two participants each, by name or by index.
    participants : sequence of str, or int
        The participants' names, or their number (``v0``, ``v1``, …).

    Raises
    ------
    GraphError
        If a participant competes with itself, a pair is listed twice, or a name is unknown.

    Examples
    --------
    >>> graph = CompetitionGraph([("North", "South")], ["North", "South", "East"])
    >>> graph.competes("South", "North"), graph.competitors("East")
    (True, ())
    >>> CompetitionGraph([(0, 2)], 3).pairs
    (('v0', 'v2'),)
    """

    __slots__ = ()
    KIND = "competition"
    LINKS = "pairs"
    COLUMNS = ("a", "b")
    VERB = "compete with"
    DIRECTED = False

    def __init__(self, pairs: Iterable[Pair], participants: Iterable[str] | int) -> None:
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
        links = links_from(pairs, 2, names, "competition pair")
        self._fill(self.from_links(links, names).entries, names)

    @classmethod
    def from_links(cls, links: Links, participants: tuple[str, ...]) -> Self:
        """Make a graph from links; an error names the place the link came from."""
        a, b = cls._ends(links, participants)
        rows, columns = np.concatenate((a, b)), np.concatenate((b, a))
        return cls._of_entries(rows, columns, np.ones(len(rows), dtype=np.bool_), participants)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The competing pairs by name, each once, in the order of the participants."""
        names = self._participants
        return tuple((names[a], names[b]) for a, b in self._linked().tolist())

    @property
    def matrix(self) -> npt.NDArray[np.bool_]:
        """The read-only symmetric matrix: whether two participants compete."""
        return self._matrix.view()  # a view of its own: reshaping it leaves the graph alone

    def competes(self, a: Reference, b: Reference) -> bool:
        """Return whether two participants compete."""
        return self._at(self._position(a), self._position(b)) is not None

    def competitors(self, participant: Reference) -> tuple[str, ...]:
        """Return the competitors of a participant."""
        row = self._entries.columns[self._row(self._position(participant))]
        return tuple(self._participants[j] for j in row.tolist())

    def changed(self, add: Iterable[Pair] = (), remove: Iterable[Pair] = ()) -> "CompetitionGraph":
        """Return the graph after some pairs stop competing and others start to.

        Raises
        ------
        SettingsError
            If a pair to add competes already, or a pair to remove does not.

        Examples
        --------
        >>> CompetitionGraph([(0, 1)], 3).changed(add=[(1, 2)], remove=[(0, 1)]).pairs
        (('v1', 'v2'),)
        """
        matrix = self._matrix.copy()
        for pairs, added in ((remove, False), (add, True)):
            for one, other in pairs:
                a, b = self._position(one), self._position(other)
                names = f"{self._participants[a]!r} and {self._participants[b]!r}"
                if a == b:
                    raise GraphError(
                        f"competition: {self._participants[a]!r} cannot compete with itself; "
                        "remove the pair"
                    )
                if matrix[a, b] == added:
                    raise SettingsError(
                        f"{names} compete already; nothing to add"
                        if added
                        else f"{names} do not compete; nothing to remove"
                    )
                matrix[a, b] = matrix[b, a] = added
        return self._of(matrix, self._participants)

    def _linked(self) -> npt.NDArray[np.intp]:
        ends = np.stack((self._entries.rows, self._entries.columns), axis=1)
        return ends[ends[:, 0] < ends[:, 1]]

    def _rows(self) -> tuple[tuple[str, str], ...]:
        return self.pairs

    def _canonical_links(self) -> list[list[int | str]]:
        return [[a, b] for a, b in self._linked().tolist()]

    @classmethod
    def from_numpy(
        cls, matrix: npt.ArrayLike, participants: Iterable[str] | None = None
    ) -> "CompetitionGraph":
        """Make a graph from a symmetric matrix of booleans, or of zeros and ones.

        The rows and columns of a pandas data frame are put in the order of the participants.
        """
        where = "competition graph"
        matrix, participants = labelled_matrix(matrix, participants, where)
        given = square_matrix(matrix, where, "booleans, or of zeros and ones")
        names = names_for(len(given), participants, where)
        array = given.astype(bool, order="C")
        for wrong, problem in (
            (
                given != array,
                "the entry of {a!r} and {b!r} is {entry}; expected booleans, or zeros and ones, "
                "as competition has no weight",
            ),
            (
                array != array.T,
                "{a!r} and {b!r} compete in one direction only; the matrix must be symmetric",
            ),
            (
                array & np.eye(len(array), dtype=bool),
                "{a!r} competes with itself; set the diagonal to zero",
            ),
        ):
            if wrong.any():
                i, j = np.argwhere(wrong)[0]
                message = problem.format(a=names[i], b=names[j], entry=given[i, j])
                raise GraphError(f"{where}: {message}")
        return cls._of(array, names)

    def to_networkx(self) -> "nx.Graph[str]":
        """Return an undirected NetworkX graph."""
        import networkx as nx

        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(self._participants)
        graph.add_edges_from(self.pairs)
        return graph

    @classmethod
    def from_networkx(cls, graph: "nx.Graph[Node]") -> "CompetitionGraph":
        """Make a graph from an undirected NetworkX graph over names, or over 0 to n − 1."""
        import networkx as nx

        if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
            raise GraphError("competition graph: expected a networkx.Graph (undirected)")
        return cls._of_networkx(graph, graph.edges())

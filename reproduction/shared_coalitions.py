"""The coalitions that the cells of a group share, so that each is trained once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedegoists.federation import Participant
from fedegoists.graphs import BenefitGraph
from fedegoists.learning.data import SiloedData
from fedegoists.methods import METHOD_ENTRIES
from fedegoists.training.decisions import Decisions
from reproduction.benefit_graphs import Benefits, coalitions_of
from reproduction.cells import Cell
from reproduction.scenarios import competition_of

__all__ = ["SharedCoalitions", "shared_by"]

Edges = tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class SharedCoalitions:
    """All coalitions of some cells, each of them once.

    Attributes
    ----------
    silos : mapping of str to (int, tuple of str)
        Repetition and silos by label. A coalition has the label of its first cell.
    places : mapping of Cell to mapping of str to Participant
        The participant of the federation that each silo of a cell is.
    coalitions : mapping of Cell to lists of str
        The coalitions of each cell.
    decisions : Decisions
        The coalitions and their benefit edges with the names of the federation.
    """

    silos: Mapping[str, tuple[int, tuple[str, ...]]]
    places: Mapping[Cell, Mapping[str, Participant]]
    coalitions: Mapping[Cell, list[list[str]]]
    decisions: Decisions


def shared_by(
    cells: Sequence[Cell], data: Mapping[int, SiloedData], benefits: Benefits
) -> SharedCoalitions:
    """Return the coalitions of cells that differ only in repetition and competition.

    The training of a coalition depends on its repetition, its members and, for some methods, the
    benefit edges among them, and on nothing else.
    """
    needed = [cell for cell in cells if cell.variant.depends_on_coalitions]
    graphs = benefits.of(needed, data) if needed else {}
    seen: dict[tuple[int, tuple[str, ...], Edges], str] = {}
    silos: dict[str, tuple[int, tuple[str, ...]]] = {}
    places: dict[Cell, dict[str, Participant]] = {}
    coalitions: dict[Cell, list[list[str]]] = {}
    together: list[tuple[Participant, ...]] = []
    edges: list[tuple[Participant, Participant, float]] = []
    for cell in cells:
        names = data[cell.repetition].participants
        found: Sequence[Sequence[str]] = [(name,) for name in names]
        if cell in graphs:
            rivals = competition_of(cell.scenario, cell.repetition, data[cell.repetition])
            found = coalitions_of(cell.variant.where, graphs[cell], rivals)
        coalitions[cell] = [list(group) for group in found]
        places[cell] = {}
        for group in found:
            follows = cell in graphs and METHOD_ENTRIES[cell.variant.method].coalitions == "final"
            inside = _edges_among(group, graphs[cell]) if follows else ()
            key = (cell.repetition, tuple(group), inside)
            if key not in seen:
                seen[key] = cell.label
                _, before = silos.get(cell.label, (cell.repetition, ()))
                silos[cell.label] = (cell.repetition, (*before, *group))
                together += Participant.groups([group], cell.label)
                edges += [
                    (Participant(j, cell.label), Participant(i, cell.label), x)
                    for j, i, x in inside
                ]
            places[cell] |= {name: Participant(name, seen[key]) for name in group}
        places[cell] = {name: places[cell][name] for name in names}
    return SharedCoalitions(
        {
            label: (
                repetition,
                tuple(name for name in data[repetition].participants if name in own),
            )
            for label, (repetition, own) in silos.items()
        },
        places,
        coalitions,
        Decisions(together, together, tuple(edges) if graphs else None),
    )


def _edges_among(group: Sequence[str], graph: BenefitGraph) -> Edges:
    return tuple((j, i, float(x)) for j, i, x in graph.edges() if j in group and i in group)

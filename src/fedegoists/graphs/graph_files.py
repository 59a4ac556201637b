"""Reading both graphs of a consortium from two files."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedegoists.errors import GraphError
from fedegoists.files import read_text
from fedegoists.graphs.benefit_graph import BenefitGraph
from fedegoists.graphs.competition_graph import CompetitionGraph
from fedegoists.graphs.interchange import Links, read_links
from fedegoists.graphs.participants import (
    check_count,
    close_names,
    natural_order,
    read_participants,
)
from fedegoists.graphs.uncertain_benefits import UncertainBenefits

Graph = TypeVar("Graph", BenefitGraph, CompetitionGraph)

MOST_WARNINGS = 5
"""Further names that may be misspelled are only counted."""


def read_graphs(
    benefit: str | os.PathLike[str],
    competition: str | os.PathLike[str],
    participants: str | os.PathLike[str] | None = None,
    *,
    tell: Callable[[str], object] | None = None,
) -> tuple[BenefitGraph, CompetitionGraph]:
    """Read both graphs, over the same participants.

    Files that end in ``.json`` are read as JSON, all others as CSV. The participants are, in this
    order of preference: the lines of the file `participants`; the list in a JSON file; the names
    in both CSV files together, in natural order. In the first two cases any other name is an error;
    in the last case such a name may be misspelled, so `tell` is called with a warning about each
    competitor without any benefit edge.
    """
    benefit_path, competition_path = Path(benefit), Path(competition)
    # A CSV file is read to its links first: only both files together tell the participants.
    gives, rivals = _read(BenefitGraph, benefit_path), _read(CompetitionGraph, competition_path)
    lists = [] if participants is None else [(str(participants), read_participants(participants))]
    lists += [
        (str(path), graph.participants)
        for path, graph in ((benefit_path, gives), (competition_path, rivals))
        if not isinstance(graph, Links)
    ]
    if lists:
        names = _agreed(lists)
    else:
        assert isinstance(gives, Links)
        assert isinstance(rivals, Links)
        names = natural_order({*gives.names, *rivals.names})
        check_count(len(names), f"{benefit_path} and {competition_path}")
    graphs = (
        BenefitGraph.from_links(gives, names) if isinstance(gives, Links) else gives,
        CompetitionGraph.from_links(rivals, names) if isinstance(rivals, Links) else rivals,
    )
    # Errors come before warnings.
    if tell is not None and not lists and isinstance(gives, Links) and isinstance(rivals, Links):
        _warn_of_strangers(gives.names, rivals, str(benefit_path), tell)
    return graphs


def read_uncertain(
    benefit: str | os.PathLike[str],
    competition: str | os.PathLike[str],
    participants: str | os.PathLike[str] | None = None,
    *,
    tell: Callable[[str], object] | None = None,
) -> tuple[UncertainBenefits, CompetitionGraph]:
    """Read benefits with standard errors, and the competition graph, over the same participants.

    The participants are found, and warnings told, as in `read_graphs`.
    """
    paths = Path(benefit), Path(competition)
    rivals = _read(CompetitionGraph, paths[1])
    lists = [] if participants is None else [(str(participants), read_participants(participants))]
    if paths[0].suffix.casefold() == ".json":
        known = UncertainBenefits.from_json(read_text(paths[0]), str(paths[0]))
        lists.append((str(paths[0]), known.participants))
    if not isinstance(rivals, Links):
        lists.append((str(paths[1]), rivals.participants))
    if lists:
        names = _agreed(lists)
    else:
        assert isinstance(rivals, Links)
        own = UncertainBenefits.from_csv(paths[0]).participants
        names = natural_order({*own, *rivals.names})
    if paths[0].suffix.casefold() != ".json":
        known = UncertainBenefits.from_csv(paths[0], names)
    if isinstance(rivals, Links):
        graph = CompetitionGraph.from_links(rivals, names)
        if tell is not None and not lists:
            _warn_of_strangers(own, rivals, str(paths[0]), tell)
        return known, graph
    return known, rivals


def _read(kind: type[Graph], path: Path) -> Graph | Links:
    if path.suffix.casefold() == ".json":
        return kind.from_json(read_text(path), str(path))
    return read_links(path, kind.COLUMNS)


def _warn_of_strangers(
    given: Sequence[str], rivals: Links, benefit: str, tell: Callable[[str], object]
) -> None:
    """Warn of names in the competition file that are not in the benefit file."""
    known = set(given)
    strangers = [k for k, name in enumerate(rivals.names) if name not in known]
    for k in strangers[:MOST_WARNINGS]:
        name = rivals.names[k]
        line = int(np.flatnonzero((rivals.first == k) | (rivals.second == k))[0])
        close = close_names(name, given)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        tell(
            f"{rivals.place(line)}: {name!r} is in no line of {benefit}, and counts as a further "
            f"participant{hint}"
        )
    if len(strangers) > MOST_WARNINGS:
        tell(f"{len(strangers) - MOST_WARNINGS} more competitors are in no line of {benefit}")


def _agreed(lists: list[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return the list of participants; all files must have the same one."""
    source, names = lists[0]
    for path, found in lists[1:]:
        if found != names:
            different = sorted(set(names) ^ set(found))
            what = (
                f"{different[0]!r} is in only one of them"
                if different
                else "their order is different"
            )
            raise GraphError(f"{path}: its participants are not those of {source}: {what}")
    return names

"""Reading the two graphs of a consortium from two files."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedegoists.errors import GraphError
from fedegoists.files import read_text
from fedegoists.graphs.benefit_graph import BENEFIT_COLUMNS, BenefitGraph
from fedegoists.graphs.competition_graph import COMPETITION_COLUMNS, CompetitionGraph
from fedegoists.graphs.interchange import Links, read_links
from fedegoists.graphs.participants import (
    check_count,
    close_names,
    natural_order,
    read_participants,
)

__all__ = ["read_graphs"]

MOST_TOLD = 5
"""Of more names that might be misspelled, the others are only counted."""


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
    in the last `tell` is called with a sentence about each competitor who is in no benefit edge, as
    such a name may be misspelled.
    """
    benefit_path, competition_path = Path(benefit), Path(competition)
    # A CSV file is read to its links first: only both files together tell the participants.
    gives: BenefitGraph | Links = (
        BenefitGraph.from_json(read_text(benefit_path), str(benefit_path))
        if _is_json(benefit_path)
        else read_links(benefit_path, BENEFIT_COLUMNS)
    )
    rivals: CompetitionGraph | Links = (
        CompetitionGraph.from_json(read_text(competition_path), str(competition_path))
        if _is_json(competition_path)
        else read_links(competition_path, COMPETITION_COLUMNS)
    )
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
    # A doubt is of interest only if there is no error.
    if tell is not None and not lists and isinstance(gives, Links) and isinstance(rivals, Links):
        _tell_of_strangers(gives, rivals, str(benefit_path), tell)
    return graphs


def _is_json(path: Path) -> bool:
    return path.suffix.casefold() == ".json"


def _tell_of_strangers(
    gives: Links, rivals: Links, benefit: str, tell: Callable[[str], object]
) -> None:
    """Say which names of the competition file stand in no line of the benefit file."""
    known = set(gives.names)
    strangers = [k for k, name in enumerate(rivals.names) if name not in known]
    for k in strangers[:MOST_TOLD]:
        name = rivals.names[k]
        line = int(np.flatnonzero((rivals.first == k) | (rivals.second == k))[0])
        close = close_names(name, gives.names)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        tell(
            f"{rivals.place(line)}: {name!r} stands in no line of {benefit}, and is taken as one "
            f"more participant{hint}"
        )
    if len(strangers) > MOST_TOLD:
        tell(f"{len(strangers) - MOST_TOLD} more competitors stand in no line of {benefit}")


def _agreed(lists: list[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return the one list of participants that all files agree on."""
    source, names = lists[0]
    for path, found in lists[1:]:
        if found != names:
            different = sorted(set(names) ^ set(found))
            what = (
                f"{different[0]!r} is in only one of them"
                if different
                else "they stand in another order"
            )
            raise GraphError(f"{path}: its participants are not those of {source}: {what}")
    return names

"""Reading the two graphs of a consortium from two files."""

import os
from pathlib import Path

from fedegoists.errors import GraphError
from fedegoists.files import read_text
from fedegoists.graphs.benefit import BENEFIT_COLUMNS, BenefitGraph
from fedegoists.graphs.competition import COMPETITION_COLUMNS, CompetitionGraph
from fedegoists.graphs.interchange import Links, read_links
from fedegoists.graphs.participants import check_count, natural_order, read_participants

__all__ = ["read_graphs"]


def read_graphs(
    benefit: str | os.PathLike[str],
    competition: str | os.PathLike[str],
    participants: str | os.PathLike[str] | None = None,
) -> tuple[BenefitGraph, CompetitionGraph]:
    """Read both graphs, over the same participants.

    Files that end in ``.json`` are read as JSON, all others as CSV. The participants are, in this
    order of preference: the lines of the file `participants`; the list in a JSON file; the names
    in both CSV files together, in natural order. In the first two cases any other name is an error.
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
    return (
        BenefitGraph.from_links(gives, names) if isinstance(gives, Links) else gives,
        CompetitionGraph.from_links(rivals, names) if isinstance(rivals, Links) else rivals,
    )


def _is_json(path: Path) -> bool:
    return path.suffix.casefold() == ".json"


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

"""The benefit graph and the competition graph: immutable, validated values."""

from fedegoists.graphs.benefit_graph import BenefitGraph
from fedegoists.graphs.competition_graph import CompetitionGraph
from fedegoists.graphs.graph_files import read_graphs
from fedegoists.graphs.participants import MAX_PARTICIPANTS, read_participants

__all__ = [
    "MAX_PARTICIPANTS",
    "BenefitGraph",
    "CompetitionGraph",
    "read_graphs",
    "read_participants",
]

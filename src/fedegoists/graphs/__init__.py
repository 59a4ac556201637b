"""Who benefits whom, and who competes with whom: immutable, validated values."""

from fedegoists.graphs.benefit import BenefitGraph
from fedegoists.graphs.competition import CompetitionGraph
from fedegoists.graphs.participants import MAX_PARTICIPANTS, read_participants
from fedegoists.graphs.read import read_graphs

__all__ = [
    "MAX_PARTICIPANTS",
    "BenefitGraph",
    "CompetitionGraph",
    "read_graphs",
    "read_participants",
]

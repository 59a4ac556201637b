"""Benefit graph, competition graph and coalition values: immutable, validated values."""

from fedegoists.graphs.benefit_graph import BenefitGraph
from fedegoists.graphs.coalition_values import CoalitionValues
from fedegoists.graphs.competition_graph import CompetitionGraph
from fedegoists.graphs.curve_values import CurveValues
from fedegoists.graphs.graph_files import read_graphs
from fedegoists.graphs.participants import MAX_PARTICIPANTS, read_participants
from fedegoists.graphs.uncertain_benefits import UncertainBenefits
from fedegoists.graphs.values_files import read_values

__all__ = [
    "MAX_PARTICIPANTS",
    "BenefitGraph",
    "CoalitionValues",
    "CompetitionGraph",
    "CurveValues",
    "UncertainBenefits",
    "read_graphs",
    "read_participants",
    "read_values",
]

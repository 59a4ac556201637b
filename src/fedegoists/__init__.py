"""Decide who trains with whom, prove that the decision is fair, and train."""

from fedegoists.coalitions import form, verify
from fedegoists.graphs import BenefitGraph, CompetitionGraph

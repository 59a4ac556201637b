"""A small decision to commit to."""

from fedegoists import BenefitGraph, CompetitionGraph, form

SECRET = bytes(range(32))


def example():
    banks = ["North", "South", "East", "West"]
    edges = [("North", "South", 0.5), ("South", "North", 0.25), ("East", "North", 1.0)]
    benefit = BenefitGraph.from_edges(edges, banks)
    return form(benefit, CompetitionGraph([("East", "South")], banks))

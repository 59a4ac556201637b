"""Decide who trains with whom, prove that the decision is fair, and train.

Examples
--------
>>> from fedegoists import BenefitGraph, CompetitionGraph, form, verify
>>> benefit = BenefitGraph([[0, 2, 1], [1, 0, 2], [2, 1, 0]], ["North", "South", "East"])
>>> competition = CompetitionGraph([("South", "East")], benefit.participants)
>>> formation = form(benefit, competition)
>>> formation.coalitions
(('North', 'South'), ('East',))
>>> verify(benefit, competition, formation.coalitions).ok
True
"""

from fedegoists.coalitions import (
    Certificate,
    CoreAudit,
    Explanation,
    Formation,
    Newcomer,
    Verification,
    WhatIf,
    audit_core,
    draw,
    explain,
    form,
    usage_graph,
    verify,
    what_if,
)
from fedegoists.errors import FedEgoistsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph, read_graphs
from fedegoists.version import __version__

__all__ = [
    "BenefitGraph",
    "Certificate",
    "CompetitionGraph",
    "CoreAudit",
    "Explanation",
    "FedEgoistsError",
    "Formation",
    "Newcomer",
    "Verification",
    "WhatIf",
    "__version__",
    "audit_core",
    "draw",
    "explain",
    "form",
    "read_graphs",
    "usage_graph",
    "verify",
    "what_if",
]

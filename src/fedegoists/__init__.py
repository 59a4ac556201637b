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

from typing import TYPE_CHECKING, Any

from fedegoists.coalitions import (
    Certificate,
    ChangedWeight,
    CoreAudit,
    Explanation,
    Formation,
    IncentiveReport,
    Newcomer,
    Verification,
    WhatIf,
    audit_core,
    draw,
    explain,
    explain_alone,
    form,
    incentives,
    inspection_probability,
    sensitivity,
    usage_graph,
    verify,
    what_if,
)
from fedegoists.errors import FedEgoistsError, MissingDependencyError
from fedegoists.graphs import (
    BenefitGraph,
    CoalitionValues,
    CompetitionGraph,
    CurveValues,
    UncertainBenefits,
    read_graphs,
    read_values,
)
from fedegoists.version import __version__

if TYPE_CHECKING:
    from fedegoists.consortium import Consortium

__all__ = [
    "BenefitGraph",
    "Certificate",
    "ChangedWeight",
    "CoalitionValues",
    "CompetitionGraph",
    "Consortium",
    "CoreAudit",
    "CurveValues",
    "Explanation",
    "FedEgoistsError",
    "Formation",
    "IncentiveReport",
    "Newcomer",
    "UncertainBenefits",
    "Verification",
    "WhatIf",
    "__version__",
    "audit_core",
    "draw",
    "explain",
    "explain_alone",
    "form",
    "incentives",
    "inspection_probability",
    "read_graphs",
    "read_values",
    "sensitivity",
    "usage_graph",
    "verify",
    "what_if",
]


def __getattr__(name: str) -> Any:
    """Load what needs the extra ``train`` only when it is asked for."""
    if name != "Consortium":
        raise AttributeError(f"module 'fedegoists' has no attribute {name!r}")
    try:
        from fedegoists.consortium import Consortium
    except ImportError as error:
        from fedegoists.install_hints import install_command

        raise MissingDependencyError(
            f"Consortium needs {error.name}: {install_command('train')}"
        ) from None
    return Consortium

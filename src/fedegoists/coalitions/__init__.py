"""The decision who trains with whom, its proof and its explanation."""

from fedegoists.coalitions.core_stability import BlockingGroup, CoreAudit, audit_core
from fedegoists.coalitions.drawing import draw
from fedegoists.coalitions.explanation import Explanation, explain
from fedegoists.coalitions.formation import (
    METHODS,
    OBJECTIVES,
    Formation,
    Merge,
    Method,
    Objective,
)
from fedegoists.coalitions.forming import form
from fedegoists.coalitions.principles import Verification, verify
from fedegoists.coalitions.proof.certificate import Certificate, CertificateCheck
from fedegoists.coalitions.usage import usage_graph
from fedegoists.coalitions.what_if import Newcomer, WhatIf, what_if

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "BlockingGroup",
    "Certificate",
    "CertificateCheck",
    "CoreAudit",
    "Explanation",
    "Formation",
    "Merge",
    "Method",
    "Newcomer",
    "Objective",
    "Verification",
    "WhatIf",
    "audit_core",
    "draw",
    "explain",
    "form",
    "usage_graph",
    "verify",
    "what_if",
]

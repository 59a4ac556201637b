"""Coalition formation: the decision who trains with whom, its proof and its explanation."""

from fedegoists.coalitions.certificate import Certificate
from fedegoists.coalitions.core_stability import BlockingGroup, CoreAudit, audit_core
from fedegoists.coalitions.drawing import draw
from fedegoists.coalitions.explanation import Explanation, explain
from fedegoists.coalitions.formation import Formation, Merge
from fedegoists.coalitions.formation_options import (
    FORMATION_METHODS,
    OBJECTIVES,
    FormationMethod,
    Objective,
)
from fedegoists.coalitions.forming import form
from fedegoists.coalitions.principles import Verification, verify
from fedegoists.coalitions.proof.verification import CertificateCheck, CheckedClaim
from fedegoists.coalitions.usage import usage_graph
from fedegoists.coalitions.what_if import Newcomer, WhatIf, what_if

__all__ = [
    "FORMATION_METHODS",
    "OBJECTIVES",
    "BlockingGroup",
    "Certificate",
    "CertificateCheck",
    "CheckedClaim",
    "CoreAudit",
    "Explanation",
    "Formation",
    "FormationMethod",
    "Merge",
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

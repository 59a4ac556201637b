"""Coalition formation: the decision who trains with whom, its proof and its explanation.

Where to find what::

    principles        Principles 1 and 2 and Equation 2, checked with witnesses: `verify`
    welfare           utilities u_i(S) and welfare, added up in one place
    cliques, contraction, algorithm1    Algorithm 1 of the paper, line by line
    merging           the search for coalitions that should merge
    exact/            the partition of highest welfare, and upper bounds
    partition_search, forming           the formation methods, and `form`
    formation, usage  the result, and the data-usage graph G_u
    truthful_search   coalitions under which no misreport of received benefit pays
    what_if, rearranging, explanation, core_stability, sensitivity    questions about a result
    incentives/       what false reports would add for each participant
    worst_decile, doubt_report          decisions under uncertain benefits, and how sure they are
    value_*           the same with coalition values: search, principles, explanation
    certificate, proof/                 certificates, and checks that share no code with `exact`
    drawing/          pictures
"""

from fedegoists.coalitions.certificate import Certificate
from fedegoists.coalitions.core_stability import BlockingGroup, CoreAudit, audit_core
from fedegoists.coalitions.drawing import draw
from fedegoists.coalitions.explanation import Explanation, explain, explain_alone
from fedegoists.coalitions.formation import Formation, Merge
from fedegoists.coalitions.formation_options import (
    FORMATION_METHODS,
    OBJECTIVES,
    FormationMethod,
    Objective,
)
from fedegoists.coalitions.forming import form
from fedegoists.coalitions.incentives import (
    IncentiveReport,
    ParticipantIncentives,
    Temptation,
    incentives,
    inspection_probability,
)
from fedegoists.coalitions.principles import Verification, verify
from fedegoists.coalitions.proof.verification import CertificateCheck, CheckedClaim
from fedegoists.coalitions.sensitivity import Sensitivity, sensitivity
from fedegoists.coalitions.usage import usage_graph
from fedegoists.coalitions.what_if import ChangedWeight, Newcomer, WhatIf, what_if

__all__ = [
    "FORMATION_METHODS",
    "OBJECTIVES",
    "BlockingGroup",
    "Certificate",
    "CertificateCheck",
    "ChangedWeight",
    "CheckedClaim",
    "CoreAudit",
    "Explanation",
    "Formation",
    "FormationMethod",
    "IncentiveReport",
    "Merge",
    "Newcomer",
    "Objective",
    "ParticipantIncentives",
    "Sensitivity",
    "Temptation",
    "Verification",
    "WhatIf",
    "audit_core",
    "draw",
    "explain",
    "explain_alone",
    "form",
    "incentives",
    "inspection_probability",
    "sensitivity",
    "usage_graph",
    "verify",
    "what_if",
]

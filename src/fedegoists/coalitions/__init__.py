"""The decision who trains with whom, its proof and its explanation."""

from fedegoists.coalitions.certificate import Certificate, CertificateCheck
from fedegoists.coalitions.changes import Newcomer, WhatIf, what_if
from fedegoists.coalitions.drawing import draw
from fedegoists.coalitions.explanation import Explanation, explain
from fedegoists.coalitions.formation import METHODS, Formation, Merge, Method, form
from fedegoists.coalitions.principles import Verification, verify
from fedegoists.coalitions.usage import usage_graph

__all__ = [
    "METHODS",
    "Certificate",
    "CertificateCheck",
    "Explanation",
    "Formation",
    "Merge",
    "Method",
    "Newcomer",
    "Verification",
    "WhatIf",
    "draw",
    "explain",
    "form",
    "usage_graph",
    "verify",
    "what_if",
]

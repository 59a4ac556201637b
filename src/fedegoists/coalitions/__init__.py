"""The decision who trains with whom, its proof and its explanation."""

from fedegoists.coalitions.certificate import Certificate, CertificateCheck
from fedegoists.coalitions.drawing import draw
from fedegoists.coalitions.explain import Explanation, explain
from fedegoists.coalitions.formation import METHODS, Formation, Merge, Method, form
from fedegoists.coalitions.principles import Verification, verify
from fedegoists.coalitions.usage import usage_graph
from fedegoists.coalitions.what_if import Newcomer, WhatIf, what_if

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

"""Commitments to a decision: each member can check its own part, an auditor all of it."""

from fedegoists.commitments.commitment import Commitment
from fedegoists.commitments.member_certificate import MemberCertificate
from fedegoists.commitments.opening import Opening, read_disclosure

__all__ = ["Commitment", "MemberCertificate", "Opening", "read_disclosure"]

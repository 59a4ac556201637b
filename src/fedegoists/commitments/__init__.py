"""Binding a decision to hidden graphs: everybody can check its own part, an auditor all of it."""

from fedegoists.commitments.commitment import Commitment
from fedegoists.commitments.member_certificate import MemberCertificate
from fedegoists.commitments.opening import Opening
from fedegoists.commitments.opening_files import read_disclosure

__all__ = ["Commitment", "MemberCertificate", "Opening", "read_disclosure"]

"""Reading a file that opens a part of a commitment, or all of it."""

import os

from fedegoists.commitments import member_certificate as member
from fedegoists.commitments import opening
from fedegoists.errors import GraphError
from fedegoists.files import read_text
from fedegoists.graphs.interchange import json_value

__all__ = ["read_disclosure"]


def read_disclosure(
    path: str | os.PathLike[str],
) -> member.MemberCertificate | opening.Opening | None:
    """Return a member's certificate or an auditor's opening; None if the file is neither."""
    text = read_text(path)
    try:
        data = json_value(text, str(path))
    except GraphError:
        return None
    form = data.get("format") if isinstance(data, dict) else None
    if form == member.FORMAT:
        return member.MemberCertificate.from_json(text, str(path))
    if form == opening.FORMAT:
        return opening.Opening.from_json(text, str(path))
    return None

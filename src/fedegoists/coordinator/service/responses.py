"""Answers that are files."""

from fastapi import Response

__all__ = ["REPORT_HEADERS", "attachment"]

REPORT_HEADERS = {
    # A report carries its own style and needs nothing else; whatever is in it, no script runs.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
}


def attachment(content: str, media_type: str, filename: str) -> Response:
    """Return a text to be kept as a file."""
    headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
    return Response(content, media_type=media_type, headers=headers)

"""Responses: pages from templates, redirects, and files."""

import re
from functools import cache
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

import fedegoists
from fedegoists.coordinator.service.request_identity import Caller
from fedegoists.coordinator.store.moments import from_moment
from fedegoists.files import read_text
from fedegoists.version import __version__

PART = 64 * 1024
"""Bytes of a report that are sent at once."""

REPORT_HEADERS = {
    # A report carries its own style and needs nothing else; scripts in it do not run.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
}


def attachment(content: str, filename: str) -> Response:
    """Return a JSON text as a file to download."""
    headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
    return Response(content, media_type="application/json", headers=headers)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("fedegoists.coordinator.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["moment"] = moment_words
    environment.globals["version"] = __version__
    return environment


def moment_words(moment: str | None) -> str:
    """Return a stored time for readers.

    Examples
    --------
    >>> moment_words("2026-01-02T03:04:05.000000Z")
    '2 January 2026, 03:04 UTC'
    """
    if moment is None:
        return ""
    time = from_moment(moment)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"


def page(
    request: Request, template: str, caller: Caller | None, status: int = 200, **content: object
) -> HTMLResponse:
    """Return a page, whose forms carry the caller's CSRF token."""
    csrf = (caller.csrf if caller else None) or ""
    text = _templates().get_template(template)
    return HTMLResponse(
        text.render(caller=caller, csrf=csrf, path=request.url.path, **content), status
    )


def without_links(report: str) -> str:
    """Return a report without links to files beside it, which are not served with it.

    Examples
    --------
    >>> without_links('<a href="#gains">Gains</a> of <a href="members/North.html">North</a>')
    '<a href="#gains">Gains</a> of North'
    """
    return re.sub(r'<a [^>]*href="(?!#)[^"]*"[^>]*>(.*?)</a>', r"\1", report, flags=re.DOTALL)


def report_response(path: Path) -> Response:
    """Return a report that a run has written, in parts, as fast as its reader takes them."""
    content = without_links(read_text(path)).encode()
    parts = (content[k : k + PART] for k in range(0, len(content), PART))
    headers = {**REPORT_HEADERS, "Content-Length": str(len(content))}
    return StreamingResponse(parts, media_type="text/html; charset=utf-8", headers=headers)


def see_other(address: str) -> RedirectResponse:
    """Redirect a browser to another page after a form."""
    return RedirectResponse(address, 303)


@cache
def base_style() -> str:
    """Return the style that pages share with reports."""
    # By its path: importing the package of reports would load all that training needs.
    folder = Path(fedegoists.__file__).parent / "consortium" / "report" / "templates"
    return read_text(folder / "style.css")

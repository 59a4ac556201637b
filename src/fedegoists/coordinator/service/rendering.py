"""Making pages from templates."""

from functools import cache
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

import fedegoists
from fedegoists.coordinator.service.identity import Asker, asker_of
from fedegoists.coordinator.store.times import from_moment
from fedegoists.files import read_text
from fedegoists.version import __version__

__all__ = ["base_style", "moment_words", "page", "see_other", "signed_in"]


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
    """Return a moment for readers.

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
    request: Request,
    template: str,
    asker: Asker | None,
    *,
    status: int = 200,
    **content: Any,
) -> HTMLResponse:
    """Return a page; forms in it carry what shows that they came from it."""
    csrf = asker.csrf if asker else None
    text = (
        _templates()
        .get_template(template)
        .render(asker=asker, csrf=csrf or "", path=request.url.path, **content)
    )
    return HTMLResponse(text, status)


def signed_in(request: Request, csrf: str | None = None, *, role: str) -> Asker:
    """Return who is asking; whoever is not signed in is sent to do so."""
    found = asker_of(request, csrf)
    if found is None:
        raise HTTPException(303, "sign in first", {"Location": "/login"})
    if found.principal.role != role:
        raise HTTPException(403, f"this page is for a {role}")
    return found


def see_other(address: str) -> RedirectResponse:
    """Send a browser to another page after a form."""
    return RedirectResponse(address, 303)


@cache
def base_style() -> str:
    """Return the style that pages share with reports."""
    # By its path: to import the package of reports would load all that training needs.
    folder = Path(fedegoists.__file__).parent / "consortium" / "report" / "templates"
    return read_text(folder / "style.css")

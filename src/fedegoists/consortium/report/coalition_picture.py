"""The picture of the coalitions inside a page."""

import re
from typing import TYPE_CHECKING

from markupsafe import Markup

from fedegoists.coalitions.drawing import render

if TYPE_CHECKING:
    from fedegoists.coalitions import Formation

SMALLEST, LARGEST = 0.8, 1.2
"""The range of the scale at which the picture is shown."""


def inline_picture(formation: "Formation", label: str) -> Markup:
    """Return the drawing of a formation as an HTML element with a label."""
    text = render(formation, "svg").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # Styles inside the picture would apply to the whole page.
    text = text.replace(">*{", ">.coalitions *{", 1)
    opening, rest = text.split(">", 1)
    found = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', opening)
    assert found is not None  # matplotlib writes one
    width = float(found[1])
    # The smallest size at which its labels can be read; a narrower screen scrolls.
    sizes = f"min-width: {SMALLEST * width:.0f}pt; max-width: {LARGEST * width:.0f}pt"
    attributes = Markup('<svg class="coalitions" style="{}" role="img" aria-label="{}" ')
    # The drawing escapes the names in it.
    return attributes.format(sizes, label) + Markup(f"{found[0]}>{rest}")  # noqa: S704

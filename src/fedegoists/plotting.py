"""Shared by all pictures: matplotlib settings, file formats, reproducible bytes, and labels."""

import io
import os
import threading
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.install_hints import install_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PictureFormat = Literal["png", "svg", "pdf"]

TEXT_COLOR, QUIET_COLOR = "#1F2937", "#5B6470"

# Glyphs that matplotlib's own font lacks are looked up in these, where installed.
FALLBACK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "Microsoft YaHei"),
    *("PingFang SC", "Hiragino Sans GB", "SimHei", "WenQuanYi Micro Hei", "Arial Unicode MS"),
)

# matplotlib's settings and Python's warning filters belong to the whole process.
_RENDERING = threading.Lock()


def format_of(path: str | os.PathLike[str]) -> PictureFormat:
    """Return the picture format of a file name, by its suffix."""
    suffix = Path(path).suffix
    for picture_format in get_args(PictureFormat):
        if suffix.casefold() == f".{picture_format}":
            found: PictureFormat = picture_format
            return found
    raise SettingsError(
        f"{os.fspath(path)}: cannot draw to a file "
        f"{f'that ends in {suffix}' if suffix else 'without a suffix'}; "
        f"allowed are {', '.join(f'.{known}' for known in get_args(PictureFormat))}"
    )


@contextmanager
def plotting() -> Iterator[None]:
    """Context manager for drawing with fixed matplotlib settings, whatever the user configured."""
    try:
        import matplotlib.style
        from matplotlib.font_manager import fontManager
    except ImportError:
        raise MissingDependencyError(
            f"drawing needs Matplotlib, which is not installed; run: {install_command('draw')}"
        ) from None
    installed = set(fontManager.get_font_names())
    settings = {
        "font.family": ["DejaVu Sans", *(font for font in FALLBACK_FONTS if font in installed)],
        "svg.fonttype": "none",
        "svg.hashsalt": "fedegoists",
    }
    with _RENDERING, matplotlib.style.context(["default", settings]), warnings.catch_warnings():
        # A name in a script without an installed font shows as boxes in PNG and PDF; an SVG is
        # shown with the fonts of the viewer.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


def saved(figure: "Figure", picture_format: PictureFormat) -> bytes:
    """Return a figure as the content of a file: without a date, so always the same bytes."""
    content = io.BytesIO()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[picture_format]
    figure.savefig(content, format=picture_format, dpi=figure.dpi, metadata=undated)
    return content.getvalue()


def short_labels(names: Sequence[str]) -> list[str]:
    """Return short labels for names; different names get different labels."""
    room = 28 if len(names) <= 20 else 24
    printable = [
        "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in name)
        for name in names
    ]
    labels = [_shortened(name, room) for name in printable]
    # Names that start alike may end differently; otherwise a number tells them apart.
    taken = Counter(labels)
    labels = [
        label if taken[label] == 1 else _shortened(name, room, room // 2)
        for name, label in zip(printable, labels, strict=True)
    ]
    taken = Counter(labels)
    return [
        label if taken[label] == 1 else f"{_shortened(label, room - 6)} #{k}"
        for k, label in enumerate(labels)
    ]


def _shortened(text: str, room: int, tail: int = 0) -> str:
    """Return a text's start and end around an ellipsis; wide characters count two."""
    if _cells(text) <= room:
        return text
    start, end = 0, len(text)
    while _cells(text[end - 1 :]) <= tail:
        end -= 1
    # Prefer a whole word at the end, if one begins there.
    end = max(end, text.find(" ", end - 1) + 1)
    while _cells(text[: start + 1]) + 1 + _cells(text[end:]) <= room:
        start += 1
    return f"{text[:start].rstrip()}…{text[end:].lstrip()}"


def in_two_lines(label: str) -> str:
    """Break a long label into two lines, at a gap unless one line would stay very long."""
    if _cells(label) <= 12:
        return label

    def longer(k: int) -> int:
        return max(_cells(label[:k].rstrip()), _cells(label[k:].lstrip()))

    gaps = (k for k in range(1, len(label)) if label[k] == " " or label[k - 1] == "…")
    k = min(gaps, key=longer, default=0)
    if longer(k) > 18:
        k = min(range(len(label)), key=longer)
    return f"{label[:k].rstrip()}\n{label[k:].lstrip()}".strip()


def _cells(text: str) -> int:
    """Return the width of a text in characters; wide ones count two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def text_size(text: str, size: float) -> tuple[float, float]:
    """Return a text's width and height in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font, widths = FontProperties(size=size), []
    for line in text.split("\n"):
        narrow = "".join(c for c in line if unicodedata.east_asian_width(c) not in "WF")
        width, _, _ = text_to_path.get_text_width_height_descent(narrow, font, ismath=False)
        # Wide characters are as wide as the font is high, whichever font will show them.
        widths.append(float(width) + (len(line) - len(narrow)) * size)
    return max(widths) / 72, len(widths) * 1.2 * size / 72

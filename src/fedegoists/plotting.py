"""What all pictures share: matplotlib set up alike everywhere, formats, and reproducible files."""

import io
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from fedegoists.errors import MissingDependencyError, SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["QUIET_COLOR", "TEXT_COLOR", "PictureFormat", "format_of", "plotting", "saved"]

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
    """Return the format that a file name asks for."""
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
    """Have matplotlib draw the same picture whatever its user has configured."""
    try:
        import matplotlib.style
        from matplotlib.font_manager import fontManager
    except ImportError:
        raise MissingDependencyError(
            "drawing needs matplotlib, which is not installed; run: pip install matplotlib"
        ) from None
    installed = set(fontManager.get_font_names())
    settings = {
        "font.family": ["DejaVu Sans", *(font for font in FALLBACK_FONTS if font in installed)],
        "svg.fonttype": "none",
        "svg.hashsalt": "fedegoists",
    }
    with _RENDERING, matplotlib.style.context(["default", settings]), warnings.catch_warnings():
        # A name in a script that no installed font has shows as boxes in PNG and PDF; who looks
        # at an SVG has fonts of their own.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


def saved(figure: "Figure", picture_format: PictureFormat) -> bytes:
    """Return a figure as the content of a file, the same bytes every time."""
    content = io.BytesIO()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[picture_format]
    figure.savefig(content, format=picture_format, dpi=figure.dpi, metadata=undated)
    return content.getvalue()

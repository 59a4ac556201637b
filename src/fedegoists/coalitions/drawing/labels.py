"""Names as labels: short, distinct, and of a known size."""

import unicodedata
from collections import Counter
from collections.abc import Sequence

__all__ = ["in_two_lines", "short_labels", "text_size"]


def short_labels(names: Sequence[str]) -> list[str]:
    """Return labels that are short, and as different from each other as the names are."""
    room = 28 if len(names) <= 20 else 24
    printable = [
        "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in name)
        for name in names
    ]
    labels = [_shortened(name, room) for name in printable]
    # Names that start alike may end differently; otherwise their positions tell them apart.
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
    # Rather whole words, if one begins there.
    end = max(end, text.find(" ", end - 1) + 1)
    while _cells(text[: start + 1]) + 1 + _cells(text[end:]) <= room:
        start += 1
    return f"{text[:start].rstrip()}…{text[end:].lstrip()}"


def in_two_lines(label: str) -> str:
    """Break a label that is not short, at a gap unless that leaves one line very long."""
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

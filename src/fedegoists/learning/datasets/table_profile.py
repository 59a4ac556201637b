"""Profile of a table before anything is agreed: types, gaps, ranges, and what looks odd."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedegoists.learning.datasets.column_checks import (
    IDENTIFIER,
    looks_like_identifier,
    missing_code,
)
from fedegoists.learning.datasets.data_tables import (
    DATE_LIKE,
    MISSING_WORDS,
    TRUTH,
    USUAL_MARKS,
    DataTable,
    Numbers,
    WantedColumns,
    whole,
)
from fedegoists.learning.datasets.schema import ColumnKind
from fedegoists.learning.datasets.table_files import read_table
from fedegoists.learning.key_splits import row_keys

MOST_CATEGORIES = 20
"""Different words of a column that are taken for categories."""
RARE = 5
"""Rows with a value, at an organisation, below which it is not proposed as a category."""
ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
SHOWN = 4
"""Values of a column that are shown."""


@dataclass(frozen=True)
class ColumnProfile:
    """What a column seems to hold.

    Attributes
    ----------
    kind : {"number", "category", "boolean", "date", "text", "nothing"}
        Text has too many different values for categories.
    missing, different : int
        Cells without a value, and different values.
    content : str
        The range of numbers, or the most frequent values.
    counts : mapping of str to int
        The rows with each value of categories and of truth values.
    marks : tuple
        Values that look as if they stood for a missing one.
    remarks : tuple of str
        What looks odd.
    """

    name: str
    kind: ColumnKind | str
    missing: int
    different: int
    content: str
    counts: Mapping[str, int]
    marks: tuple[str | float, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class TableProfile:
    """The profile of one organisation's table."""

    rows: int
    copies: int
    columns: tuple[ColumnProfile, ...]


def profiled(owner: str, source: Any) -> TableProfile:
    """Return the profile of a file or data frame.

    Raises
    ------
    DataError
        If it is not a table.
    """
    table = read_table(owner, source, WantedColumns((), everything=True))
    columns = tuple(_profile(table, name) for name in table.names)
    compared = [_codes(table, one.name) for one in columns if not _is_identifier(one)]
    copies = len(table) - len(set(row_keys(np.stack(compared, axis=1)))) if compared else 0
    return TableProfile(len(table), copies, columns)


def _codes(table: DataTable, name: str) -> Numbers:
    """Return a number for each cell, the same for the same content."""
    cells = table.columns[name]
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    texts = table.texts(name)
    places = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    return np.array([places[text] for text in texts], dtype=np.float64)


def _is_identifier(column: ColumnProfile) -> bool:
    return any("identifier" in remark for remark in column.remarks)


def _profile(table: DataTable, name: str) -> ColumnProfile:
    cells = table.columns[name]
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return _number_profile(name, cells.astype(np.float64), ())
    words = [whole(text) for text in table.texts(name)]
    counts = Counter(word for word in words if word.casefold() not in MISSING_WORDS)
    marks = tuple(word for word in counts if word.casefold() in USUAL_MARKS)
    known = {word: count for word, count in counts.items() if word not in marks}
    missing = len(words) - sum(known.values())
    if not known:
        return ColumnProfile(
            name, "nothing", missing, 0, "", {}, marks, _about_marks(marks, counts)
        )
    if set(map(str.casefold, known)) <= set(TRUTH) and not set(known) <= {"0", "1"}:
        kind: str = "boolean"
    else:
        numbers = [_number(table, word) for word in words]
        readable = sum(number is not None for number in numbers)
        if readable >= sum(known.values()):
            values = np.array([np.nan if number is None else number for number in numbers])
            return _number_profile(name, values, marks, _about_marks(marks, counts))
        dates = sum(count for word, count in known.items() if DATE_LIKE.match(word))
        few = len(known) <= MOST_CATEGORIES
        kind = "date" if dates == sum(known.values()) else "category" if few else "text"
    first = sorted(known.items(), key=lambda item: (-item[1], item[0]))
    content = ", ".join(f"{word[:20]} ({count:,})" for word, count in first[:SHOWN])
    remarks = [*_about_marks(marks, counts)]
    if kind == "date" and ISO.match(first[0][0]):
        first, content = [], f"{min(known)} to {max(known)}"
    if kind == "text" and looks_like_identifier(name, np.array(words)):
        remarks.append("identifier?")
    if len(known) == 1:
        remarks.append("one value only")
    more = ", …" if len(first) > SHOWN else ""
    kept = known if kind in ("category", "boolean") else {}
    return ColumnProfile(
        name, kind, missing, len(known), content + more, kept, marks, tuple(remarks)
    )


def _number(table: DataTable, word: str) -> float | None:
    plain = word.replace(",", ".") if table.decimal_comma else word
    try:
        return float(plain) if plain.isascii() and "_" not in plain else None
    except ValueError:
        return None


def _about_marks(marks: Sequence[str], counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{mark!r} for missing? ({counts[mark]:,})" for mark in marks)


def _number_profile(
    name: str, values: Any, marks: tuple[str, ...], remarks: tuple[str, ...] = ()
) -> ColumnProfile:
    known = values[~np.isnan(values)]
    missing = len(values) - len(known)
    if not len(known):
        return ColumnProfile(name, "nothing", missing, 0, "", {}, marks, remarks)
    found: list[str] = [*remarks]
    codes: list[str | float] = [*marks]
    code = missing_code(values)
    if code is not None:
        codes.append(code)
        found.append(f"{code:g} for missing? ({int((known == code).sum()):,})")
        known = known[known != code]
    if not np.isfinite(known).all():
        found.append(f"not finite ({int((~np.isfinite(known)).sum()):,})")
    different = np.unique(known)
    if len(different) == 1:
        found.append("one value only")
    if looks_like_identifier(name, values):
        found.append("identifier?")
    counts = {}
    if len(different) <= SHOWN and (different == np.round(different)).all():
        counts = {f"{value:g}": int((known == value).sum()) for value in different}
    content = f"{different[0]:g} to {different[-1]:g}"
    if counts:
        content = ", ".join(f"{value} ({count:,})" for value, count in counts.items())
    return ColumnProfile(
        name, "number", missing, len(different), content, counts, tuple(codes), tuple(found)
    )


def proposed_schema(profiles: Mapping[str, TableProfile]) -> str:
    """Return a schema.toml to start from, for tables that have none.

    The last column is taken for the target. Only values that at least five rows have, at two or
    more organisations where there are as many, are proposed as categories.
    """
    first = next(iter(profiles.values()))
    *features, target = [one.name for one in first.columns]
    by_name = {
        name: [one for table in profiles.values() for one in table.columns if one.name == name]
        for name in (*features, target)
    }
    left_out = [n for n in features if any(map(_is_identifier, by_name[n])) or _text(by_name[n])]
    kept = [name for name in features if name not in left_out]
    lines = [f"features = [{', '.join(map(_quoted, kept))}]", f"target = {_quoted(target)}"]
    classes = sorted({value for one in by_name[target] for value in one.counts})
    if classes:
        task = "binary" if len(classes) == 2 else "classification"
        lines += [f'task = "{task}"', f"classes = [{', '.join(map(_quoted, classes))}]"]
    else:
        lines.append('task = "regression"')
    if left_out:
        named = [name for name in left_out if IDENTIFIER.fullmatch(name)]
        lines.append(f"# left out: {', '.join(left_out)}")
        lines += [f"group = {_quoted(named[0])} # rows of a patient stay together"] if named else []
    if any(one.missing or one.marks for name in kept for one in by_name[name]):
        lines.append('missing = "indicate"')
    for name in kept:
        lines += _column_lines(name, by_name[name], len(profiles), len(by_name[name]))
    return "\n".join(lines) + "\n"


def _text(columns: Sequence[ColumnProfile]) -> bool:
    return any(one.kind in ("text", "nothing") for one in columns)


def _column_lines(
    name: str, columns: Sequence[ColumnProfile], organisations: int, having: int
) -> list[str]:
    """Return what is proposed for one feature beyond its name."""
    lines = []
    kind = columns[0].kind
    if kind == "category":
        common = Counter(v for one in columns for v, count in one.counts.items() if count >= RARE)
        values = sorted(v for v, count in common.items() if count >= min(2, organisations))
        lines.append(f"categories = [{', '.join(map(_quoted, values))}] # others count as one more")
    elif kind in ("boolean", "date"):
        lines.append(f'kind = "{kind}"')
        if kind == "date" and not ISO.match(columns[0].content):
            lines.append('format = "%d.%m.%Y" # as the dates are written')
    marks = sorted({mark for one in columns for mark in one.marks}, key=str)
    if marks:
        shown = (_quoted(m) if isinstance(m, str) else f"{m:g}" for m in marks)
        lines.append(f"missing_values = [{', '.join(shown)}]")
    if having < organisations:
        lines.append("optional = true")
    return ["", f"[columns.{_quoted(name)}]", *lines] if lines else []


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""Tables for notebooks: as HTML, and as pandas data frames."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any

from fedegoists.errors import MissingDependencyError


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML; numbers with four digits, and nothing in it is read as markup.

    Examples
    --------
    >>> html_table("Gains", ["who", "gain"], [["A<B", 0.25]])[-53:]
    '<tr><td>A&lt;B</td><td>0.25</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_text(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def data_frame(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Any:
    """Return a pandas data frame.

    Raises
    ------
    MissingDependencyError
        If pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise MissingDependencyError("a data frame needs pandas: pip install pandas") from None
    return pandas.DataFrame(list(rows), columns=list(columns))

"""Excel files: read like CSV where openpyxl is installed, and otherwise refused with a way on."""

import datetime
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedegoists.errors import MissingDependencyError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load_own
from tests.learning.datasets.tables import AGES, BINARY, DEFAULTS, INCOMES, in_order

ROWS: list[tuple[Any, ...]] = [
    ("age", "income", "default", None),
    *((a, i, d, None) for a, i, d in zip(AGES, INCOMES, DEFAULTS, strict=True)),
]


def without(tmp_path: Path) -> Path:
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    return tmp_path


def opened(monkeypatch: pytest.MonkeyPatch, **sheets: list[tuple[Any, ...]]) -> None:
    """Let openpyxl, which tests do not need, find some sheets in any file."""

    def load_workbook(path: Path, *, read_only: bool, data_only: bool) -> Any:
        pages = [
            SimpleNamespace(title=title, iter_rows=lambda values_only, rows=rows: iter(rows))
            for title, rows in sheets.items()
        ]
        return SimpleNamespace(worksheets=pages, close=lambda: None)

    monkeypatch.setitem(sys.modules, "openpyxl", SimpleNamespace(load_workbook=load_workbook))


def test_without_openpyxl_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingDependencyError, match=r"run: pip install openpyxl; or save .* CSV"):
        load_own(without(tmp_path), BINARY)


def test_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Excel keeps rows that were emptied.
    rows = [*ROWS[:3], (None, None, None, None), *ROWS[3:], (None, None, None)]
    opened(monkeypatch, data=rows, empty=[])
    assert in_order(load_own(without(tmp_path), BINARY), "a").inputs[0][:, 0].tolist() == AGES


def test_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = without(tmp_path)
    opened(
        monkeypatch, data=[*ROWS[:3], (None, None, None), (7, datetime.datetime(2024, 1, 1), "no")]
    )
    with pytest.raises(DataError, match=r"row 5, column 'income': .* set kind = 'date'"):
        load_own(folder, BINARY)
    opened(monkeypatch, data=ROWS, notes=[("see below",)])
    with pytest.raises(DataError, match=r"one sheet .* not 2 \('data', 'notes'\); save the sheet"):
        load_own(folder, BINARY)
    opened(monkeypatch, data=[*ROWS, (1, 2, "no", "see above")])
    with pytest.raises(DataError, match=r"row 22: a cell beyond the last named column"):
        load_own(folder, BINARY)
    monkeypatch.setitem(sys.modules, "openpyxl", SimpleNamespace())
    with pytest.raises(DataError, match=r"not an Excel file that can be read \(AttributeError"):
        load_own(folder, BINARY)

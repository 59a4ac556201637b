"""CSV files that are read quickly are read like those that are read carefully."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import csv_tables, load_own
from fedegoists.learning.datasets.csv_tables import read_carefully, read_quickly
from fedegoists.learning.datasets.data_tables import WantedColumns
from tests.learning.datasets.tables import BINARY, FILLED, ROWS, changed, csv, in_order

WANTED = WantedColumns(("age", "income", "default"), numbers=("age", "income"))
CELLS = st.sampled_from(
    [
        "1",
        " 2.5 ",
        "-0",
        "1e3",
        "",
        "NA",
        "nan",
        "Null",
        "+4",
        "7_0",
        "x",
        "inf",
        "1e400",
        '"3"',
        "4,5",
        "\u0661",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(CELLS, CELLS, st.sampled_from(["yes", "", "NA", '"a,b"', "ä"])),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_quick_is_careful_or_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    separator: str,
    end: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "quick.csv"
    lines = [separator.join(row) for row in (("age", "income", "default"), *rows)]
    path.write_bytes((end.join(lines) + end).encode())
    quick = read_quickly("a", path, WANTED)
    if quick is None:
        return
    careful = read_carefully("a", path, WANTED)
    for column in ("age", "income"):
        np.testing.assert_array_equal(quick.numbers(column), careful.numbers(column))
    assert quick.texts("default") == careful.texts("default")
    assert quick.names == careful.names
    for k in range(len(careful)):
        assert quick.line_of(k) == careful.line_of(k)


class TestLargeFiles:
    @pytest.fixture(autouse=True)
    def every_file_is_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(csv_tables, "QUICK_BYTES", 0)

    def test_plain_files_are_read_quickly(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(csv([*ROWS[:-1], "49,NA,no"]))
        table = read_quickly("a", tmp_path / "a.csv", WANTED)
        assert table is not None
        assert isinstance(table.columns["income"], np.ndarray)
        assert np.isnan(table.numbers("income")[-1])
        data = load_own(tmp_path, FILLED)
        assert in_order(data, "a").inputs[0][:3, 0].tolist() == [30, 31, 32]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (changed(7, "35,much,no"), "line 7, column 'income': 'much' is not a number"),
            (changed(7, "35,1e400,no"), "line 7, column 'income': 1e400 is not a finite number"),
            (changed(7, "35,3500"), "line 7: 2 values for 3 columns"),
            (changed(7, "\n35,1,maybe"), "line 8, column 'default': the class 'maybe' is not decl"),
            (changed(7, "35,,no"), r"line 7, column 'income': the value is missing \(1 in"),
            (csv(header="age,age,default"), "line 1: 2 columns are called 'age'"),
            ("", "the file is empty"),
        ],
    )
    def test_errors_name_the_line(self, tmp_path: Path, content: str, message: str) -> None:
        (tmp_path / "a.csv").write_text(content)
        with pytest.raises(DataError, match=message):
            load_own(tmp_path, BINARY)

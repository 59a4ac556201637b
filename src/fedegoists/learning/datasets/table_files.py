"""Readers of tables: CSV, Excel, Parquet and NPZ files, and data frames."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedegoists.errors import MissingDependencyError
from fedegoists.install_hints import install_command
from fedegoists.learning.data import Array, DataError
from fedegoists.learning.datasets.csv_tables import read_csv
from fedegoists.learning.datasets.data_tables import Cells, DataTable, WantedColumns, check_is_file
from fedegoists.learning.datasets.excel_tables import read_excel
from fedegoists.learning.datasets.npz import opened_npz


def read_parquet(owner: str, path: Path, wanted: WantedColumns) -> DataTable:
    """Read some columns of a Parquet file."""
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError:
        raise MissingDependencyError(
            f"{path}: reading Parquet files needs pyarrow, which is not installed; run: "
            f"{install_command('train')}"
        ) from None
    where = f"{owner}, {path}"
    check_is_file(path, where)
    try:
        with pq.ParquetFile(path) as file:
            names = tuple(file.schema_arrow.names)
            headers = wanted.found(names, where)
            table = file.read(columns=list(headers.values()))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where}: not a Parquet file that can be read ({error})") from None
    columns: dict[str, Cells] = {}
    for name, header in headers.items():
        column = table.column(header)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            # Also turns missing values into NaN.
            columns[name] = column.cast(pa.float64(), safe=False).to_numpy()
        else:
            columns[name] = column.to_pylist()
    return DataTable(owner, path, names, columns, lambda k: f"row {k + 1}", wanted.words)


def read_npz(owner: str, path: Path, wanted: WantedColumns) -> DataTable:
    """Read some columns of an NPZ file, which has one array for each column."""
    where = f"{owner}, {path}"
    columns: dict[str, Cells] = {}
    with opened_npz(path, where) as file:
        names = tuple(file.files)
        for name, header in wanted.found(names, where).items():
            columns[name] = _column(file[header], f"{where}, column {header!r}")
            first, cells = next(iter(columns.items()))
            if len(columns[name]) != len(cells):
                raise DataError(
                    f"{where}, column {name!r}: {len(columns[name])} rows, but {len(cells)} in "
                    f"column {first!r}"
                )
    return DataTable(owner, path, names, columns, lambda k: f"row {k + 1}", wanted.words)


def _column(array: Array, where: str) -> Cells:
    if array.ndim != 1:
        raise DataError(
            f"{where}: an array of the shape {array.shape}; give one array of one axis for each "
            "column"
        )
    if array.dtype.kind in "iufM":
        return array
    if array.dtype.kind not in "SbU":
        raise DataError(f"{where}: an array of {array.dtype}; give numbers or texts")
    cells: list[object] = array.tolist()
    return [cell.decode(errors="replace") if isinstance(cell, bytes) else cell for cell in cells]


def frame_table(owner: str, frame: Any, wanted: WantedColumns) -> DataTable:
    """Return some columns of a pandas data frame."""
    where = f"{owner}, data frame"
    names = tuple(str(name) for name in frame.columns)
    columns: dict[str, Cells] = {}
    for name, header in wanted.found(names, where).items():
        series = frame.iloc[:, names.index(header)]
        if series.dtype.kind in "iuf":
            columns[name] = series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            columns[name] = series.astype(object).where(series.notna(), None).tolist()
    return DataTable(owner, "data frame", names, columns, lambda k: f"row {k + 1}", wanted.words)


def is_frame(source: object) -> bool:
    """Return whether something is a pandas data frame, without importing pandas."""
    kind = type(source)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"


def read_table(owner: str, source: Any, wanted: WantedColumns) -> DataTable:
    """Read some columns of a file whose ending is one of `READERS`, or of a data frame.

    Errors begin with the `owner` of the table.
    """
    if is_frame(source):
        return frame_table(owner, source, wanted)
    path = Path(os.fspath(source))
    reader = READERS.get(path.suffix.casefold())
    if reader is None:
        raise DataError(
            f"{owner}, {path}: files that end in {path.suffix or 'nothing'!r} cannot be read; save "
            f"the table as {', '.join(READERS)}"
        )
    return reader(owner, path, wanted)


READERS: dict[str, Callable[[str, Path, WantedColumns], DataTable]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
    ".xlsx": read_excel,
}
"""Readers by the endings of files."""

"""Tables in Excel files."""

from pathlib import Path

from fedegoists.errors import MissingDependencyError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.data_tables import Cells, DataTable, WantedColumns, check_is_file


def read_excel(owner: str, path: Path, wanted: WantedColumns) -> DataTable:
    """Read some columns of an Excel file with one sheet, whose first row names the columns.

    Formulas count as the values that Excel computed last.
    """
    try:
        import openpyxl  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise MissingDependencyError(
            f"{path}: reading Excel files needs openpyxl, which is not installed; run: "
            "pip install openpyxl; or save the table as CSV"
        ) from None
    where = f"{owner}, {path}"
    check_is_file(path, where)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
        book.close()
    except Exception as error:  # openpyxl lets errors of zipfile, XML and its own through
        raise DataError(
            f"{where}: not an Excel file that can be read ({type(error).__name__}: {error}); save "
            "the table as CSV"
        ) from None
    used = {title: rows for title, rows in sheets.items() if rows}
    if len(used) != 1:
        titles = ", ".join(map(repr, used)) or "none"
        raise DataError(
            f"{where}: one sheet with a table is needed, not {len(used)} ({titles}); save the "
            "sheet with the data as CSV, or remove the others"
        )
    ((first, *body),) = used.values()
    # Excel remembers rows and columns that were emptied.
    width = max((k for k, name in enumerate(first) if name is not None), default=-1) + 1
    names = tuple("" if name is None else str(name).strip() for name in first[:width])
    headers = wanted.found(names, f"{where}, row 1")
    numbered = [(k, row) for k, row in enumerate(body, 2) if any(c is not None for c in row)]
    for k, row in numbered:
        if any(cell is not None for cell in row[width:]):
            raise DataError(
                f"{where}, row {k}: a cell beyond the last named column; name or empty it"
            )
    columns: dict[str, Cells] = {}
    for name, header in headers.items():
        place = names.index(header)
        columns[name] = [row[place] if place < len(row) else None for _, row in numbered]
    return DataTable(owner, path, names, columns, lambda k: f"row {numbered[k][0]}", wanted.words)

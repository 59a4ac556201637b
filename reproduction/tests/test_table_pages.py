"""The comparisons of a page."""

from reproduction.cell_store import CellStore
from reproduction.cells import Plan, cells_of
from reproduction.reproduced_tables import TABLES
from reproduction.table_writing import write_tables
from reproduction.tests.samples import result, small


def test_a_page_compares_what_is_alike(tmp_path):
    rows = {"local": 0.5, "egomix": 0.8, "egomix-wide": 0.9, "fedavg": 0.6, "fedprox": 0.55,
            "fedavg-wide": 0.3, "fedprox-wide": 0.4, "fedavg-wide+ft": 0.7}  # fmt: skip
    table, plan, store = (
        small(TABLES["company"], rows, 4),
        Plan(repetitions=2, choose=False),
        CellStore(tmp_path),
    )
    for _, cell in cells_of(table, plan):
        store.put(cell, result(rows[cell.variant.name]))
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "tables/company.md").read_text(encoding="utf-8")
    for one, other, gap in (
        ("egomix-wide", "local", 40), ("egomix-wide", "egomix", 10), ("egomix", "fedavg", 20),
        ("egomix-wide", "fedprox-wide", 50), ("egomix", "fedprox-wide", 40),
        ("egomix-wide", "fedavg-wide+ft", 20),
    ):  # fmt: skip
        assert f"- {one} minus {other}: +{gap}.0, 95 % interval" in page
    assert "fedavg-wide:" not in page  # not the best of those
    values = {
        "egomix": 0.5, "egomix-wide, four times": 0.9, "fedavg, four times": 0.6,
        "egomix-wide, sixteen times": 0.8, "fedavg-wide, sixteen times": 0.7,
    }  # fmt: skip
    longer = small(TABLES["longer"], tuple(values))
    for _, cell in cells_of(longer, plan):
        store.put(cell, result(values[cell.variant.name]))
    write_tables([longer], plan, tmp_path)
    page = (tmp_path / "tables/longer.md").read_text(encoding="utf-8")
    assert "- egomix-wide, four times minus fedavg, four times: +30.0" in page
    assert "- egomix-wide, sixteen times minus fedavg-wide, sixteen times: +10.0" in page
    assert "- egomix-wide, four times minus fedavg-wide" not in page
    assert "- egomix minus fedavg, four times" not in page

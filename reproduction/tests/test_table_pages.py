"""The comparisons of a page."""

from reproduction.cell_store import CellStore
from reproduction.cells import Plan, cells_of
from reproduction.reproduced_tables import TABLES
from reproduction.running import left_of
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


def test_a_corrected_page_compares_with_the_best_of_all_rows_and_says_what_is_missing(tmp_path):
    rows = {"local": 0.5, "egomix-0.8-wide+ft": 0.6, "egomix-0.8-wide": 0.75,
            "fedavgm-wide+ft": 0.7, "fedper-wide": 0.65, "slowmo-wide+wise": 0.8,
            "fedfomo-wide": 0.2}  # fmt: skip
    table, plan = small(TABLES["table2-corrected"], rows, 2), Plan(repetitions=2, choose=False)
    store = CellStore(tmp_path)
    cells = [
        (key, cell) for key, cell in cells_of(table, plan) if cell.variant.name != "fedfomo-wide"
    ]
    first, _ = (key for key, _ in table.scenarios)

    def written():
        write_tables([table], plan, tmp_path)
        return (tmp_path / "tables/table2-corrected.md").read_text(encoding="utf-8")

    for key, cell in cells:
        if key == first and (cell.variant.name, cell.repetition) != ("fedper-wide", 1):
            store.put(cell, result(rows[cell.variant.name]))
    page = written()
    # Local is the same cell at all levels of competition, so no column is bare.
    assert page.count("- egomix-0.8-wide minus local: +25.0") == 1
    assert "**α = 0.05, pathological**\n\n- Highest mean: slowmo-wide+wise" in page
    assert "**α = 0.1, pathological**" not in page
    assert "**Not complete**: 6 of 14 numbers have all of their 2 repetitions" in page
    assert "Rows without any number: fedfomo-wide." in page
    assert "Columns without" not in page
    for _, cell in cells:
        store.put(cell, result(rows[cell.variant.name]))
    page = written()
    assert "**Not complete**: 12 of 14 numbers" in page
    assert "- egomix-0.8-wide minus fedavgm-wide+ft: +5.0, 95 % interval" in page
    # Both columns have the same rows, so comparisons are of means over both.
    assert "**α = 0.05, pathological**" not in page
    short, best = page.split("### In short")[1].split("### Numbers")[0].split("Against the best")
    assert "- egomix-0.8-wide minus fedavgm-wide+ft: +5.0, 95 % interval" in short
    assert "- egomix-0.8-wide minus slowmo-wide+wise: -5.0, 95 % interval" in best
    assert "- egomix-0.8-wide+ft minus slowmo-wide+wise: -20.0, 95 % interval" in best
    assert "- local minus" not in best
    for _, cell in cells_of(table, plan):
        store.put(cell, result(rows[cell.variant.name]))
    assert "Not complete" not in written()


def test_a_corrected_page_names_columns_without_any_number(tmp_path):
    table = small(TABLES["table2-corrected"], ("fedavg-wide", "egomix-0.8-wide"), 2)
    plan, store = Plan(repetitions=1, choose=False), CellStore(tmp_path)
    for key, cell in cells_of(table, plan):
        if key["alpha"] == 0.05:
            store.put(cell, result(0.5))
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "tables/table2-corrected.md").read_text(encoding="utf-8")
    assert "Columns without any number: α = 0.1, pathological." in page
    # Participants have 0.1 less and more than their mean.
    assert "| fedavg-wide | 40.0 |" in page.split("### The worst participant")[1]
    assert "Rows without" not in page
    table = small(TABLES["table2-corrected"], ("egomix-0.8-wide", "fedala-wide", "fedfomo-wide"))
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "tables/table2-corrected.md").read_text(encoding="utf-8")
    assert "Only these rows have numbers: egomix-0.8-wide." in page


def test_a_page_has_no_choice_where_the_table_has_no_number(tmp_path):
    table = small(TABLES["table5-corrected"], ("local", "fedprox-wide"), 3)
    plan, store = Plan(repetitions=1), CellStore(tmp_path)
    while left := left_of([table], plan, store):
        for cell in left:
            store.put(cell, result(0.5))
    write_tables([table], plan, tmp_path)
    page = (tmp_path / "tables/table5-corrected.md").read_text(encoding="utf-8")
    assert "| fedprox-wide |  |  | 1 (0.500) |" in page

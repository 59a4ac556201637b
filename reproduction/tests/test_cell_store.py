"""Finished cells: small files, packed files, and several processes."""

import json
import math
from dataclasses import replace

import pytest

from fedegoists.errors import FileError
from reproduction.cell_packing import GROUPS, group_name
from reproduction.cell_store import CellStore, pack_cells
from reproduction.cells import Cell, Plan, cells_of
from reproduction.folder_locks import at_work
from reproduction.packed_lines import ENDING, read_packed
from reproduction.reproduced_tables import TABLES
from reproduction.tests.samples import curves, result, small
from reproduction.variants import VARIANTS


@pytest.fixture
def filled(tmp_path):
    """A folder with cells of three tables, of which Table 5 shows one of Table 1."""
    store = CellStore(tmp_path)
    cells: list[Cell] = []
    for name in ("table1", "table5", "table4"):
        table = small(TABLES[name], ("local", "egomix, four times"), scenarios=6)
        cells += [cell for _, cell in cells_of(table, Plan(repetitions=2))]
    cells = list(dict.fromkeys(cells))
    for number, cell in enumerate(cells):
        done = result(test=0.5 + number / 100)
        own = replace(done, test={"v0": math.nan, "v1": 0.25})
        if cell.decides_rounds:
            own = replace(own, curves=curves(((0.1, math.nan), (0.3, 0.4))))
        about = {**own.about, "pass": [one.digest for one in cells[number // 4 * 4 :][:4]]}
        store.put(cell, replace(own, about=about))
    return tmp_path, cells


def contents(folder, cells):
    """What is recorded of cells, as text: NaN is not equal to itself."""
    store = CellStore(folder)
    return {
        cell.digest: json.dumps(store.load(cell.digest), sort_keys=True, allow_nan=True)
        for cell in cells
    }


def test_packing_loses_nothing(filled):
    folder, cells = filled
    before = contents(folder, cells)
    files = pack_cells(folder)
    assert {path.name.removesuffix(ENDING) for path in files} >= {"table1", "table4", GROUPS}
    assert {path.name for path in (folder / "cells").iterdir()} == {path.name for path in files}
    assert contents(folder, cells) == before
    store = CellStore(folder)
    assert store.digests() == before.keys()
    assert store.missing(cells) == []
    assert store.get(cells[0]).test["v1"] == 0.25
    assert math.isnan(store.get(cells[0]).test["v0"])


def test_packing_again_gives_the_same_bytes_and_new_cells_are_added(filled):
    folder, cells = filled
    first = {path: path.read_bytes() for path in pack_cells(folder)}
    assert {path: path.read_bytes() for path in pack_cells(folder)} == first
    # A cell that is trained again is newer than the packed one.
    store = CellStore(folder)
    store.put(cells[0], replace(result(test=0.9), about=store.get(cells[0]).about))
    further = replace(cells[0], repetition=7)
    store.put(further, result(test=0.7))
    assert CellStore(folder).get(cells[0]).mean == pytest.approx(0.9)
    pack_cells(folder)
    packed = CellStore(folder)
    assert packed.unpacked() == []
    assert packed.get(cells[0]).mean == pytest.approx(0.9)
    assert packed.get(further).mean == pytest.approx(0.7)
    assert len(packed.digests()) == len(cells) + 1


def test_cells_that_no_table_has_are_packed_as_well(tmp_path):
    cell = cells_of(TABLES["table1"], Plan())[0][1]
    odd = replace(cell, variant=replace(VARIANTS["local"], name="unheard of"))
    CellStore(tmp_path).put(odd, result(test=0.5))
    assert [path.name for path in pack_cells(tmp_path)] == [f"other{ENDING}", f"{GROUPS}{ENDING}"]
    assert CellStore(tmp_path).get(odd).mean == pytest.approx(0.5)


def test_a_group_is_listed_once_in_its_order(filled):
    folder, _ = filled
    groups = {
        tuple(json.loads(p.read_text())["about"]["pass"]) for p in CellStore(folder).unpacked()
    }
    pack_cells(folder)
    listed = read_packed(folder / "cells" / f"{GROUPS}{ENDING}")
    assert {tuple(record["cells"]) for record in listed} == groups
    assert all(record["group"] == group_name(record["cells"]) for record in listed)


def test_nothing_is_packed_while_a_process_trains(filled):
    folder, cells = filled
    with at_work(folder), at_work(folder), pytest.raises(FileError, match="other processes work"):
        pack_cells(folder)
    assert len(CellStore(folder).unpacked()) == len(cells)


def test_a_damaged_file_is_named(filled):
    folder, cells = filled
    (path, *_) = pack_cells(folder)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileError, match=f"{path.name}: not a file of packed records"):
        CellStore(folder).get(cells[0])

"""Reproducing from the command line."""

import json

import pytest

from fedegoists.errors import SettingsError
from reproduction.packed_lines import read_packed
from reproduction.reproduced_tables import TABLES
from reproduction.table_commands import _part

ROWS = ("--methods", "local,fedavg,fedavg+ft")
FEW = ("--repetitions", "1", "--steps", "20", *ROWS, "--no-choose", "--out", "r")


def test_reproduce_stop_resume_and_train_again(run, tmp_path):
    code, out, err = run("table7", *FEW, "--time-limit", "0")
    assert (code, err) == (0, "")
    assert "converged: 3 cells are left; go on with --resume" in out
    code, out, _ = run("table7", *FEW)
    assert code == 0
    assert "synthetic-strong, fedavg, converged: 1 repetition: mean" in out
    assert "converged: all cells are done" in out
    assert (
        (tmp_path / "r/tables/table7.csv")
        .read_text()
        .startswith("participant,method,budget,mean,std,n")
    )
    code, _, err = run("table7", *FEW)
    assert code == 2
    assert "r holds 3 of these 3 cells already; use --resume to go on" in err
    before = (tmp_path / "r/tables/table7.csv").read_bytes()
    assert run("table7", *FEW, "--resume")[0] == 0
    assert (tmp_path / "r/tables/table7.csv").read_bytes() == before
    path = next(
        path
        for path in (tmp_path / "r/cells").iterdir()
        if '"fedavg+ft"' in path.read_text(encoding="utf-8")
    )
    command = json.loads(path.read_text())["about"]["command"].replace("DIR", "r")
    code, out, _ = run(*command.split()[3:])
    assert code == 0
    assert "synthetic-strong, competition published, repetition 0, fedavg+ft, converged" in out
    assert "the same numbers" in out
    record = json.loads(path.read_text())
    record["test"]["v1"] = 9.0
    path.write_text(json.dumps(record))
    code, out, _ = run(*command.split()[3:])
    assert code == 1
    assert "other numbers" in out


def test_packed_cells_are_resumed_written_and_trained_again(run, tmp_path):
    arguments = ("tables", "table7", *FEW, "--resume")  # the name of the command may be given
    assert run(*arguments)[0] == 0
    written = {path.name: path.read_bytes() for path in (tmp_path / "r/tables").glob("table7*")}
    code, out, _ = run("pack", "--out", "r")
    assert code == 0
    assert "r/cells/table7.jsonl.gz" in out
    assert not list((tmp_path / "r").rglob("*.json"))
    code, out, _ = run(*arguments)
    assert code == 0
    assert ": mean " not in out  # nothing is trained twice
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "r/tables").glob("table7*")
    } == written
    (record,) = (
        line
        for line in read_packed(tmp_path / "r/cells/table7.jsonl.gz")
        if line["variant"] == "fedavg+ft"
    )
    code, out, _ = run("--cell", record["cell"], "--out", "r")
    assert (code, "the same numbers" in out) == (0, True)


def test_rows_with_commas_in_their_names():
    table = TABLES["longer"]
    for text, names in (
        ("egomix, four times", ["egomix, four times"]),
        ("local,egomix,four times,local, four times", None),
        ("egomix,local", ["egomix", "local"]),
    ):
        rows = [variant.name for variant in _part(table, text, []).variants]
        assert rows == (names or ["local", "egomix, four times", "local, four times"])
    assert _part(table, " ", []).variants == table.variants
    with pytest.raises(
        SettingsError,
        match="longer has no row 'four times'; it has local; egomix; egomix-wide; local,",
    ):
        _part(table, "four times", [])


def test_list_and_what_is_not_known(run):
    code, out, _ = run("--list", "--budget", "both", "--out", "empty")
    assert code == 0
    assert "Table 1: CIFAR-10 by competition" in out
    assert "0 of 1020" in out
    # A budget of its own is named where it is counted, once.
    assert out.count("0 of 450") == 1
    for arguments, message in (
        (("table9",), "unknown table 'table9'; there are table1"),
        (("table6", "--budget", "huge"), "unknown budget 'huge'"),
        (("table6", "--methods", "fedsgd"), "table6 has no row 'fedsgd'"),
        (("table1", "--only", "alpha=0.7"), "table1 has alpha 0.05, 0.1, 0.2, 0.3, 0.4"),
        (("table1", "--only", "gamma=1"), "table1 has columns by alpha, distribution"),
        (("table6", "--only", "alpha=0.2"), "table6 has one column only"),
        (("--cell", "0000"), "r has no such cell: 0000"),
        (("table1", "--repetitions", "1"), "FEDEGOISTS_DATA"),
    ):
        code, _, err = run(*arguments, "--out", "r")
        assert code == 2
        assert message in err


def test_figures(run, tmp_path):
    code, out, _ = run("figures", "--out", "r")
    assert code == 0
    assert "12 figures" in out
    assert "not drawn: labels-cifar10-pathological.png" in out  # there is no data
    names = {path.name for path in (tmp_path / "r/figures").iterdir()}
    assert "coalitions-eicu-final.svg" in names

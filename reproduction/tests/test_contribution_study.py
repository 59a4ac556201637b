"""Free riders and copycats: data, measurements, and the page."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from reproduction import RESULTS, contribution_command
from reproduction.__main__ import _application
from reproduction.contribution_study import (
    BEHAVIOURS,
    CLEAN,
    PARTS,
    MemberResult,
    behaved,
    clean_consortium,
    contribution_page,
    contribution_rows,
    digits_of,
    members_csv,
    read_members,
)
from reproduction.gains_study import GainStudy
from reproduction.real_data_commands import origins


def rows_of(data, k):
    silo = data.silos[k]
    places = np.concatenate([silo.train, silo.validation, silo.test])
    return data.samples.inputs[0][places], data.samples.targets[places]


def test_a_copycat_has_the_samples_of_its_neighbour_and_nobody_else_changes():
    data = digits_of(1, 4)
    copied = behaved(data, "d4", "copycat", 1)
    inputs, targets = rows_of(copied, 3)
    source, known = rows_of(data, 0)
    order, other = (np.lexsort(one.reshape(len(one), -1).T) for one in (inputs, source))
    assert np.array_equal(inputs[order], source[other])
    assert sorted(targets) == sorted(known)
    assert not np.array_equal(inputs, source)  # divided anew
    assert len(copied.silos[3].train) == len(data.silos[0].train)
    for k in range(3):
        assert copied.silos[k] is data.silos[k]
    assert behaved(data, "d4", "no update", 1) is data


def test_clean_consortia_have_their_own_sizes_and_every_second_one_other_rules():
    sizes, spreads = set(), {0: [], 1: []}
    for number in range(6):
        data = clean_consortium(number)
        sizes.add(len(data.silos))
        inputs, targets = data.samples.inputs[0], data.samples.targets
        rules = [
            np.linalg.lstsq(inputs[rows], targets[rows], rcond=None)[0]
            for silo in data.silos
            for rows in [np.concatenate([silo.train, silo.validation, silo.test])]
        ]
        spreads[number % 2].append(np.std(rules, axis=0).mean())
    assert sizes <= {4, 5, 6}
    assert max(spreads[0]) < min(spreads[1])
    assert [k for part in PARTS[CLEAN] for k in part] == list(range(100))


@pytest.fixture(scope="module")
def measured():
    study = GainStudy(lambda *, seed, data_dir: digits_of(seed, 4), "logistic")
    return {
        behaviour: contribution_rows(
            "digits", behaviour, (0,), study=study, steps=200, estimators=()
        )
        for behaviour in BEHAVIOURS
    }


def test_who_gives_nothing_gives_least_and_a_copy_is_seen_on_both_sides(measured):
    for behaviour in ("random labels", "no update"):
        own = [one for one in measured[behaviour] if one.method == "fedavg"]
        assert [one.participant for one in own if one.bad] == ["d1"]
        assert min(own, key=lambda one: one.gave).participant == "d1"
        assert [one.participant for one in own if one.bad and one.accused] == ["d1"]
    redundant = {one.participant: one.redundant for one in measured["copycat"]}
    assert redundant == {"d1": "d2", "d2": "d1", "d3": "", "d4": ""}
    assert not any(one.redundant or one.bad for one in measured["honest"])


def test_the_table_reads_back_and_the_page_counts(measured, tmp_path):
    rows = [one for own in measured.values() for one in own]
    path = tmp_path / "contributions.csv"
    path.write_bytes(members_csv(rows))
    again = read_members(path)
    assert len(again) == len(rows) == 4 * 2 * 4
    assert again[0] == replace(
        rows[0],
        **{name: pytest.approx(getattr(rows[0], name), rel=1e-5)
           for name in MemberResult.__dataclass_fields__
           if isinstance(getattr(rows[0], name), float)},
    )  # fmt: skip
    page = contribution_page(rows, ["Written by a test."])
    (line,) = [one for one in page.splitlines() if one.startswith("| random labels")][:1]
    assert line.startswith("| random labels | 1 of 1 | 1.0 |")
    (line,) = [one for one in page.splitlines() if one.startswith("| copycat")][:1]
    assert "| 1 of 1 | 1 of 3 |" in line
    assert "| transfer | – | – | – | – |" in page
    assert page.endswith("Written by a test.\n")


def test_false_alarms_are_counted_by_consortium():
    one = MemberResult(CLEAN, 0, "honest", "fedavg", "d1", 0, 0, 0, 0.5, 0.1, 0.9, 0, "", 0.9)
    rows = [
        one,
        replace(one, repetition=2, accused=1, redundant="d2"),
        replace(one, repetition=2, participant="d2", redundant="d1", gave=-0.5),
        replace(one, repetition=3, accused=1),
    ]
    page = contribution_page(rows, [])
    assert "| alike | fedavg | 2 | 1 | 1 of 3 | 1 | +0.1667 |" in page
    assert "| rules differ | fedavg | 1 | 1 | 1 of 1 | 0 | +0.5000 |" in page


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    one = MemberResult(CLEAN, 0, "honest", "fedavg", "d1", 0, 0, 0, 0.5, 0.1, 0.9, 0, "", 0.9)
    calls = []

    def rows(task, behaviour, part, device, tell):
        calls.append((task, behaviour, part[0]))
        return [replace(one, repetition=number) for number in part]

    monkeypatch.setattr(contribution_command, "contribution_rows", rows)
    monkeypatch.setitem(PARTS, CLEAN, (range(20), range(20, 40), range(40, 60)))
    for done in (1, 2):
        arguments = ["contributions", CLEAN, "--out", str(tmp_path / "out"), "--parts", "1"]
        result = CliRunner().invoke(_application(), arguments, catch_exceptions=False)
        assert result.exit_code == 0
        assert calls == [(CLEAN, "honest", 20 * k) for k in range(done)]
    found = read_members(tmp_path / "out" / "contributions.csv")
    assert [row.repetition for row in found] == list(range(40))
    page = (tmp_path / "out" / "contributions.md").read_text()
    assert page.count("Written by `python -m reproduction contributions clean` at commit") == 2
    assert CliRunner().invoke(_application(), ["contributions", "nothing"]).exit_code == 2


def test_the_committed_page_is_that_of_the_rows():
    folder = RESULTS / "contributions"
    page = (folder / "contributions.md").read_text(encoding="utf-8")
    rows = read_members(folder / "contributions.csv")
    assert page == contribution_page(rows, origins(page))

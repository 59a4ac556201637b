"""Rows of dataclasses as CSV files."""

from dataclasses import dataclass

import pytest

from reproduction import RESULTS
from reproduction.contribution_study import MemberResult
from reproduction.default_decisions import DefaultDecision
from reproduction.free_rider_study import Loss
from reproduction.image_gains import ImageGain
from reproduction.larger_consortia import MemberGain
from reproduction.participation_study import Ending
from reproduction.principle_one import GraphCost
from reproduction.principle_one_study import MemberCost
from reproduction.record_files import read_records, records_csv
from reproduction.repeated_runs import Measured


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    value: float
    sure: bool


def test_rows_come_back_as_they_were_but_for_digits(tmp_path):
    rows = [Row("North, Ltd", 3, 2 / 3, False), Row("", -1, float("inf"), True)]
    content = records_csv(Row, rows)
    assert content == b'name,count,value,sure\n"North, Ltd",3,0.666667,False\n,-1,inf,True\n'
    (tmp_path / "rows.csv").write_bytes(content)
    again = read_records(Row, tmp_path / "rows.csv")
    assert again == [Row("North, Ltd", 3, 0.666667, False), rows[1]]
    assert read_records(Row, tmp_path / "rows.csv")[1].sure is True


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("contributions/contributions.csv", MemberResult),
        ("decisions/decisions.csv", DefaultDecision),
        ("free-riders/free-riders.csv", Loss),
        ("hospitals/heart.csv", Measured),
        ("label-gains/label-gains.csv", ImageGain),
        ("larger/larger.csv", MemberGain),
        ("participation/participation.csv", Ending),
        ("principle-one/graphs.csv", GraphCost),
        ("principle-one/members.csv", MemberCost),
        ("yardsticks/yardsticks.csv", Measured),
    ],
)
def test_committed_files_are_written_as_they_are(path, kind):
    file = RESULTS / path
    assert records_csv(kind, read_records(kind, file)) == file.read_bytes()

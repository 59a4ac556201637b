"""Predictions go to standard output or a file, remarks to standard error."""

from pathlib import Path

import pytest

from tests.consortium.reports import circle, make


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return make(folder, ["A", "B"], circle(["A", "B"]), seeds=1, methods=("local",)).folder


def test_predictions_are_all_of_standard_output(run, trained):
    Path("rows.csv").write_text("b,id,a\n0.1,x,0.2\n0.3,y,4\n")
    model = str(trained / "models" / "A.safetensors")
    code, out, err = run("predict", model, "rows.csv", "--keep", "id")
    assert code == 0
    head, *rows = out.splitlines()
    assert head == "id,probability of yes"
    assert [row.split(",")[0] for row in rows] == ["x", "y"]
    assert "'a': 1 of 2 values (line 3) is outside the range of the training data" in err
    code, out, err = run("predict", model, "rows.csv", "--out", "found.csv")
    assert code == 0
    assert "Written: found.csv, 2 rows" in out
    assert "columns not used: 'id'" in err
    assert Path("found.csv").read_text().startswith("probability of yes\n")


def test_a_missing_column_is_an_error_that_names_it(run, trained):
    Path("rows.csv").write_text("a\n1\n")
    code, out, err = run("predict", str(trained / "models" / "A.safetensors"), "rows.csv")
    assert (code, out) == (2, "")
    assert "column 'b' is missing" in err
    assert "Traceback" not in err

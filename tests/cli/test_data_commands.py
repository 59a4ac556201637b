"""A hospital's file on the command line: profile, proposed schema, division, problems."""

import pytest

TARGET = 'target = "ill"\ntask = "binary"\nclasses = ["no", "yes"]\n'
HEADER = "patient_id;age;ward;crp;ill"


@pytest.fixture
def hospitals(tmp_path):
    folder = tmp_path / "hospitals"
    folder.mkdir()
    for name in ("Aachen", "Bonn"):
        rows = [
            f"{k};{20 + k % 50 + k / 100};{('icu', 'surgery')[k % 2]};"
            f"{-999 if k % 9 == 0 else k % 37};{'yes' if k % 3 else 'no'}"
            for k in range(80)
        ]
        (folder / f"{name}.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return folder


def test_from_a_file_to_a_schema_to_a_division(run, hospitals):
    code, out, err = run("data", "show", "hospitals")
    assert (code, err) == (0, "")
    for part in ("Aachen: 80 rows", "-999 for", "identifier?", "There is no hospitals/schema.toml"):
        assert part in out
    proposed = out[out.index("features =") :]
    (hospitals / "schema.toml").write_text(proposed)
    code, out, err = run("data", "show", "hospitals")
    assert (code, err) == (0, "")
    assert "Bonn: 80 rows" in out
    assert "Predict 'ill' from 3 features" in out
    assert "validation" in out


def test_all_problems_after_the_profile(run, hospitals):
    (hospitals / "schema.toml").write_text(f'features = ["age", "ward", "crp"]\n{TARGET}')
    code, out, err = run("data", "show", "hospitals")
    assert code == 2
    assert "Aachen: 80 rows" in out
    assert "4 problems:" in err
    for part in ("'icu' is not a number", "-999 looks like a code for a missing value"):
        assert err.count(part) == 2


def test_a_file_that_is_no_table(run, hospitals):
    (hospitals / "Bonn.csv").write_text("a,a\n1,2\n")
    code, out, err = run("data", "show", "hospitals")
    assert code == 2
    assert "Aachen: 80 rows" in out
    assert "organisation 'Bonn'" in err


def test_warnings_are_shown(run, hospitals):
    (hospitals / "schema.toml").write_text(f'features = ["patient_id", "age"]\n{TARGET}')
    code, out, _ = run("data", "show", "hospitals")
    assert code == 0
    assert "look at the data: Aachen: column 'patient_id' looks like an identifier" in out

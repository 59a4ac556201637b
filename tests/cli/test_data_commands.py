"""A hospital's file on the command line: profile, proposed schema, division, problems."""

import pytest

from tests.learning.datasets.pictures import grey, save, scans

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


def test_images_from_a_profile_to_a_schema_to_a_division(run, tmp_path):
    folder = scans(tmp_path / "scans")
    (folder / "schema.toml").unlink()
    save(folder / "North" / "spot" / "large.png", grey(7, (9, 9)))
    save(folder / "North" / "spot" / "again.png", grey(7, (9, 9)))
    (folder / "South" / "blank" / "000.png").write_bytes(b"words")
    code, out, err = run("data", "show", "scans")
    assert (code, err) == (0, "")
    for part in ("blank (12)", "spot (14)", "8 × 8", "9 × 9", "1 copies", "1 unreadable"):
        assert part in " ".join(out.replace("│", " ").split())
    assert "000.png: cannot be opened" in "".join(out.split("\n"))
    (folder / "South" / "blank" / "000.png").unlink()
    (folder / "schema.toml").write_text(out[out.index("task =") :])
    code, out, err = run("data", "show", "scans")
    assert (code, err) == (0, "")
    assert "Predict one of 2 classes from images of 8 × 8" in " ".join(out.split())
    assert "2 images were resized" in out


def test_an_image_folder_with_problems_shows_the_profile_and_all_of_them(run, tmp_path):
    folder = scans(tmp_path / "scans")
    (folder / "North" / "maybe").mkdir()
    (folder / "South" / "spot" / "notes.txt").write_text("seen")
    code, out, err = run("data", "show", "scans")
    assert code == 2
    assert "spot (12)" in " ".join(out.replace("│", " ").split())
    assert "2 problems:" in err
    assert "maybe: no declared class" in err
    assert "notes.txt: not an image" in err

"""Sequences as own data: two tables an organisation, joined by a key and binned by time."""

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load_own
from fedegoists.learning.model_registry import model_for

SCHEMA = """\
features = ["age"]
target = "died"
task = "binary"
classes = ["no", "yes"]
standardise = false

[sequence]
key = "stay"
time = "hour"
features = ["pulse", "lactate"]
steps = 4
step = 2.0
"""


def ward(folder, name="North", count=30, steps=None, older=0):
    """Stays with a pulse of 60 plus the stay's number at hour 0, and of 100 at hours 2 and 3."""
    own = folder / name
    own.mkdir(parents=True)
    patients = [f"{k},{40 + k + older},{'yes' if k % 2 else 'no'}" for k in range(count)]
    (own / "patients.csv").write_text("\n".join(["stay,age,died", *patients]) + "\n")
    if steps is None:
        steps = [line for k in range(count) for line in (
            f"{k},0,{60 + k},", f"{k},2,90,1.5", f"{k},3.5,110,", f"{k},7.9,,{k}")]  # fmt: skip
    (own / "steps.csv").write_text("\n".join(["stay,hour,pulse,lactate", *steps]) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    return folder


def test_measurements_are_means_over_steps_and_stay_with_their_stay(tmp_path):
    data = load_own(ward(tmp_path))
    steps, static = data.samples.inputs
    assert data.shapes == ((4, 2), (1,))
    assert [one.name for one in data.preparation] == ["hourly", "static"]
    for k in (0, 7, 29):
        assert static[k].item() == 40 + k
        expected = [[60 + k, np.nan], [100, 1.5], [np.nan, np.nan], [np.nan, k]]
        assert np.array_equal(steps[k], expected, equal_nan=True)
    assert model_for(data, "lstm").name == "lstm"


def test_scaled_by_own_training_measurements(tmp_path):
    folder = ward(tmp_path)
    (folder / "schema.toml").write_text(SCHEMA.replace("standardise = false\n", ""))
    train = load_own(folder).part("North", "train").inputs[0]
    assert np.nanmean(train[..., 0]) == pytest.approx(0, abs=1e-5)
    assert np.nanstd(train[..., 0]) == pytest.approx(1, abs=1e-5)


def test_rows_of_a_key_stay_where_they_are_whatever_is_measured(tmp_path):
    before = load_own(ward(tmp_path / "a"))
    shuffled = [f"{k},1,7,8" for k in range(29, -1, -1)]
    after = load_own(ward(tmp_path / "b", steps=shuffled, older=1))
    for one, other in zip(before.silos[0].parts, after.silos[0].parts, strict=True):
        assert (one == other).all()


def test_what_is_not_used_is_noted(tmp_path):
    steps = [f"{k},1,7,8" for k in range(28)] + ["99,1,7,8", "3,-1,7,8", "3,8,7,8"]
    data = load_own(ward(tmp_path, steps=steps))
    assert "North: 1 rows of steps.csv are not used: their 'stay' is not in patients.csv" in (
        data.notes
    )
    assert "North: 2 rows of steps.csv are not used: their 'hour' is outside of the steps" in (
        data.notes
    )
    assert "North: 2 of 30 have no measurements" in data.warnings


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("steps.csv", 5, "1,soon,7,8", "line 5, column 'hour': 'soon' is not a number"),
        ("steps.csv", 5, "1,,7,8", "line 5, column 'hour': the time is missing"),
        ("patients.csv", 5, "0,50,no", "line 5, column 'stay': '0' is there already, in line 2"),
        ("patients.csv", 5, ",50,no", "line 5, column 'stay': the key is missing"),
        ("steps.csv", 1, "stay,hour,pulse,x", "'lactate'"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(tmp_path, file, line, text, message):
    path = ward(tmp_path) / "North" / file
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=message):
        load_own(tmp_path)


def test_a_feature_that_is_never_measured_in_the_steps(tmp_path):
    with pytest.raises(DataError, match="no measurement of 'lactate' is in the steps"):
        load_own(ward(tmp_path, steps=[f"{k},1,7," for k in range(30)]))


def test_a_key_is_no_feature(tmp_path):
    folder = ward(tmp_path)
    (folder / "schema.toml").write_text(SCHEMA.replace('["age"]', '["age", "stay"]'))
    with pytest.raises(SettingsError, match="'stay' is the key, and a feature or the target"):
        load_own(folder)

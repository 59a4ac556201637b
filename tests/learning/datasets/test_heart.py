"""Heart disease: codes, missing values and scales, on a few patients of the test's own."""

from pathlib import Path

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning import datasets
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.heart import HOSPITALS, HeartOptions, feature_names, load_heart
from tests.learning.real_data import real_data

#            age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num
HEALTHY = "40.0,1.0,1.0,120.0,200.0,0.0,2.0,150.0,0.0,1.5,3.0,0.0,6.0,0"
ILL = "60,0,4,?,0,?,?,?,?,?,?,?,?,1"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "heart").mkdir()
    for name in HOSPITALS:
        lines = [HEALTHY] * 20 + [ILL] * 20
        (tmp_path / "heart" / f"processed.{name}.data").write_text("\n".join(lines) + "\n")
    return tmp_path


def named(row: np.ndarray, impute: str = "mean") -> dict[str, float]:  # type: ignore[type-arg]
    return dict(zip(feature_names(impute), row.tolist(), strict=True))


def test_a_patient_by_hand(data_dir: Path) -> None:
    data = load_heart(HeartOptions(), data_dir=data_dir)
    assert data.participants == HOSPITALS
    assert set(data.sizes().values()) == {(28, 6, 6)}
    assert data.samples.inputs[0].shape == (160, 32)
    healthy, ill = named(data.samples.inputs[0][0]), named(data.samples.inputs[0][20])
    # 14 patients of 40 and 14 of 60 years: mean 50, deviation 10.
    assert (healthy["age"], ill["age"]) == (-1.0, 1.0)
    assert [healthy[f"cp={code}"] for code in (1, 2, 3, 4)] == [1, 0, 0, 0]
    assert [ill[f"cp={code}"] for code in (1, 2, 3, 4)] == [0, 0, 0, 1]
    assert (healthy["sex"], ill["sex"]) == (1.0, 0.0)
    assert (healthy["thal=6"], healthy["thal missing"]) == (1.0, 0.0)
    # What nobody else has measured differently is filled with the mean, here a constant: 0.
    assert (ill["chol"], ill["chol missing"]) == (0.0, 1.0)
    # A missing code becomes the shares of the codes in training.
    assert [ill[f"restecg={code}"] for code in (0, 1, 2)] == [0.0, 0.0, 1.0]
    assert ill["restecg missing"] == 1.0
    assert data.samples.targets[:40].tolist() == [0] * 20 + [1] * 20


def test_raw_patients_can_be_prepared_as_these_were(data_dir: Path) -> None:
    data = load_heart(HeartOptions(), data_dir=data_dir)
    (prepared,) = data.preparation
    assert prepared.columns == feature_names("mean")
    raw = np.full(32, np.nan)  # the ill patient, as measured
    known = {"age": 60.0, "sex": 0.0, "cp=1": 0.0, "cp=2": 0.0, "cp=3": 0.0, "cp=4": 1.0}
    for k, name in enumerate(prepared.columns):
        raw[k] = known.get(name, 1.0 if name.endswith(" missing") else np.nan)
    given = np.where(np.isnan(raw), prepared.missing[0], raw)
    found = (given - prepared.center[0]) * prepared.factor[0]
    np.testing.assert_allclose(found, data.samples.inputs[0][20], atol=1e-6)


def test_nan_stays_if_asked_for(data_dir: Path) -> None:
    data = load_heart(HeartOptions(impute="none"), data_dir=data_dir)
    assert data.samples.inputs[0].shape == (160, 22)
    ill = named(data.samples.inputs[0][20], "none")
    missing = {name for name, value in ill.items() if np.isnan(value)}
    assert missing == set(feature_names("none")) - {"age", "sex", *(f"cp={k}" for k in range(1, 5))}


def test_a_hospital_is_scaled_by_its_own_training_patients(data_dir: Path) -> None:
    before = load_heart(HeartOptions(), data_dir=data_dir)
    path = data_dir / "heart" / "processed.va.data"
    path.write_text(path.read_text().replace("40.0,", "90.0,"))
    after = load_heart(HeartOptions(), data_dir=data_dir)
    assert np.array_equal(before.samples.inputs[0][:120], after.samples.inputs[0][:120])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (HEALTHY + ",1", "15 values for 14 columns; is the file cut off"),
        (HEALTHY.replace("200.0", "high"), "column 'chol': 'high' is not a number; write"),
        (HEALTHY.replace("40.0", "?"), "column 'age': '\\?' is not a number$"),
        (HEALTHY.replace("6.0,0", "5.0,0"), "column 'thal': '5.0' is not one of 3, 6, 7 or '\\?'$"),
        (HEALTHY[:-1] + "7", "column 'num': '7' is not one of 0, 1, 2, 3, 4$"),
        (HEALTHY.replace("1.5", "inf"), "column 'oldpeak': inf is not a finite number"),
    ],
)
def test_a_damaged_line(data_dir: Path, line: str, message: str) -> None:
    path = data_dir / "heart" / "processed.switzerland.data"
    path.write_text(f"{HEALTHY}\n\n{line}\n")
    with pytest.raises(
        DataError, match=rf"^heart, hospital 'switzerland', .*\.data, line 3(:|,) {message}"
    ):
        load_heart(HeartOptions(), data_dir=data_dir)


def test_missing_and_empty_files(data_dir: Path) -> None:
    path = data_dir / "heart" / "processed.va.data"
    path.write_text("\n")
    with pytest.raises(DataError, match=r"^heart, hospital 'va', .*: the file has no rows"):
        load_heart(HeartOptions(), data_dir=data_dir)
    path.unlink()
    with pytest.raises(
        DataError, match=r"^heart: no file processed\.va\.data in .*; put there processed\.cleve"
    ):
        load_heart(HeartOptions(), data_dir=data_dir)


def test_unknown_way_to_impute(data_dir: Path) -> None:
    message = r"^heart: impute is 'median': input should be 'mean' or 'none'$"
    with pytest.raises(SettingsError, match=message):
        datasets.load("heart", data_dir=data_dir, impute="median")


class TestRealPatients:
    def test_sizes_and_outcomes_of_the_description(self) -> None:
        data = datasets.load("heart", data_dir=real_data("heart"))
        counts = sum(data.label_counts(split) for split in ("train", "validation", "test"))
        # From heart-disease.names: 164, 188, 8 and 51 without disease.
        assert counts.tolist() == [[164, 139], [188, 106], [8, 115], [51, 149]]
        for split in ("train", "validation", "test"):
            assert data.label_counts(split).min() >= 1
        assert np.isfinite(data.samples.inputs[0]).all()

    def test_switzerland_has_no_cholesterol(self) -> None:
        data = datasets.load("heart", data_dir=real_data("heart"))
        swiss = data.samples.inputs[0][data.silo("switzerland").all]
        assert set(swiss[:, feature_names().index("chol missing")]) == {1.0}
        assert set(swiss[:, feature_names().index("chol")]) == {0.0}

    def test_training_patients_have_mean_0_and_deviation_1(self) -> None:
        data = datasets.load("heart", data_dir=real_data("heart"), impute="none")
        for silo in data.silos:
            age = data.samples.inputs[0][silo.train, 0].astype(np.float64)
            assert (age.mean(), age.std()) == pytest.approx((0, 1), abs=1e-5)

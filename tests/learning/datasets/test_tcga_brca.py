"""Survival in six regions: made-up patients, and the real ones where they are at hand."""

from pathlib import Path

import numpy as np
import pytest

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load
from tests.learning.real_data import real_data


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "tcga_brca"
    folder.mkdir()
    patients = ["pid,age_at_index,stage_ii,E,T"]
    division = ["pid,fold,fold2"]
    for k in range(240):
        patients.append(f"P{k},{40 + k % 50},{k % 2},{float(k % 3 == 0)},{float(k % 70)}")
        part = "test" if k % 5 == 0 else "train"
        division.append(f"P{k},{part},{part}_{k % 6}")
    patients.append("P999,50,1,1.0,10.0")  # of no region
    (folder / "brca.csv").write_text("\n".join(patients) + "\n")
    (folder / "train_test_split.csv").write_text("\n".join(division) + "\n")
    return tmp_path


def test_regions_times_and_the_published_test(data_dir: Path) -> None:
    data = load("tcga-brca", data_dir=data_dir)
    assert (data.task, data.classes, len(data.silos)) == ("survival", None, 6)
    assert all(sum(sizes) == 40 for sizes in data.sizes().values())
    for k, silo in enumerate(data.silos):
        assert silo.test.tolist() == [row for row in range(240) if row % 6 == k and row % 5 == 0]
        assert len(silo.validation)
    targets = data.samples.targets
    assert targets[3] == 3.0  # died
    assert targets[1] == -1.0  # known to live then
    assert targets[70] == -0.5
    assert "1 patients who are not in train_test_split.csv are left out" in data.notes


def test_seeds_change_validation_only_unless_asked(data_dir: Path) -> None:
    one, other = (load("tcga-brca", data_dir=data_dir, seed=seed).silos[0] for seed in (0, 1))
    assert one.test.tolist() == other.test.tolist()
    assert one.validation.tolist() != other.validation.tolist()
    one, other = (
        load("tcga-brca", data_dir=data_dir, seed=s, test="hash").silos[0] for s in (0, 1)
    )
    assert one.test.tolist() != other.test.tolist()


def test_damaged_files(data_dir: Path) -> None:
    path = data_dir / "tcga_brca" / "train_test_split.csv"
    path.write_text(path.read_text().replace("train_3", "train_9", 1))
    with pytest.raises(DataError, match=r"patient 'P3' has the fold 'train_9'"):
        load("tcga-brca", data_dir=data_dir)
    path.unlink()
    with pytest.raises(DataError, match=r"no file train_test_split\.csv in .*; put there brca"):
        load("tcga-brca", data_dir=data_dir)


def test_the_real_patients() -> None:
    data = load("tcga-brca", data_dir=real_data("tcga_brca"))
    sizes = [(train + validation, test) for train, validation, test in data.sizes().values()]
    assert sizes == [(248, 63), (156, 40), (164, 42), (129, 33), (129, 33), (40, 11)]
    assert data.shapes == ((39,),)
    assert np.sum(data.samples.targets[np.concatenate([s.all for s in data.silos])] > 0) > 100

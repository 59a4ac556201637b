"""CIFAR among silos: who gets which images, and where they come from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedegoists.errors import SettingsError
from fedegoists.learning import datasets
from fedegoists.learning.data import DataError, SiloedData
from fedegoists.learning.datasets import cifar
from fedegoists.learning.datasets.cifar import CifarOptions, load_cifar
from fedegoists.learning.datasets.location import DATA_VARIABLE
from fedegoists.learning.typed_settings import validated
from tests.learning.datasets.fake_cifar import FakeCifar
from tests.learning.real_data import real_data

FAKE = FakeCifar()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    FAKE.write(folder, "pictures")
    return folder


def same(one: SiloedData, other: SiloedData) -> bool:
    return all(
        np.array_equal(a.of(split), b.of(split))
        for a, b in zip(one.silos, other.silos, strict=True)
        for split in ("train", "validation", "test")
    )


def loaded(data_dir: Path, seed: int = 0, **options: Any) -> SiloedData:
    return load_cifar(FAKE.release, CifarOptions(**options), data_dir=data_dir, seed=seed)


class TestSmall:
    def test_pathological_by_hand(self, data_dir: Path) -> None:
        found = loaded(data_dir)
        assert found.participants == tuple(f"v{i}" for i in range(10))
        # 400 images among ten: 40 each, of which 4 to validate; 10 test images of each class.
        assert set(found.sizes().values()) == {(36, 4, 20)}
        for silo in found.silos:
            labels = found.samples.targets[silo.train]
            assert (np.unique(labels) // 5).tolist() == [0, 1]
            assert set(np.bincount(labels)) == {0, 18}
            assert set(found.samples.targets[silo.test]) == set(labels)
            assert silo.train.max() < 400 <= silo.test.min()
        assert found.notes[1] == "400 of 400 training images are used"

    def test_dirichlet(self, data_dir: Path) -> None:
        found = load_cifar(
            FAKE.release,
            CifarOptions(partition="dirichlet", beta=0.1, participants=7),
            data_dir=data_dir,
        )
        assert len(found.silos) == 7
        assert sum(size.train + size.validation for size in found.sizes().values()) == 400
        assert min(size.train + size.validation for size in found.sizes().values()) >= 10
        train, test = found.label_counts("train"), found.label_counts("test")
        # Nobody is tested on a class it has none of.
        assert not np.any((test > 0) & (train + found.label_counts("validation") == 0))

    @pytest.mark.parametrize(
        "given",
        [
            {"partition": "dirichlet", "beta": 0.1},
            {"partition": "dirichlet", "beta": 0.5},
            {"partition": "pathological", "block": 5},
        ],
    )
    def test_pooled_as_in_pfllib(self, data_dir: Path, given: dict[str, Any]) -> None:
        """All 500 images are divided; each silo keeps a quarter of its own for its test."""
        found = loaded(data_dir, participants=10, pooled=True, **given)
        everything = np.concatenate(
            [silo.of(split) for silo in found.silos for split in ("train", "validation", "test")]
        )
        assert len(np.unique(everything)) == len(everything) == 500
        for silo in found.silos:
            own = len(silo.train) + len(silo.validation) + len(silo.test)
            assert len(silo.test) == pytest.approx(own / 4, abs=1)
            assert set(found.samples.targets[silo.test]) <= set(found.samples.targets[silo.train])
        assert found.notes[1:] == (
            "500 of 500 images are used",
            "each silo is tested on a quarter of its own images",
        )

    def test_larger_blocks_are_fewer_classes_for_each(self, data_dir: Path) -> None:
        found = loaded(data_dir, block=10, participants=20, pooled=True)
        for silo in found.silos:
            assert len(np.unique(found.samples.targets[silo.train])) == 1
        with pytest.raises(SettingsError, match="block"):
            validated(CifarOptions, {"block": 0}, "cifar10")

    def test_the_seed_decides(self, data_dir: Path) -> None:
        one, again, other = (loaded(data_dir, seed=s) for s in (1, 1, 2))
        assert same(one, again)
        assert not same(one, other)

    def test_pixels_are_shared_between_loads(self, data_dir: Path) -> None:
        one, other = (loaded(data_dir, seed=s) for s in (1, 2))
        assert np.shares_memory(one.samples.inputs[0], other.samples.inputs[0])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"partition": "iid"},
                "^cifar10: partition is 'iid': input should be 'path",
            ),
            ({"participants": 0}, "^cifar10: participants is 0: input should be greater than or"),
            ({"participants": 5001}, "participants is 5001: input should be less than or equal to"),
            ({"participants": 2.5}, "participants is 2.5: input should be a valid integer"),
            ({"partition": "dirichlet", "beta": 0}, "^cifar10: beta is 0: input should be greater"),
            ({"seed": -1}, "^seed is -1"),
            ({"partition": "dirichlet", "participants": 41}, "400 samples are not enough for 41"),
        ],
    )
    def test_options_out_of_range(
        self, data_dir: Path, options: dict[str, Any], message: str
    ) -> None:
        given = {key: value for key, value in options.items() if key != "seed"}
        with pytest.raises(SettingsError, match=message):
            load_cifar(
                FAKE.release,
                validated(CifarOptions, given, "cifar10"),
                data_dir=data_dir,
                seed=options.get("seed", 0),
            )


class TestDownload:
    def test_asked_for_and_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def fetch(url: str, sha256: str, path: Path) -> None:
            asked.append((url, sha256))
            path.parent.mkdir()
            path.write_bytes(FAKE.archive)

        monkeypatch.setattr(cifar, "download", fetch)
        found = load_cifar(FAKE.release, CifarOptions(download=True), data_dir=tmp_path)
        assert len(found.samples) == 500
        assert asked == [(FAKE.release.url, FAKE.release.sha256)]
        load_cifar(FAKE.release, CifarOptions(download=True), data_dir=tmp_path, seed=1)
        assert len(asked) == 1

    def test_not_asked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cifar, "download", lambda *_: pytest.fail("fetched unasked"))
        with pytest.raises(DataError, match=r"pass download=True to download it$"):
            load_cifar(FAKE.release, CifarOptions(), data_dir=tmp_path)


class TestLocation:
    def test_no_folder_at_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(DATA_VARIABLE, raising=False)
        with pytest.raises(
            DataError,
            match=r"^cifar10: no folder with data was given; make one, put into its sub-folder "
            r"'cifar10' cifar-10-python\.tar\.gz from https://www\.cs\.toronto\..*, and give it "
            r"as --data-dir \(in Python, data_dir\) or in the environment variable "
            r"FEDEGOISTS_DATA$",
        ):
            datasets.load("cifar10")

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"^cifar100: the folder .*none does not exist; make"):
            datasets.load("cifar100", data_dir=tmp_path / "none")

    def test_the_variable_and_the_option_that_overrides_it(
        self, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(DATA_VARIABLE, str(data_dir))
        assert len(load_cifar(FAKE.release, CifarOptions()).samples) == 500
        with pytest.raises(DataError, match=r"no images in"):
            load_cifar(FAKE.release, CifarOptions(), data_dir=tmp_path)


class TestRealImages:
    @pytest.mark.parametrize(("name", "held"), [("cifar10", 2), ("cifar100", 20)])
    def test_pathological(self, name: str, held: int) -> None:
        found = datasets.load(name, data_dir=real_data(name))
        assert set(found.sizes().values()) == {(4500, 500, 2000)}
        assert set(np.count_nonzero(found.label_counts(), axis=1)) == {held}
        assert len(np.unique(np.concatenate([silo.train for silo in found.silos]))) == 45000

    @pytest.mark.parametrize("name", ["cifar10", "cifar100"])
    @pytest.mark.parametrize(("beta", "participants"), [(0.5, 10), (0.01, 100)])
    def test_dirichlet(self, name: str, beta: float, participants: int) -> None:
        found = datasets.load(
            name,
            data_dir=real_data(name),
            partition="dirichlet",
            beta=beta,
            participants=participants,
        )
        sizes = found.sizes().values()
        assert sum(size.train + size.validation for size in sizes) == 50000
        assert min(size.train + size.validation for size in sizes) >= 10
        assert min(size.validation for size in sizes) >= 1
        assert min(size.test for size in sizes) >= 100

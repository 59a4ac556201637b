"""The three forms of CIFAR: equal images from each, and none from a damaged one."""

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.cifar_files import (
    CIFAR10,
    CIFAR100,
    ImageFiles,
    Release,
    read_images,
)
from tests.learning.datasets.fake_cifar import FakeCifar, images, md5, webp_pictures
from tests.learning.real_data import real_data

FAKE = FakeCifar()
FORMS = ("archive", "folder", "pictures")


@pytest.mark.parametrize("form", FORMS)
def test_the_images_and_labels_are_those_written(tmp_path: Path, form: str) -> None:
    found = read_images(FAKE.release, FAKE.write(tmp_path, form))
    assert found.pixels.shape == (500, 32, 32, 3)
    assert found.pixels.flags.c_contiguous
    assert np.array_equal(found.pixels, np.concatenate(FAKE.pixels))
    assert found.labels.tolist() == np.concatenate(FAKE.labels).tolist()
    assert found.labels.dtype == np.int64
    assert found.train_size == 400


def test_asking_again_reads_nothing_and_the_images_cannot_be_changed(tmp_path: Path) -> None:
    folder = FAKE.write(tmp_path, "folder")
    first = read_images(FAKE.release, folder)
    assert read_images(FAKE.release, folder) is first
    with pytest.raises(ValueError, match=r"read-only"):
        first.pixels[0] = 0


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"^cifar10: no images in .*; put there fake-python\.tar\.gz from https://.*, or "
        r"the folder fake-batches-py that it unpacks to; or pass download=True",
    ):
        read_images(FAKE.release, tmp_path)


def test_one_of_the_files_is_missing(tmp_path: Path) -> None:
    pictures = FAKE.write(tmp_path, "pictures")
    (pictures / "fake_train_b.npz").unlink()
    with pytest.raises(DataError, match=r"no file fake_train_b\.npz in"):
        read_images(FAKE.release, pictures)
    batches = FAKE.write(tmp_path, "folder")
    (batches / "fake-batches-py" / "data_batch_2").unlink()
    with pytest.raises(DataError, match=r"no batch data_batch_2 in"):
        read_images(FAKE.release, batches)


def test_a_changed_batch_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = FAKE.write(tmp_path, "folder")
    # Would fail in another way if it were unpickled.
    (folder / "fake-batches-py" / "test_batch").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    ((_, expected),) = FAKE.release.test.batches
    with pytest.raises(DataError, match=rf"test_batch: the MD5 sum is \w+, not {expected}: the"):
        read_images(FAKE.release, folder)


def test_a_changed_picture_is_refused(tmp_path: Path) -> None:
    folder = FAKE.write(tmp_path, "pictures")
    pixels = FAKE.pixels[1].copy()
    pixels[17, 3, 4, 0] ^= 1
    (folder / "fake_train_b.npz").write_bytes(webp_pictures(pixels, FAKE.labels[1]))
    with pytest.raises(
        DataError, match=r"fake_train_a\.npz and .*fake_train_b\.npz, decoded: the MD5 sum is"
    ):
        read_images(FAKE.release, folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an NPZ file that can be read"),
        (b"PK\x03\x04 cut off", "not an NPZ file"),
        (webp_pictures(images(2, 0), [0, 1])[:-50], "not an NPZ file"),
        (webp_pictures(images(2, 0), [0, 10]), "its labels are not 2 whole numbers from 0 to 9"),
        (webp_pictures(images(2, 0), [0, 1, 2]), "its labels are not 2 whole numbers"),
    ],
    ids=["empty", "not a zip", "cut off", "a label too large", "a label too many"],
)
def test_damaged_pictures(tmp_path: Path, content: bytes, message: str) -> None:
    folder = FAKE.write(tmp_path, "pictures")
    (folder / "fake_train_a.npz").write_bytes(content)
    with pytest.raises(DataError, match=rf"fake_train_a\.npz: {message}"):
        read_images(FAKE.release, folder)


def test_pictures_that_are_none_or_of_another_size(tmp_path: Path) -> None:
    folder = FAKE.write(tmp_path, "pictures")
    path = folder / "fake_test.npz"
    np.savez(path, webp=np.zeros(9, np.uint8), off=np.array([0, 9]), y=np.zeros(1, np.uint8))
    with pytest.raises(DataError, match=r"fake_test\.npz: its pictures cannot be decoded"):
        read_images(FAKE.release, folder)
    wide = images(2, 0).reshape(1, 64, 32, 3).transpose(0, 2, 1, 3)  # 64 points wide
    out = io.BytesIO()
    from PIL import Image

    Image.fromarray(wide[0]).save(out, "WEBP", lossless=True)
    packed = np.frombuffer(out.getvalue(), np.uint8)
    np.savez(path, webp=packed, off=np.array([0, len(packed)]), y=np.zeros(2, np.uint8))
    with pytest.raises(DataError, match=r"cannot be decoded \(a picture of 64 × 32 points\)"):
        read_images(FAKE.release, folder)


def test_pickles_are_not_accepted_inside_npz(tmp_path: Path) -> None:
    folder = FAKE.write(tmp_path, "pictures")
    np.savez(folder / "fake_test.npz", webp=np.array([{}]), off=[0], y=[0])
    with pytest.raises(DataError, match=r"fake_test\.npz: not an NPZ file .*allow_pickle=False"):
        read_images(FAKE.release, folder)


@pytest.mark.parametrize("content", [b"", b"no archive", FAKE.archive[:5000]])
def test_damaged_archives(tmp_path: Path, content: bytes) -> None:
    folder = FAKE.write(tmp_path, "archive")
    (folder / "fake-python.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"fake-python\.tar\.gz: the archive cannot be read \("):
        read_images(FAKE.release, folder)


def test_an_archive_with_links_and_paths_to_elsewhere_writes_nothing(tmp_path: Path) -> None:
    folder = FAKE.write(tmp_path, "archive")
    with tarfile.open(folder / "fake-python.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("fake-batches-py/data_batch_1")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("../../escaped"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=r"no batch data_batch_1 in"):
        read_images(FAKE.release, folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_batch_without_labels_or_images(tmp_path: Path) -> None:
    folder = FAKE.write(tmp_path, "folder")
    with pytest.raises(DataError, match=r"data_batch_1: it has no list 'fine_labels'"):
        read_images(replace(FAKE.release, label_key=b"fine_labels"), folder)
    empty = b"\x80\x02}."
    for name in FAKE.batches:
        (folder / "fake-batches-py" / name).write_bytes(empty)
    release = replace(
        FAKE.release, train=replace(FAKE.release.train, batches=(("data_batch_1", md5(empty)),))
    )
    with pytest.raises(DataError, match=r"it has no images of 3,072 numbers under 'data'"):
        read_images(release, folder)


class TestRealFiles:
    @pytest.mark.parametrize("release", [CIFAR10, CIFAR100], ids=lambda release: release.name)
    def test_all_images_with_their_checksums(self, release: Release) -> None:
        folder = real_data(release.name) / release.name
        found = read_images(release, folder.resolve())
        assert found.pixels.shape == (60000, 32, 32, 3)
        assert found.pixels.dtype == np.uint8
        assert found.train_size == 50000
        each = 50000 // release.classes
        assert set(np.bincount(found.labels[:50000])) == {each}
        assert set(np.bincount(found.labels[50000:])) == {each // 5}

    def test_a_wrong_checksum_is_noticed(self) -> None:
        folder = real_data("cifar10") / "cifar10"
        wrong = replace(CIFAR10, train=ImageFiles((), ("cifar10_test.npz",), "0" * 32))
        with pytest.raises(
            DataError, match=r"the MD5 sum is 6d2714505047e13831cd876923568712, not"
        ):
            read_images(wrong, folder)

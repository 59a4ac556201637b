"""From the files of CIFAR-10 and CIFAR-100, in any of their three forms, to images and labels.

The forms are the official archive, the folder that it unpacks to, and NPZ files in which every 500
images stand below each other in one lossless WebP picture. Every file or image array is compared
with its known checksum, so what is returned is the data set itself.
"""

import functools
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FileError, MissingDependencyError
from fedegoists.learning.data import DataError, Indices
from fedegoists.learning.datasets.location import missing_files
from fedegoists.learning.datasets.npz import opened_npz
from fedegoists.learning.datasets.pickled import read_batch

__all__ = ["CIFAR10", "CIFAR100", "Images", "Release", "read_images"]

SIDE, CHANNELS = 32, 3


@dataclass(frozen=True)
class Checked:
    """A file's name and the MD5 sum it must have."""

    name: str
    md5: str


@dataclass(frozen=True)
class Pictures:
    """NPZ files of WebP pictures, and the MD5 sum of all their decoded images together."""

    names: tuple[str, ...]
    md5: str


@dataclass(frozen=True)
class Release:
    """A published data set of images: its files, their checksums, and how labels are called."""

    name: str
    classes: int
    label_key: bytes
    url: str
    sha256: str
    folder: str
    train: tuple[Checked, ...]
    test: tuple[Checked, ...]
    train_pictures: Pictures
    test_pictures: Pictures

    @property
    def archive(self) -> str:
        """The file name of the official archive."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def needs(self) -> str:
        """What a user shall put into the data set's folder."""
        return (
            f"{self.archive} from {self.url}, or the folder {self.folder} that it unpacks to; or "
            "pass download=True to have it fetched"
        )


CIFAR10 = Release(
    "cifar10",
    10,
    b"labels",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "cifar-10-batches-py",
    (
        Checked("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        Checked("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        Checked("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        Checked("data_batch_4", "634d18415352ddfa80567beed471001a"),
        Checked("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ),
    (Checked("test_batch", "40351d587109b95175f43aff81a1287e"),),
    Pictures(("cifar10_train_a.npz", "cifar10_train_b.npz"), "17e2cb5a4119d89a4a13e02b91701bff"),
    Pictures(("cifar10_test.npz",), "6d2714505047e13831cd876923568712"),
)

# The pictures of CIFAR-100 hold the official images in another order, so silos drawn from them and
# from the official files with the same seed hold different images.
CIFAR100 = Release(
    "cifar100",
    100,
    b"fine_labels",
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    "cifar-100-python",
    (Checked("train", "16019d7e3df5f24257cddd939b257f8d"),),
    (Checked("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
    Pictures(("cifar100_train_a.npz", "cifar100_train_b.npz"), "6377cf4b9a9b40bc8dcc73ec1e9718ff"),
    Pictures(("cifar100_test.npz",), "887b55e46355ced0b55b00db6fe751f3"),
)


@dataclass(frozen=True, eq=False)
class Images:
    """All images (number × 32 × 32 × 3, the training images first) and their classes."""

    pixels: npt.NDArray[np.uint8]
    labels: Indices
    train_size: int


@functools.lru_cache(maxsize=2)
def read_images(release: Release, folder: Path) -> Images:
    """Read all images of a release; asking again in the same process costs nothing.

    Parameters
    ----------
    release : Release
        `CIFAR10` or `CIFAR100`.
    folder : Path
        Where one of the three forms lies. If there are several, pictures come before the
        unpacked folder and that before the archive, the order of how fast they are read.

    Raises
    ------
    DataError
        If a file is missing, damaged, or has another checksum.
    """
    pictures = (*release.train_pictures.names, *release.test_pictures.names)
    absent = [name for name in pictures if not (folder / name).is_file()]
    if not absent:
        halves = [
            _from_pictures(release, folder, side)
            for side in (release.train_pictures, release.test_pictures)
        ]
    elif (folder / release.folder).is_dir() or (folder / release.archive).is_file():
        halves = _from_batches(release, folder)
    else:
        found = "no images" if len(absent) == len(pictures) else f"no file {absent[0]}"
        raise missing_files(release.name, folder, found, release.needs)
    # Concatenating keeps the order in memory, which in batches is not that of the axes.
    pixels = np.ascontiguousarray(np.concatenate([half[0] for half in halves]))
    labels = np.concatenate([half[1] for half in halves])
    # What is shared by all who ask must not be changed by one of them.
    pixels.flags.writeable = labels.flags.writeable = False
    return Images(pixels, labels, len(halves[0][1]))


_Half = tuple[npt.NDArray[np.uint8], Indices]


def _from_batches(release: Release, folder: Path) -> list[_Half]:
    wanted = (*release.train, *release.test)
    if (folder / release.folder).is_dir():
        files = _files_of_folder(folder / release.folder, wanted)
    else:
        files = _files_of_archive(folder / release.archive, release, wanted)
    batches: dict[str, _Half] = {}
    for batch, where, content in files:
        # Compared before it is read: only the published bytes are unpickled.
        _check_md5(content, batch.md5, where)
        batches[batch.name] = _half(read_batch(content, where), release, where)
    missing = [batch.name for batch in wanted if batch.name not in batches]
    if missing:
        raise missing_files(release.name, folder, f"no batch {missing[0]}", release.needs)
    return [
        (
            np.concatenate([batches[batch.name][0] for batch in side]),
            np.concatenate([batches[batch.name][1] for batch in side]),
        )
        for side in (release.train, release.test)
    ]


def _files_of_folder(
    folder: Path, wanted: tuple[Checked, ...]
) -> Iterator[tuple[Checked, str, bytes]]:
    for batch in wanted:
        path = folder / batch.name
        try:
            yield batch, str(path), path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({error.strerror})") from None


def _files_of_archive(
    path: Path, release: Release, wanted: tuple[Checked, ...]
) -> Iterator[tuple[Checked, str, bytes]]:
    """Return the batches in an archive; nothing is unpacked to disk."""
    by_name = {f"{release.folder}/{batch.name}": batch for batch in wanted}
    try:
        with tarfile.open(path, "r|*") as archive:  # a stream: decompressed only once
            for member in archive:
                batch = by_name.get(member.name)
                file = archive.extractfile(member) if batch and member.isfile() else None
                if batch and file:
                    yield batch, f"{path}, {member.name}", file.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(
            f"{path}: the archive cannot be read ({error}); fetch it anew from {release.url}"
        ) from None


def _half(batch: dict[bytes, Any], release: Release, where: str) -> _Half:
    data, labels = batch.get(b"data"), batch.get(release.label_key)
    per_image = CHANNELS * SIDE * SIDE
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != per_image:
        raise DataError(f"{where}: it has no images of {per_image:,} numbers under 'data'")
    if not isinstance(labels, list):
        raise DataError(f"{where}: it has no list {release.label_key.decode()!r}")
    # An image is stored one colour after the other.
    pixels = data.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return pixels, _labels(labels, len(pixels), release, where)


def _from_pictures(release: Release, folder: Path, pictures: Pictures) -> _Half:
    pixels, labels = [], []
    for name in pictures.names:
        path = folder / name
        with opened_npz(path, str(path)) as arrays:
            packed, offsets, classes = arrays["webp"], arrays["off"], arrays["y"]
        pixels.append(_decoded(packed, offsets, path))
        labels.append(_labels(classes, len(pixels[-1]), release, str(path)))
    together = np.concatenate(pixels)
    where = " and ".join(str(folder / name) for name in pictures.names)
    _check_md5(together.data, pictures.md5, f"{where}, decoded")
    return together, np.concatenate(labels)


def _decoded(
    packed: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], path: Path
) -> npt.NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError(
            "decoding images needs Pillow, which is not installed; run: "
            "pip install 'fedegoists[train]'"
        ) from None

    def images(start: int, stop: int) -> npt.NDArray[np.uint8]:
        with Image.open(io.BytesIO(packed[start:stop].tobytes()), formats=["WEBP"]) as picture:
            if picture.width != SIDE or picture.height % SIDE:
                raise ValueError(f"a picture of {picture.width} × {picture.height} points")
            return np.asarray(picture.convert("RGB")).reshape(-1, SIDE, SIDE, CHANNELS)

    try:
        # Decoding releases the interpreter lock for part of the time.
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            parts = list(pool.map(images, offsets[:-1].tolist(), offsets[1:].tolist()))
        return np.concatenate(parts)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path}: its pictures cannot be decoded ({error}); copy the file anew"
        ) from None


def _labels(labels: Any, count: int, release: Release, where: str) -> Indices:
    classes = np.asarray(labels)
    if (
        classes.shape != (count,)
        or classes.dtype.kind not in "iu"
        or (count and not 0 <= classes.min() <= classes.max() < release.classes)
    ):
        raise DataError(
            f"{where}: its labels are not {count} whole numbers from 0 to {release.classes - 1}"
        )
    return classes.astype(np.int64)


def _check_md5(content: bytes | memoryview, expected: str, where: str) -> None:
    # MD5 is what has been published for these files; it finds damage, and `download` compares
    # SHA-256.
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(
            f"{where}: the MD5 sum is {found}, not {expected}: the file is damaged or another one; "
            "copy it anew"
        )

"""Images and labels of CIFAR-10 and CIFAR-100, from any of three forms of their files.

The forms are the official archive, the folder that it unpacks to, and NPZ files in which every 500
images are stacked in one lossless WebP picture. Every file or image array is compared with its
published checksum.
"""

import functools
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedegoists.errors import MissingDependencyError
from fedegoists.install_hints import install_command
from fedegoists.learning.data import DataError, Indices
from fedegoists.learning.datasets.location import missing_files
from fedegoists.learning.datasets.npz import opened_npz
from fedegoists.learning.datasets.pickled import read_batch

SIDE, CHANNELS = 32, 3
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ImageFiles:
    """The files of the training or the test images.

    Attributes
    ----------
    batches : tuple of (str, str)
        The name and MD5 sum of each official batch.
    pictures : tuple of str
        The names of the NPZ files of WebP pictures.
    pixels_md5 : str
        The MD5 sum of all images decoded from the pictures.
    """

    batches: tuple[tuple[str, str], ...]
    pictures: tuple[str, ...]
    pixels_md5: str


@dataclass(frozen=True)
class Release:
    """A published data set of images: its files, their checksums, and the key of its labels."""

    name: str
    classes: int
    label_key: bytes
    url: str
    sha256: str
    folder: str
    train: ImageFiles
    test: ImageFiles

    @property
    def archive(self) -> str:
        """The file name of the official archive."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def needs(self) -> str:
        """The files to put into the data set's folder, for errors."""
        return (
            f"{self.archive} from {self.url}, or the folder {self.folder} that it unpacks to; or "
            "pass download=True to download it"
        )


CIFAR10 = Release(
    "cifar10",
    10,
    b"labels",
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "cifar-10-batches-py",
    ImageFiles(
        (
            ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
            ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            ("data_batch_4", "634d18415352ddfa80567beed471001a"),
            ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        ),
        ("cifar10_train_a.npz", "cifar10_train_b.npz"),
        "17e2cb5a4119d89a4a13e02b91701bff",
    ),
    ImageFiles(
        (("test_batch", "40351d587109b95175f43aff81a1287e"),),
        ("cifar10_test.npz",),
        "6d2714505047e13831cd876923568712",
    ),
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
    ImageFiles(
        (("train", "16019d7e3df5f24257cddd939b257f8d"),),
        ("cifar100_train_a.npz", "cifar100_train_b.npz"),
        "6377cf4b9a9b40bc8dcc73ec1e9718ff",
    ),
    ImageFiles(
        (("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
        ("cifar100_test.npz",),
        "887b55e46355ced0b55b00db6fe751f3",
    ),
)


@dataclass(frozen=True, eq=False)
class Images:
    """All images (number × 32 × 32 × 3, the training images first) and their classes."""

    pixels: Pixels
    labels: Indices
    train_size: int


@functools.lru_cache(maxsize=2)
def read_images(release: Release, folder: Path) -> Images:
    """Read all images of a release; the last two releases are kept in memory.

    Of several forms in the folder, pictures are read first, then the unpacked folder, then the
    archive, because that is how fast they are read.

    Raises
    ------
    DataError
        If a file is missing, damaged, or has another checksum.
    """
    pictures = (*release.train.pictures, *release.test.pictures)
    absent = [name for name in pictures if not (folder / name).is_file()]
    if not absent:
        halves = [_from_pictures(release, folder, half) for half in (release.train, release.test)]
    elif (folder / release.folder).is_dir() or (folder / release.archive).is_file():
        halves = _from_batches(release, folder)
    else:
        found = "no images" if len(absent) == len(pictures) else f"no file {absent[0]}"
        raise missing_files(release.name, folder, found, release.needs)
    # Concatenating keeps the memory order, which in batches differs from that of the axes.
    pixels = np.ascontiguousarray(np.concatenate([half[0] for half in halves]))
    labels = np.concatenate([half[1] for half in halves])
    # All callers share these arrays, so none may change them.
    pixels.flags.writeable = labels.flags.writeable = False
    return Images(pixels, labels, len(halves[0][1]))


def _from_batches(release: Release, folder: Path) -> list[tuple[Pixels, Indices]]:
    expected = dict((*release.train.batches, *release.test.batches))
    batches: dict[str, tuple[Pixels, Indices]] = {}
    for name, where, content in _batch_files(release, folder, expected):
        # Compared before it is read: only the published bytes are unpickled.
        _check_md5(content, expected[name], where)
        batches[name] = _batch(read_batch(content, where), release, where)
    missing = [name for name in expected if name not in batches]
    if missing:
        raise missing_files(release.name, folder, f"no batch {missing[0]}", release.needs)
    halves = []
    for half in (release.train, release.test):
        pixels, labels = zip(*(batches[name] for name, _ in half.batches), strict=True)
        halves.append((np.concatenate(pixels), np.concatenate(labels)))
    return halves


def _batch_files(
    release: Release, folder: Path, wanted: Mapping[str, str]
) -> Iterator[tuple[str, str, bytes]]:
    """Return name, place and content of the batches; nothing is unpacked to disk."""
    unpacked, path = folder / release.folder, folder / release.archive
    try:
        if unpacked.is_dir():
            for path in (unpacked / name for name in wanted):
                if path.is_file():
                    yield path.name, str(path), path.read_bytes()
            return
        with tarfile.open(path, "r|*") as archive:  # a stream: decompressed only once
            for member in archive:
                name = member.name.removeprefix(f"{release.folder}/")
                if member.isfile() and member.name != name and name in wanted:
                    file = archive.extractfile(member)
                    assert file is not None  # of a regular file
                    yield name, f"{path}, {member.name}", file.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        what = "the file" if unpacked.is_dir() else "the archive"
        raise DataError(
            f"{path}: {what} cannot be read ({error}); download it again from {release.url}"
        ) from None


def _batch(batch: Mapping[bytes, object], release: Release, where: str) -> tuple[Pixels, Indices]:
    data, labels = batch.get(b"data"), batch.get(release.label_key)
    per_image = CHANNELS * SIDE * SIDE
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != per_image:
        raise DataError(f"{where}: it has no images of {per_image:,} numbers under 'data'")
    if not isinstance(labels, list):
        raise DataError(f"{where}: it has no list {release.label_key.decode()!r}")
    # An image is stored one colour after the other.
    pixels = data.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return pixels, _labels(labels, len(pixels), release, where)


def _from_pictures(release: Release, folder: Path, half: ImageFiles) -> tuple[Pixels, Indices]:
    pixels, labels = [], []
    for name in half.pictures:
        path = folder / name
        with opened_npz(path, str(path)) as arrays:
            packed, offsets, classes = arrays["webp"], arrays["off"], arrays["y"]
        pixels.append(_decoded(packed, offsets, path))
        labels.append(_labels(classes, len(pixels[-1]), release, str(path)))
    together = np.concatenate(pixels)
    where = " and ".join(str(folder / name) for name in half.pictures)
    _check_md5(together.data, half.pixels_md5, f"{where}, decoded")
    return together, np.concatenate(labels)


def _decoded(packed: Pixels, offsets: Indices, path: Path) -> Pixels:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError(
            f"decoding images needs Pillow, which is not installed; run: {install_command('train')}"
        ) from None

    def images(start: int, stop: int) -> Pixels:
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
            f"{path}: its pictures cannot be decoded ({error}); copy the file again"
        ) from None


def _labels(labels: npt.ArrayLike, count: int, release: Release, where: str) -> Indices:
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
    # MD5 is published for these files; it finds damage. `download` compares SHA-256.
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(
            f"{where}: the MD5 sum is {found}, not {expected}: the file is damaged or another one; "
            "copy it again"
        )

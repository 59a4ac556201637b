"""Small data sets in the three forms of CIFAR, made by the tests themselves."""

import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedegoists.learning.datasets.cifar_files import ImageFiles, Release

Pixels = npt.NDArray[np.uint8]


def md5(content: bytes | memoryview) -> str:
    return hashlib.md5(content).hexdigest()


def images(count: int, seed: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def python2_batch(pixels: Pixels, labels: list[int], label_key: bytes = b"labels") -> bytes:
    """Write what the official files hold: Python 2's pickle of texts, a list and an old array."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    data = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).reshape(len(pixels), -1)
    rows, columns = data.shape
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR"
    dtype += b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    content = data.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    array += b"(K\x01(M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"t"
    array += dtype + b"\x89T" + struct.pack("<i", len(content)) + content + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    pairs = text(b"data") + array + text(label_key) + listed + text(b"batch_label") + text(b"one")
    return b"\x80\x02}(" + pairs + b"u."


def webp_pictures(pixels: Pixels, labels: list[int], per_picture: int = 100) -> bytes:
    """Write an NPZ file of lossless WebP pictures with images below each other."""
    pictures = []
    for start in range(0, len(pixels), per_picture):
        out = io.BytesIO()
        column = pixels[start : start + per_picture].reshape(-1, 32, 3)
        Image.fromarray(column).save(out, "WEBP", lossless=True, quality=0, method=0)
        pictures.append(out.getvalue())
    file = io.BytesIO()
    np.savez(
        file,
        webp=np.frombuffer(b"".join(pictures), np.uint8),
        off=np.cumsum([0, *map(len, pictures)]),
        y=np.array(labels, np.uint8),
    )
    return file.getvalue()


class FakeCifar:
    """Ten classes with 40 training and 10 test images each, in two training files and one test."""

    label_key = b"labels"

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.labels = [
            rng.permutation(np.repeat(np.arange(10), each)).tolist() for each in (20, 20, 10)
        ]
        self.pixels = [images(len(labels), k) for k, labels in enumerate(self.labels)]
        names = ("data_batch_1", "data_batch_2", "test_batch")
        self.batches = {
            name: python2_batch(pixels, labels, self.label_key)
            for name, pixels, labels in zip(names, self.pixels, self.labels, strict=True)
        }
        checked = [(name, md5(content)) for name, content in self.batches.items()]
        train = np.concatenate(self.pixels[:2])
        self.archive = self._archive()
        self.release = Release(
            "cifar10",
            10,
            self.label_key,
            "https://example.invalid/fake-python.tar.gz",
            hashlib.sha256(self.archive).hexdigest(),
            "fake-batches-py",
            ImageFiles(
                tuple(checked[:2]), ("fake_train_a.npz", "fake_train_b.npz"), md5(train.data)
            ),
            ImageFiles(tuple(checked[2:]), ("fake_test.npz",), md5(self.pixels[2].data)),
        )

    def _archive(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, content in {"readme.html": b"hello", **self.batches}.items():
                member = tarfile.TarInfo(f"fake-batches-py/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return out.getvalue()

    def write(self, data_dir: Path, form: str) -> Path:
        """Write one of the forms, and return the data set's folder."""
        folder = data_dir / "cifar10"
        folder.mkdir(exist_ok=True)
        if form == "archive":
            (folder / "fake-python.tar.gz").write_bytes(self.archive)
        elif form == "folder":
            (folder / "fake-batches-py").mkdir()
            for name, content in self.batches.items():
                (folder / "fake-batches-py" / name).write_bytes(content)
        else:
            names = ("fake_train_a.npz", "fake_train_b.npz", "fake_test.npz")
            for name, pixels, labels in zip(names, self.pixels, self.labels, strict=True):
                (folder / name).write_bytes(webp_pictures(pixels, labels))
        return folder

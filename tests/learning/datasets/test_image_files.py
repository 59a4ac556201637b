"""Decoding: what is stored is what a model sees, in 8 and 16 bits, and DICOM in its own units."""

import io
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from fedegoists.errors import MissingDependencyError
from fedegoists.federation.silo_operations import _ready
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.image_files import decoded, prepared_image
from fedegoists.learning.datasets.image_schema import ImageSettings
from tests.learning.datasets.pictures import dicom


def stored(values, kind="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(values, **options).save(stream, kind)
    return stream.getvalue()


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_grey_values_come_back(values):
    image = decoded(stored(values))
    assert image.kind == "grey"
    assert (prepared_image(image, ImageSettings())[..., 0] == values).all()


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_colours_come_back_or_become_grey(values):
    image = decoded(stored(values))
    assert image.kind == "rgb"
    assert (prepared_image(image, ImageSettings()) == values).all()
    grey = prepared_image(image, ImageSettings(colours="grey"))
    expected = 0.299 * values[..., 0] + 0.587 * values[..., 1] + 0.114 * values[..., 2]
    assert grey.shape[-1] == 1
    assert np.abs(grey[..., 0] - expected).max() <= 0.501


def test_grey_becomes_three_equal_colours():
    image = decoded(stored(np.array([[3, 200]], dtype=np.uint8)))
    assert prepared_image(image, ImageSettings(colours="rgb")).tolist() == [[[3] * 3, [200] * 3]]


@given(arrays.arrays(np.uint16, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_all_16_bits_reach_the_model(values):
    import torch

    kept = prepared_image(decoded(stored(values)), ImageSettings(bits=16))
    assert kept.dtype == np.int16
    seen = _ready(torch.from_numpy(kept)[None])
    assert seen.shape == (1, 1, *values.shape)
    expected = values / 65535 * 2 - 1
    assert np.abs(seen[0, 0].numpy() - expected).max() < 1e-6


def test_a_range_becomes_black_and_white():
    values = np.array([[0, 1000, 2000, 3000, 65535]], dtype=np.uint16)
    kept = prepared_image(decoded(stored(values)), ImageSettings(range=(1000, 3000)))
    assert kept[0, :, 0].tolist() == [0, 0, 128, 255, 255]


def test_more_than_8_bits_need_a_range():
    values = np.array([[7, 4000]], dtype=np.uint16)
    with pytest.raises(DataError, match=r"values from 7 to 4000.*declare range = \[black, white\]"):
        prepared_image(decoded(stored(values)), ImageSettings())


def test_resizing_takes_means_and_interpolates():
    values = np.array([[0, 0, 200, 200], [0, 0, 200, 200]], dtype=np.uint8)
    small = prepared_image(decoded(stored(values)), ImageSettings(size=(1, 4)))
    assert small.shape == (1, 4, 1)
    flat = prepared_image(decoded(stored(values)), ImageSettings(size=(1, 1)))
    assert flat.item() == 100
    large = prepared_image(decoded(stored(values)), ImageSettings(size=(2, 8)))[0, :, 0]
    assert (np.diff(large.astype(int)) >= 0).all()
    assert (large[0], large[-1]) == (0, 200)


def test_palettes_transparency_and_jpeg_are_read():
    colours = np.zeros((4, 4, 3), dtype=np.uint8)
    colours[..., 0] = 255
    stream = io.BytesIO()
    Image.fromarray(colours).convert("P").save(stream, "PNG")
    assert decoded(stream.getvalue()).values[0, 0].tolist() == [255, 0, 0]
    clear = np.dstack([colours, np.full((4, 4), 9, np.uint8)])
    assert decoded(stored(clear)).values[0, 0].tolist() == [255, 0, 0]
    jpeg = decoded(stored(np.full((16, 16), 77, np.uint8), "JPEG"))
    assert np.abs(jpeg.values.astype(int) - 77).max() <= 2


def test_an_image_is_turned_as_the_camera_was_held():
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    image = Image.fromarray(values)
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    stream = io.BytesIO()
    image.save(stream, "PNG", exif=exif)
    assert decoded(stream.getvalue()).size == (3, 2)


def test_dicom_is_in_units_of_slope_and_intercept():
    values = np.array([[0, 1000], [2000, 4095]], dtype=np.uint16)
    image = decoded(dicom(values, slope=2, intercept=-1024))
    assert image.values[..., 0].tolist() == [[-1024, 976], [2976, 7166]]
    kept = prepared_image(image, ImageSettings(range=(-1024, 976)))
    assert kept[..., 0].tolist() == [[0, 255], [255, 255]]
    with pytest.raises(DataError, match="values from -1024 to 7166"):
        prepared_image(image, ImageSettings())


def test_dicom_with_inverted_greys_and_signs():
    values = np.array([[0, 255]], dtype=np.uint8)
    image = decoded(dicom(values, bits=8, kind="MONOCHROME1"))
    assert prepared_image(image, ImageSettings())[0, :, 0].tolist() == [255, 0]
    signed = decoded(dicom(np.array([[-5, 7]], dtype=np.int16), bits=16))
    assert signed.values[0, :, 0].tolist() == [-5, 7]


def test_frames_and_damage_are_refused():
    stream = io.BytesIO()
    first, second = (Image.fromarray(np.full((4, 4), n, np.uint8)) for n in (1, 2))
    first.save(stream, "TIFF", save_all=True, append_images=[second])
    with pytest.raises(DataError, match="2 images in one file"):
        decoded(stream.getvalue())
    whole = stored(np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8))
    with pytest.raises(DataError, match="cannot be opened"):
        decoded(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="damaged or not an image"):
        decoded(b"these are words")
    with pytest.raises(DataError, match="cannot be opened"):
        decoded(dicom(np.zeros((4, 4), np.uint16))[:400])


def test_a_missing_package_is_named(monkeypatch):
    content = dicom(np.zeros((2, 2), np.uint16))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(MissingDependencyError, match=r"pip install .*\[dicom\]"):
        decoded(content)

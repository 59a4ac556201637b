"""Decoding of image files: PNG, JPEG and what else Pillow reads, 16 bits, and DICOM."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedegoists.errors import MissingDependencyError
from fedegoists.install_hints import install_command
from fedegoists.learning.data import Array, DataError
from fedegoists.learning.datasets.image_schema import ImageSettings

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".dcm")
"""Endings of files that are read; DICOM files may also have none."""
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""Shares of red, green and blue in grey (ITU-R BT.601)."""
DICOM_MARK = slice(128, 132)


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """An image as it was stored.

    Attributes
    ----------
    values : array, height × width × colours
        One colour for grey, three for red, green and blue.
    kind : {"grey", "rgb"}
        The kind of its colours.
    eight_bits : bool
        Whether its values are 0 to 255.
    """

    values: Array
    kind: str
    eight_bits: bool

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.values.shape[0], self.values.shape[1]


def decoded(content: bytes) -> DecodedImage:
    """Return the image in a file's content.

    Raises
    ------
    DataError
        If it cannot be read, with the reason but not the file's name.
    MissingDependencyError
        If a package is needed that is not installed.
    """
    if content[DICOM_MARK] == b"DICM":
        return _dicom(content)
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingDependencyError(
            f"reading images needs pillow, which is not installed; run: {install_command('train')}"
        ) from None
    try:
        with Image.open(io.BytesIO(content)) as file:
            frames = getattr(file, "n_frames", 1)
            if frames > 1:
                raise DataError(f"{frames} images in one file; save each in a file of its own")
            image = ImageOps.exif_transpose(file)  # as a camera was held
            return _of_pillow(image)
    except DataError:
        raise
    # Damaged files raise errors of many kinds.
    except Exception as error:
        what = str(error) or type(error).__name__
        what = "it is damaged or not an image" if "cannot identify" in what else what
        raise DataError(f"cannot be opened ({what})") from None


def _of_pillow(image: Any) -> DecodedImage:
    mode = image.mode
    if mode in ("I;16", "I;16B", "I;16L", "I", "F"):
        values = np.asarray(image).astype(np.float32)[..., None]
        return DecodedImage(values, "grey", eight_bits=False)
    # Palettes and transparency are ways to store colours or greys.
    grey = mode in ("1", "L", "LA", "La")
    plain = image.convert("L" if grey else "RGB")
    values = np.asarray(plain)
    return DecodedImage(values[..., None] if grey else values, "grey" if grey else "rgb", True)


def _dicom(content: bytes) -> DecodedImage:
    """Return the image of a DICOM file, in the units of its rescale slope and intercept."""
    try:
        import pydicom
        from pydicom.pixels.processing import apply_modality_lut, convert_color_space
    except ImportError:
        raise MissingDependencyError(
            "reading DICOM files needs pydicom, which is not installed; run: "
            f"{install_command('dicom')}"
        ) from None
    try:
        file = pydicom.dcmread(io.BytesIO(content))
        frames = int(file.get("NumberOfFrames", 1) or 1)
        if frames > 1:
            raise DataError(f"{frames} frames in one file; save each in a file of its own")
        stored = file.pixel_array
        eight = stored.dtype == np.uint8 and int(file.BitsStored) == 8
        if stored.ndim == 3:
            kind = str(file.PhotometricInterpretation)
            if kind.startswith("YBR"):
                stored = convert_color_space(stored, kind, "RGB")
            return DecodedImage(stored, "rgb", eight)
        values = apply_modality_lut(stored, file)
        if file.PhotometricInterpretation == "MONOCHROME1":  # its largest value is black
            low, high = _stored_range(file)
            ends = apply_modality_lut(np.array([low, high]), file)
            values = ends.sum() - values
        rescaled = (file.get("RescaleSlope", 1), file.get("RescaleIntercept", 0)) != (1, 0)
        return DecodedImage(values[..., None], "grey", eight and not rescaled)
    except DataError:
        raise
    # Damaged files and compressions without a decoder raise errors of many kinds.
    except Exception as error:
        raise DataError(f"cannot be opened ({str(error) or type(error).__name__})") from None


def _stored_range(file: Any) -> tuple[int, int]:
    """Return the smallest and the largest value that a DICOM file can store."""
    bits = int(file.BitsStored)
    low = -(2 ** (bits - 1)) if file.PixelRepresentation else 0
    return low, low + 2**bits - 1


def prepared_image(image: DecodedImage, settings: ImageSettings) -> Array:
    """Return an image as it is kept: of the declared size and colours, in 8 or 16 bits.

    Raises
    ------
    DataError
        If it has more than 8 bits, and no range is declared.
    """
    levels = settings.levels
    if levels is None and not image.eight_bits:
        low, high = float(image.values.min()), float(image.values.max())
        raise DataError(
            f"it has more than 8 bits (values from {low:g} to {high:g}); declare range = "
            "[black, white] in [images] of the schema, or bits = 16 for 0 to 65535"
        )
    values = image.values
    if settings.colours == "grey" and image.kind == "rgb":
        values = values.astype(np.float32) @ LUMA[:, None]
    elif settings.colours == "rgb" and image.kind == "grey":
        values = values.repeat(3, axis=-1)
    if settings.size is not None and image.size != settings.size:
        values = _resized(values, settings.size)
    if levels is None:
        if values.dtype == np.uint8:
            return values
        return np.rint(values).clip(0, 255).astype(np.uint8)
    low, high = levels
    share: Array = ((values.astype(np.float32) - low) / (high - low)).clip(0.0, 1.0)
    kept: Array = np.rint((255 if settings.bits == 8 else 65535) * share)
    return kept.astype(np.uint8) if settings.bits == 8 else (kept - 32768).astype(np.int16)


def stored_values(kept: Array, settings: ImageSettings) -> Array:
    """Return the values of images as they were stored, from those that `prepared_image` keeps.

    Examples
    --------
    >>> settings = ImageSettings(range=(-1000.0, 400.0), bits=16)
    >>> stored_values(np.array([-32768, 32767], dtype=np.int16), settings)
    array([-1000.,   400.], dtype=float32)
    """
    low, high = settings.levels or (0.0, 255.0)
    share = kept / 255 if settings.bits == 8 else (kept + 32768.0) / 65535
    values: Array = (low + (high - low) * share).astype(np.float32)
    return values


def _resized(values: Array, size: tuple[int, int]) -> Array:
    """Return an image of another size: interpolated, or means over areas where it shrinks."""
    from PIL import Image

    height, width = size
    parts = [
        Image.fromarray(values[..., k].astype(np.float32)).resize(
            (width, height), Image.Resampling.BILINEAR
        )
        for k in range(values.shape[-1])
    ]
    return np.stack([np.asarray(part) for part in parts], axis=-1)

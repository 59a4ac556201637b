"""Small image files, made on the spot."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("blank", "spot")
SCHEMA = 'task = "binary"\nclasses = ["blank", "spot"]\n\n[images]\n'


def grey(seed: int, size=(8, 8)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def save(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)
    return path


def scans(folder: Path, organisations=("North", "South"), count=12, schema=SCHEMA, size=(8, 8)):
    """One folder for each organisation, with `count` images of each class."""
    for k, organisation in enumerate(organisations):
        for c, name in enumerate(CLASSES):
            for n in range(count):
                values = grey(1000 * k + 100 * c + n, size)
                save(folder / organisation / name / f"{n:03}.png", values)
    (folder / "schema.toml").write_text(schema)
    return folder


def dicom(values: np.ndarray, *, bits=12, slope=None, intercept=None, kind="MONOCHROME2") -> bytes:
    """A DICOM file with these stored values."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    file.SOPClassUID, file.SOPInstanceUID = SecondaryCaptureImageStorage, generate_uid()
    file.Rows, file.Columns = values.shape
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, kind
    file.BitsAllocated = 8 * values.dtype.itemsize
    file.BitsStored, file.HighBit = bits, bits - 1
    file.PixelRepresentation = int(values.dtype.kind == "i")
    if slope is not None:
        file.RescaleSlope, file.RescaleIntercept = slope, intercept
    file.PixelData = values.tobytes()
    stream = io.BytesIO()
    file.save_as(stream, enforce_file_format=True)
    return stream.getvalue()

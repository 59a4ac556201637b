"""Invented hospitals with scans of round or spiky spots, as an example of folders of images.

Two kinds of scanners show the same spots differently. They are made to show coalitions, and say
nothing about how often real hospitals gain.
"""

import io

import numpy as np
import numpy.typing as npt

HOSPITALS = {"Harbour": 105, "Lakeside": 90, "Meadow": 175, "Ridge": 150}
"""The numbers of patients of the hospitals, with two scans each."""
INVERTED = ("Meadow", "Ridge")
"""Hospitals whose scanners show spots dark, with less noise, and less sharply."""
CLASSES = ("round", "spiky")
SIDE = 16

SCHEMA = """\
task = "binary"
classes = ["round", "spiky"]  # the names of the folders; the second one is positive

[images]
size = [16, 16]               # height and width
colours = "grey"
group = "([A-Z][0-9]+)_"      # files are called H017_1.png: scans of a patient stay together
"""


def scan_files() -> dict[str, bytes]:
    """Return the schema and all scans, by path; always the same."""
    files = {"scans/schema.toml": SCHEMA.encode()}
    for number, (hospital, count) in enumerate(HOSPITALS.items()):
        rng = np.random.default_rng([3, number])
        for patient, scan in np.ndindex(count, 2):
            label = CLASSES[patient % 2]
            pixels = _scan(rng, spiky=label == "spiky", inverted=hospital in INVERTED)
            name = f"{hospital[0]}{patient:03}_{scan + 1}.png"
            files[f"scans/{hospital}/{label}/{name}"] = _png(pixels)
    return files


def _scan(rng: np.random.Generator, *, spiky: bool, inverted: bool) -> npt.NDArray[np.uint8]:
    """Draw one spot."""
    row, column = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2 - rng.uniform(-1, 1, (2, 1, 1))
    distance, angle = np.hypot(row, column), np.arctan2(row, column)
    spikes = rng.integers(5, 9) if spiky else rng.integers(2, 4)
    depth = rng.uniform(0.2, 0.4) if spiky else rng.uniform(0.0, 0.1)
    radius = rng.uniform(4, 5.5) * (1 + depth * np.cos(spikes * angle + rng.uniform(0, 7)))
    blur = 1.2 if inverted else 0.6
    spot = 1 / (1 + np.exp((distance - radius) / blur))
    brightness = (0.75 - 0.5 * spot) if inverted else (0.2 + 0.6 * spot)
    noisy = brightness + rng.normal(0, 0.15 if inverted else 0.22, (SIDE, SIDE))
    pixels: npt.NDArray[np.uint8] = np.rint(255 * noisy.clip(0, 1)).astype(np.uint8)
    return pixels


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()

"""Finding the real data that some tests need; it is not part of the project."""

import os
from pathlib import Path

import pytest

from fedegoists.learning.datasets.location import DATA_VARIABLE


def real_data(dataset: str) -> Path:
    """Return the folder of all data sets, or skip the test if it lacks the one needed."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        pytest.skip(f"needs real data: set {DATA_VARIABLE} to the folder with {dataset}/")
    if not Path(folder, dataset).is_dir():
        pytest.skip(f"needs real data: {folder} has no {dataset}/")
    return Path(folder)

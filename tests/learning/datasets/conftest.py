"""Two organisations' files."""

from pathlib import Path

import pytest

from tests.learning.datasets.tables import ROWS, csv


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "north.csv").write_text(csv())
    (tmp_path / "south.csv").write_text(csv(ROWS * 2))
    return tmp_path

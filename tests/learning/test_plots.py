"""The picture of labels: its numbers, its files, and what cannot be drawn."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedegoists.errors import SettingsError
from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.synthetic import SyntheticOptions, load_weak
from fedegoists.learning.plots import draw_label_distribution

NOTHING = np.array([], dtype=np.int64)


def some_data(silos: int, classes: int, names: list[str] | None = None) -> SiloedData:
    """Return silos of which silo i has i + 1 samples of class i, and ten of class 0."""
    labels, parts, start = [], [], 0
    for i in range(silos):
        own = [i % classes] * (i + 1) + [0] * 10
        positions = np.arange(start, start + len(own))
        parts.append(SiloIndices(names[i] if names else f"v{i}", positions, NOTHING, NOTHING))
        labels += own
        start += len(own)
    samples = Samples((np.zeros((len(labels), 1)),), np.array(labels))
    return SiloedData("tiny", "classification", samples, tuple(parts), classes, "", ())


def texts(figure: object) -> list[list[str]]:
    return [[text.get_text() for text in axes.texts] for axes in figure.axes]  # type: ignore[attr-defined]


def test_counts_and_sizes_are_written() -> None:
    figure = draw_label_distribution(some_data(3, 4))
    cells, bars = texts(figure)
    assert cells == ["11", "10", "2", "10", "3"]  # rows from the top, zeros left out
    assert bars == ["11", "12", "13"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["v0", "v1", "v2"]
    assert figure.axes[0].yaxis_inverted()


def test_many_classes_have_a_scale_instead_of_counts() -> None:
    figure = draw_label_distribution(some_data(10, 100))
    assert texts(figure)[0] == []
    assert len(figure.axes) == 3
    mesh = figure.axes[0].collections[0].get_array()
    assert mesh.shape == (10, 100)
    assert mesh[3, 3] == 4
    assert mesh.mask.sum() == 10 * 100 - 19


@pytest.mark.parametrize(("silos", "classes"), [(1, 2), (10, 10), (10, 100), (150, 21)])
def test_png_of_a_readable_size(tmp_path: Path, silos: int, classes: int) -> None:
    path = tmp_path / "labels.png"
    draw_label_distribution(some_data(silos, classes), path)
    with Image.open(path) as picture:
        assert 600 <= picture.width <= 2400
        assert 300 <= picture.height <= 2500


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_data_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{k}.{suffix}" for k in range(2)]
    for path in paths:
        draw_label_distribution(some_data(3, 4), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_awkward_names_and_titles(tmp_path: Path) -> None:
    data = some_data(4, 2, ["$x_1$", "東京", "B" * 150, "Bank, Inc."])
    figure = draw_label_distribution(data, tmp_path / "a.svg", title="Labels of $2$")
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[0] == r"\$x_1\$"
    assert len(names[2]) < 40


def test_another_split() -> None:
    samples = Samples((np.zeros((3, 1)),), np.array([0, 1, 1]))
    silo = SiloIndices("a", np.array([0]), NOTHING, np.array([1, 2]))
    data = SiloedData("tiny", "binary", samples, (silo,), 2, "", ())
    assert texts(draw_label_distribution(data, split="test"))[0] == ["2"]
    assert texts(draw_label_distribution(data, split="validation"))[0] == []


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a regression has no classes to count"):
        draw_label_distribution(load_weak(SyntheticOptions()))
    with pytest.raises(SettingsError, match=r"a\.jpg: cannot draw to a file that ends in .jpg"):
        draw_label_distribution(some_data(1, 2), tmp_path / "a.jpg")
    assert not list(tmp_path.iterdir())


def test_matplotlib_settings_of_the_user_are_left_alone() -> None:
    import matplotlib as mpl

    mpl.rcParams["font.size"] = 31
    try:
        figure = draw_label_distribution(some_data(2, 3))
        assert mpl.rcParams["font.size"] == 31
        assert figure.axes[0].xaxis.label.get_size() < 31
        figure.savefig(io.BytesIO(), format="png")
    finally:
        mpl.rcdefaults()

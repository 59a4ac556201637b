"""Pictures: complete, legible, and the same bytes every time."""

import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from fedegoists import BenefitGraph, CompetitionGraph, form
from fedegoists.coalitions import Formation
from fedegoists.coalitions.drawing.picture import MOST_INSIDE, draw, render
from fedegoists.errors import FedEgoistsError, MissingDependencyError, SettingsError

BANKS = [
    "Deutsche Bank", "BNP Paribas", "Santander", "HSBC", "ING", "UniCredit", "Barclays",
    "Crédit Agricole", "Société Générale", "Commerzbank",
]  # fmt: skip


def random_formation(n, *, density=0.3, rivals=0.1, names=None, seed=0) -> Formation:
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random((n, n)) < density, rng.random((n, n)), 0)
    np.fill_diagonal(weights, 0)
    upper = np.triu(rng.random((n, n)) < rivals, k=1)
    benefit = BenefitGraph(weights, names)
    return form(benefit, CompetitionGraph.from_numpy(upper | upper.T, names), "stable")


def words(formation, **options) -> list[str]:
    """Return the lines of text in the picture, in the order they are drawn."""
    svg = ET.fromstring(render(formation, "svg", **options))
    lines = svg.iter("{http://www.w3.org/2000/svg}text")
    return ["".join(line.itertext()) for line in lines]


def shown(name: str, lines: list[str]) -> bool:
    """Return whether a name is in the picture, in one line or in two."""
    ends = [a + b for a, b in zip(lines, [*lines[1:], ""], strict=True)]
    return name in lines or name.replace(" ", "") in [end.replace(" ", "") for end in ends]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 40, 100])
@pytest.mark.parametrize("rivals", [0.0, 0.3])
def test_every_participant_has_its_label(n, rivals):
    formation = random_formation(n, density=0.15, rivals=rivals)
    lines = words(formation)
    assert [name for name in formation.participants if not shown(name, lines)] == []


def test_the_heading_counts_and_gives_the_welfare():
    # a and b exchange 2 and 1; c stands alone because it gives and takes nothing.
    names = ["a", "b", "c"]
    benefit = BenefitGraph([[0, 2, 0], [1, 0, 0], [0, 0, 0]], names)
    formation = form(benefit, CompetitionGraph([("a", "c")], names), "best")
    lines = words(formation, title="Three banks")
    assert "Three banks" in lines
    summary = "3 participants · 1 coalition · 1 on its own · total benefit 3 (proven optimal)"
    assert summary in lines
    assert {"total benefit 3", "on its own", "coalition", "competitors"} <= set(lines)
    assert {"benefit 2 (largest shown)", "benefit 1 (smallest shown)"} <= set(lines)


def test_names_are_text_and_not_markup():
    names = ["$x^2$", "<b> & co", "a_b", r"\frac", "100 %", "$", '"', "naïve"]
    lines = words(random_formation(8, names=names))
    assert [name for name in names if not shown(name, lines)] == []


def test_scripts_without_an_installed_font_are_kept_in_svg_and_do_not_fail_elsewhere():
    names = ["中国工商银行", "Ελλάδα", "Банк", "한국은행", "بنك", "🏦", "x\u3000y"]
    formation = random_formation(7, names=names)
    lines = words(formation)
    assert [name for name in names[:-1] if not shown(name, lines)] == []
    assert shown("x y", lines)
    assert render(formation, "png").startswith(b"\x89PNG")
    assert render(formation, "pdf").startswith(b"%PDF")


def test_long_names_are_shortened_and_still_differ():
    names = [
        "x" * 200,
        "x" * 199 + "y",
        "y" * 100 + "1" + "y" * 99,  # differs from the next one only in the middle
        "y" * 100 + "2" + "y" * 99,
        "University Hospital of the Northern Province, Campus A",
        "University Hospital of the Northern Province, Campus B",
        "银" * 200,
    ]
    lines = words(random_formation(7, names=names, density=0, rivals=0))
    assert all(len(line) <= 28 or "participants" in line for line in lines)
    assert shown("xxxxxxxxxxxxx…xxxxxxxxxxxxxx", lines)
    assert shown("xxxxxxxxxxxxx…xxxxxxxxxxxxxy", lines)
    assert shown("University Hospital…Campus A", lines)
    assert shown("University Hospital…Campus B", lines)
    assert sum(line.endswith("#2") for line in lines) == 1
    assert sum(line.endswith("#3") for line in lines) == 1


def test_what_is_left_out_is_said():
    crowded = random_formation(40, density=0.3, rivals=0.3)
    across = sum(
        crowded.coalition_of(a) != crowded.coalition_of(b) for a, b, _ in crowded.benefit.edges()
    )
    left_out = f"{across:,} benefits between coalitions not shown"
    assert left_out in words(crowded)
    assert left_out in words(crowded, show_across=False)
    assert left_out not in words(crowded, show_across=True)
    assert "benefit between coalitions (not used)" in words(crowded, show_across=True)

    together = random_formation(40, density=0.9, rivals=0)
    hidden = len(list(together.benefit.edges())) - MOST_INSIDE
    assert f"{hidden:,} smaller benefits inside are not shown" in words(together)


def test_bundled_competition_counts_every_pair_between_regions():
    formation = random_formation(40, density=0.3, rivals=0.3)
    region = {
        name: group if len(group) > 1 else () for group in formation.coalitions for name in group
    }
    between = sum(region[a] != region[b] for a, b in formation.competition.pairs)
    assert between > 40
    counts = [int(line[1:]) for line in words(formation) if line[:1] == "×" and line[1:].isdigit()]
    assert sum(counts) == between


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.PNG", b"\x89PNG")],
)
def test_the_suffix_decides_the_format(tmp_path, name, start):
    draw(random_formation(10, names=BANKS), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.jpg", "a", ".png", "a.png.txt"])
def test_another_suffix_is_refused(tmp_path, name):
    with pytest.raises(SettingsError, match=r"\.png, \.svg, \.pdf"):
        draw(random_formation(2), str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_other_mistakes_are_explained(tmp_path):
    with pytest.raises(SettingsError, match="'jpg'"):
        render(random_formation(2), "jpg")
    with pytest.raises(SettingsError, match="show_across"):
        draw(random_formation(2), show_across="always")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(FedEgoistsError, match=r"folder\.png"):
        draw(random_formation(2), tmp_path / "folder.png")


@pytest.mark.parametrize("picture_format", ["png", "svg", "pdf"])
def test_the_same_formation_gives_the_same_bytes(picture_format, tmp_path):
    first = render(random_formation(20), picture_format)
    assert render(random_formation(20), picture_format) == first
    draw(random_formation(20), tmp_path / f"a.{picture_format}")
    assert (tmp_path / f"a.{picture_format}").read_bytes() == first


def test_settings_of_the_user_neither_change_the_picture_nor_are_changed():
    import matplotlib as mpl

    first = render(random_formation(5), "svg")
    with mpl.rc_context({"lines.linewidth": 9, "text.usetex": True, "font.size": 30}):
        before = dict(mpl.rcParams)
        assert render(random_formation(5), "svg") == first
        assert dict(mpl.rcParams) == before


def test_threads_draw_the_same():
    formation = random_formation(10, names=BANKS)
    pictures = []
    threads = [
        threading.Thread(target=lambda: pictures.append(render(formation, "svg"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pictures == [render(formation, "svg")] * 4


def test_matplotlib_is_loaded_only_for_drawing_and_pyplot_never():
    code = (
        "import sys, fedegoists as f\n"
        "from fedegoists.coalitions.drawing import draw\n"
        "assert 'matplotlib' not in sys.modules\n"
        "draw(f.form(f.BenefitGraph([[0]]), f.CompetitionGraph([], 1), 'stable'))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"Matplotlib.*pip install .*draw"):
        draw(random_formation(2))


@pytest.mark.parametrize("n", [1, 2, 10, 40])
def test_labels_as_rendered_are_on_the_page_and_apart(n):
    names = [f"{BANKS[k % 10]} {k}" for k in range(n)]
    title = "A title that is much too long for one line of a small picture " * 3 + "W" * 80
    figure = draw(random_formation(n, density=0.15, names=names), title=title)
    figure.canvas.draw()
    (axes,) = figure.axes
    page = figure.bbox
    texts = [text for text in axes.texts if text.get_text()]
    for text in [*texts, *axes.get_legend().get_texts()] if axes.get_legend() else texts:
        box = text.get_window_extent()
        assert page.x0 <= box.x0 < box.x1 <= page.x1, text
        assert page.y0 <= box.y0 < box.y1 <= page.y1, text
    labels = [
        text.get_window_extent()
        for text in texts
        if text.get_text().replace("\n", " ") in names and text.get_rotation() == 0
    ]
    for one, other in combinations(labels, 2):
        assert not one.overlaps(other)


partitions = st.lists(st.integers(1, 30), min_size=1, max_size=12).map(
    lambda sizes: [list(range(sum(sizes[:k]), sum(sizes[: k + 1]))) for k in range(len(sizes))]
)


def test_the_picture_is_not_empty(tmp_path):
    """Dots have their coalition's colour, and competition is the only thing that is red."""
    from matplotlib.image import imread

    def red_pixels(rivals: float) -> int:
        path: Path = tmp_path / "a.png"
        draw(random_formation(10, names=BANKS, density=0.5, rivals=rivals), path)
        red, green, blue, _ = imread(path).T
        return int(((red > 0.6) & (green < 0.3) & (blue < 0.3)).sum())

    assert red_pixels(0) == 0
    assert red_pixels(0.3) > 500

"""Folders of images: right samples, splits by content or patient, and all problems at once."""

import mmap
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedegoists.errors import FileError, SettingsError
from fedegoists.learning.data import DataError
from fedegoists.learning.datasets import load, load_own
from fedegoists.training.repetitions import data_digest
from tests.learning.datasets.pictures import SCHEMA, dicom, grey, save, scans


def split_of(data, silo):
    """The split of each image of a silo, by its content."""
    found = {}
    for split in ("train", "validation", "test"):
        part = data.part(silo, split)
        for image, target in zip(part.inputs[0], part.targets, strict=True):
            found[image.tobytes()] = (split, int(target))
    return found


def test_every_image_is_there_with_its_class(tmp_path):
    data = load(str(scans(tmp_path)))
    assert (data.task, data.classes, data.class_names) == ("binary", 2, ("blank", "spot"))
    assert data.shapes == ((8, 8, 1),)
    assert data.samples.inputs[0].dtype == np.uint8
    for k, name in enumerate(("North", "South")):
        expected = {grey(1000 * k + 100 * c + n).tobytes(): c for c in range(2) for n in range(12)}
        assert {key: label for key, (_, label) in split_of(data, name).items()} == expected


def test_splits_stay_whoever_else_is_there_and_whatever_files_are_called(tmp_path):
    before = load_own(scans(tmp_path / "a"))
    scans(tmp_path / "b", ("East", "North", "South"))
    for k, name in enumerate(("North", "South")):
        shutil.rmtree(tmp_path / "b" / name)
        shutil.copytree(tmp_path / "a" / name, tmp_path / "b" / name)
        for n, path in enumerate(sorted((tmp_path / "b" / name / "spot").iterdir())):
            path.rename(path.with_name(f"renamed{n * 7 % 12}-{k}.png"))
    after = load_own(tmp_path / "b")
    for name in ("North", "South"):
        assert split_of(before, name) == split_of(after, name)


def test_copies_are_in_one_split_and_reported(tmp_path):
    folder = scans(tmp_path)
    for n in range(12):
        shutil.copy(folder / "North/spot" / f"{n:03}.png", folder / "North/spot" / f"again{n}.png")
    shutil.copy(folder / "South/spot/001.png", folder / "South/blank/wrong.png")
    data = load_own(folder)
    assert sum(data.silo("North").sizes) == 36
    assert len(split_of(data, "North")) == 24  # no content is in two splits
    for split in ("train", "validation", "test"):
        kept = [image.tobytes() for image in data.part("North", split).inputs[0]]
        twice = [one for one in kept if kept.count(one) == 2]
        spots = data.part("North", split).targets.sum()
        assert len(twice) == spots
    first, second, third = data.warnings
    assert first.startswith("North: 12 images have the same content as another image; copies are")
    assert second.startswith("South: 1 image has the same content")
    assert third == "South: 1 of the copies are of another class than the first one"


@pytest.mark.parametrize(
    ("pattern", "name"), [("([^/]+)/", "p{p}/{n}.png"), ("(p[0-9]+)_", "p{p}_{n}.png")]
)
def test_images_of_a_patient_are_never_in_two_splits(tmp_path, pattern, name):
    for c, label in enumerate(("blank", "spot")):
        for p in range(40):
            for n in range(3):
                path = tmp_path / "North" / label / name.format(p=p, n=n)
                values = np.full((4, 4), 10 * n, np.uint8)
                values[0, 0] = p
                values[0, 1] = c
                save(path, values)
    (tmp_path / "schema.toml").write_text(f"{SCHEMA}group = '{pattern}'\n")
    data = load_own(tmp_path)
    places = {}
    for split in ("train", "validation", "test"):
        for image in data.part("North", split).inputs[0]:
            places.setdefault(int(image[0, 0, 0]), set()).add(split)
    assert len(places) == 40
    assert all(len(one) == 1 for one in places.values())


def test_a_list_names_paths_labels_patients_and_weights(tmp_path):
    lines = ["image;finding;patient;counts"]
    for n in range(40):
        save(tmp_path / "North" / "files" / f"{n}.png", grey(n))
        lines.append(f"files/{n}.png;{'yes' if n % 2 else 'no'};p{n // 2};{1 + n % 2}")
    (tmp_path / "North" / "images.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(
        'task = "binary"\nclasses = ["no", "yes"]\n[images]\nlist = "images.csv"\n'
        'path = "image"\nlabel = "finding"\ngroup = "patient"\nweight = "counts"\n'
    )
    data = load_own(tmp_path)
    assert len(data.samples) == 40
    assert (data.samples.inputs[0][:, :, :, 0] == [grey(n) for n in range(40)]).all()
    assert data.samples.targets.tolist() == [n % 2 for n in range(40)]
    assert data.samples.weights.tolist() == [1 + n % 2 for n in range(40)]
    for positions in data.silos[0].parts:
        patients = {int(k) // 2 for k in positions}
        assert len(patients) * 2 == len(positions)


def test_a_number_can_be_predicted_from_images(tmp_path):
    lines = ["path,label"]
    for n in range(30):
        save(tmp_path / "North" / f"{n}.png", grey(n))
        lines.append(f"{n}.png,{100 + n}")
    (tmp_path / "North" / "images.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text('task = "regression"\n[images]\nlist = "images.csv"\n')
    data = load_own(tmp_path)
    (scale,) = data.target_scales
    raw = scale.center + scale.spread * data.samples.targets
    assert np.allclose(raw, 100 + np.arange(30), atol=1e-3)


def test_all_problems_are_told_at_once_with_paths(tmp_path):
    folder = scans(tmp_path)
    north, south = folder / "North", folder / "South"
    (north / "blank" / "003.png").write_bytes(b"not an image at all")
    (north / "blank" / "notes.txt").write_text("seen on Monday")
    save(north / "spot" / "004.png", grey(4, (8, 9)))
    save(north / "spot" / "005.png", np.zeros((8, 8, 3), np.uint8))
    (south / "maybe").mkdir()
    save(south / "lost.png", grey(5))
    shutil.rmtree(south / "spot")
    (south / "spot").mkdir()
    with pytest.raises(DataError) as caught:
        load_own(folder)
    text = str(caught.value)
    assert text.startswith("7 problems:")
    for expected in (
        f"organisation 'North', {north}/blank/003.png: cannot be opened (it is damaged",
        f"{north}/blank/notes.txt: not an image that can be read; move it elsewhere",
        f"{north}/spot/004.png: it is 8 × 9, but {north}/blank/000.png is 8 × 8 (height × width)",
        f'{north}/spot/005.png: it is rgb, but {north}/blank/000.png is grey; declare colours = "',
        f"{south}/maybe: no declared class; the schema has 'blank', 'spot'",
        f"{south}/lost.png: not in the folder of a class",
        f"{south}/spot: no images of this class; remove the folder if there are none",
    ):
        assert expected in text


def test_hidden_files_and_those_of_operating_systems_are_ignored(tmp_path):
    folder = scans(tmp_path)
    for name in (".DS_Store", "._000.png", "Thumbs.db", "desktop.ini"):
        (folder / "North" / "spot" / name).write_bytes(b"junk")
        (folder / "North" / name).write_bytes(b"junk")
        (folder / name).write_bytes(b"junk")
    (folder / "__MACOSX").mkdir()
    assert load_own(folder).sizes() == load_own(scans(tmp_path / "clean")).sizes()


def test_declared_size_and_colours_convert_and_say_so(tmp_path):
    folder = scans(tmp_path, schema=f'{SCHEMA}size = [8, 8]\ncolours = "rgb"\n')
    save(folder / "North" / "spot" / "large.png", np.zeros((20, 30, 3), np.uint8))
    data = load_own(folder)
    assert data.shapes == ((8, 8, 3),)
    assert data.preparation[0].columns == ("red", "green", "blue")
    assert "1 images were resized" in data.notes
    assert "48 images were converted to rgb" in data.notes


def test_a_class_that_one_organisation_lacks(tmp_path):
    three = 'task = "classification"\nclasses = ["blank", "spot", "ring"]\n[images]\n'
    folder = scans(tmp_path, schema=three)
    for n in range(12):
        save(folder / "North" / "ring" / f"{n}.png", grey(5000 + n))
    data = load_own(folder)
    assert data.label_counts().shape == (2, 3)
    assert data.label_counts()[1, 2] == 0
    assert "South: it has no images of the class 'ring'" in data.notes
    shutil.rmtree(folder / "South" / "spot")
    with pytest.raises(DataError, match=r"South.*all 12 images are of the class 'blank'"):
        load_own(folder)


def test_wrong_paths_in_a_list_are_told_together(tmp_path):
    scans(tmp_path, ("North",))
    rows = "path,label\nblank/000.png,blank\nblank/nowhere.png,spot\nspot/gone.png,spot\n"
    (tmp_path / "North" / "images.csv").write_text(rows)
    (tmp_path / "schema.toml").write_text(f'{SCHEMA}list = "images.csv"\n')
    with pytest.raises(DataError) as caught:
        load_own(tmp_path)
    assert "2 problems:" in str(caught.value)
    assert "line 3, column 'path'" in str(caught.value)
    assert "nowhere.png is no file; paths begin at the folder of the list" in str(caught.value)


def test_dicom_series_without_endings(tmp_path):
    folder = tmp_path / "North"
    rng = np.random.default_rng(1)
    for c, label in enumerate(("blank", "spot")):
        (folder / label).mkdir(parents=True)
        for n in range(12):
            values = rng.integers(0, 4096, (6, 6), dtype=np.uint16)
            content = dicom(values, slope=1, intercept=-1024)
            (folder / label / f"IM{c}{n:02}").write_bytes(content)
    (tmp_path / "schema.toml").write_text(f"{SCHEMA}range = [-1024, 3071]\nbits = 16\n")
    data = load_own(tmp_path)
    assert data.samples.inputs[0].dtype == np.int16
    one = data.preparation[0].of(0)
    # What the last image stored, prepared as the model's card says, is what was kept.
    raw = values[0, 0] - 1024.0
    said = (raw - one.center[0]) * one.factor[0]
    kept = (float(data.samples.inputs[0][-1, 0, 0, 0]) + 0.5) / 32767.5
    assert said == pytest.approx(kept, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('task = "binary"\nclasses = ["a"]\n[images]\n', "a binary task has two classes, not 1"),
        ('task = "regression"\n[images]\n', "a regression needs a list"),
        (f"{SCHEMA}range = [5, 5]\n", "the first number must be the smaller"),
        (f'{SCHEMA}weight = "w"\n', "weight is a column of the list"),
        (f'{SCHEMA}group = "patient"\n', "give a pattern with one pair of parentheses"),
        (f"{SCHEMA}sizes = [3, 3]\n", "unknown key 'images.sizes'"),
    ],
)
def test_a_schema_that_is_none_is_refused(tmp_path, text, message):
    scans(tmp_path, schema=text)
    with pytest.raises(SettingsError, match=message):
        load_own(tmp_path)


def test_folders_that_are_not_there(tmp_path):
    scans(tmp_path)
    with pytest.raises(FileError, match=r"East.*no such folder; give its folder of images"):
        load_own({"East": tmp_path / "East"}, tmp_path / "schema.toml")
    (tmp_path / "North.csv").write_text("a,b\n")
    with pytest.raises(DataError, match=r"North.csv: a file; with this schema each organisation"):
        load_own(tmp_path)


def test_decoded_images_are_mapped_from_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "room"))
    (tmp_path / "room").mkdir()
    data = load_own(scans(tmp_path / "scans"))
    assert not list((tmp_path / "room").iterdir())
    maps = Path("/proc/self/maps")
    if maps.exists():
        mapped = [one for one in maps.read_text().splitlines() if str(tmp_path / "room") in one]
        assert any("deleted" in one for one in mapped)
    base = data.samples.inputs[0]
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)


def test_a_changed_image_changes_the_digest(tmp_path):
    folder = scans(tmp_path)
    before = data_digest(load_own(folder))
    Image.fromarray(grey(99999)).save(folder / "North" / "spot" / "000.png")
    assert data_digest(load_own(folder)) != before

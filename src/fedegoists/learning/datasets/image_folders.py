"""Folders of images, one for each organisation, decoded once into a temporary file.

Training needs random batches over and over again, so decoding on demand would dominate its time,
and all decoded images may be more than the memory holds. Therefore each image is decoded once, when
the data is loaded, and appended to a temporary file that is mapped into memory: batches are read
from it, and the operating system keeps as much of it in memory as it has room for. The file has no
name, so only this process can read it, and it is gone when the process ends.
"""

import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

import numpy as np

from fedegoists.errors import FileError, MissingDependencyError
from fedegoists.learning.data import (
    Array,
    DataError,
    Indices,
    Samples,
    SiloedData,
    SiloIndices,
)
from fedegoists.learning.datasets.data_tables import DataTable, WantedColumns
from fedegoists.learning.datasets.feature_encoding import Problems
from fedegoists.learning.datasets.image_files import (
    DICOM_MARK,
    ENDINGS,
    DecodedImage,
    decoded,
    prepared_image,
)
from fedegoists.learning.datasets.image_schema import COLOURS, ImageSchema, ImageSettings
from fedegoists.learning.datasets.organisation_rows import group_keys, row_weights, target_of
from fedegoists.learning.datasets.row_division import KeyedSamples, SampleWords, divided
from fedegoists.learning.datasets.schema import Schema
from fedegoists.learning.datasets.table_files import read_table
from fedegoists.learning.key_splits import joined_groups
from fedegoists.learning.preparation import Preparation, TargetScale
from fedegoists.learning.scaling import scaled_targets
from fedegoists.learning.typed_settings import validated

Result = TypeVar("Result")

IGNORED = {"thumbs.db", "desktop.ini", "__macosx"}
"""What operating systems leave in folders, besides hidden files."""
IMAGES = SampleWords(
    noun="images",
    copies="the same content as another image",
    apart="copies of an image are kept together: if they are of different patients, name these as "
    "group in [images] of the schema",
)


@dataclass(frozen=True)
class ImageEntry:
    """One image file, with what is known of it before it is opened.

    Attributes
    ----------
    target : int or float
        Its class, or the number to predict.
    group : bytes, optional
        The key of its patient.
    weight : float, optional
        How much it counts.
    """

    path: Path
    target: float
    group: bytes | None = None
    weight: float | None = None


def load_images(
    folders: Mapping[str, Path], schema: ImageSchema, *, seed: int, name: str
) -> SiloedData:
    """Load one folder of images for each organisation; see `load_own`.

    Raises
    ------
    DataError
        With the organisation and path of every image that does not fit.
    """
    with tempfile.TemporaryFile(prefix="fedegoists-") as file:  # what is mapped stays
        return _loaded(folders, schema, KeptImages(schema.images, file), seed, name)


def _loaded(
    folders: Mapping[str, Path], schema: ImageSchema, kept: "KeptImages", seed: int, name: str
) -> SiloedData:
    """Decode all images and divide them; problems are told together."""
    problems = Problems()
    entries: dict[str, list[ImageEntry]] = {}
    for organisation, folder in folders.items():
        owner = f"organisation {organisation!r}"
        listed = image_entries(owner, folder, schema, problems)
        entries[organisation] = [one for one in listed if kept.add(owner, one.path, problems)]
    problems.tell()
    silos, groups, notes, warnings = _divided(entries, folders, schema, kept, seed)
    images, everything = kept.array(), [one for own in entries.values() for one in own]
    targets = _targets(everything, schema)
    scales: tuple[TargetScale, ...] = ()
    if schema.task == "regression":
        targets, scales = scaled_targets(targets, silos)
    weights = [one.weight for one in everything if one.weight is not None]
    what = "a number" if schema.classes is None else f"one of {len(schema.classes)} classes"
    height, width = images.shape[1:3]
    return SiloedData(
        name,
        schema.task,
        Samples((images,), targets, np.array(weights) if weights else None, groups),
        tuple(silos),
        None if schema.classes is None else len(schema.classes),
        f"Predict {what} from images of {height} × {width}; a silo is an organisation.",
        (*kept.notes(), *notes),
        preparation=(_preparation(schema.images, kept.kind, len(silos)),),
        class_names=schema.classes or (),
        target_scales=scales,
        schema=schema,
        warnings=tuple(warnings),
    )


def _divided(
    entries: Mapping[str, list[ImageEntry]],
    folders: Mapping[str, Path],
    schema: ImageSchema,
    kept: "KeptImages",
    seed: int,
) -> tuple[list[SiloIndices], Indices | None, list[str], list[str]]:
    """Return the silos and the groups of images, with notes and warnings about them."""
    problems, silos, notes, warnings, start = Problems(), [], [], [], 0
    divisions = []
    for organisation, own in entries.items():
        groups = [one.group for one in own if one.group is not None]
        where = f"organisation {organisation!r}, {folders[organisation]}"
        keyed = KeyedSamples(
            where=where,
            target_at=where,
            words=IMAGES,
            content=kept.content[start : start + len(own)],
            groups=groups or None,
            group="different patients",
            targets=_targets(own, schema),
            task=schema.task,
            class_names=schema.classes,
        )
        remarks: tuple[list[str], list[str]] = ([], [])
        division = problems.attempt(partial(divided, keyed, seed, *remarks))
        if division is not None:
            silos.append(division.silo(organisation, start))
            divisions.append(division)
        notes += [f"{organisation}: {text}" for text in remarks[0]]
        warnings += [f"{organisation}: {text}" for text in remarks[1]]
        start += len(own)
    problems.tell()
    return silos, joined_groups(divisions), notes, warnings


def _targets(entries: Sequence[ImageEntry], schema: ImageSchema) -> Array:
    targets = np.array([one.target for one in entries])
    return targets if schema.classes is None else targets.astype(np.int64)


def _preparation(settings: ImageSettings, kind: str, silos: int) -> Preparation:
    """Return how values as they were stored became inputs from -1 to 1."""
    low, high = settings.levels or (0.0, 255.0)
    middle = np.full((silos, len(COLOURS[kind])), (low + high) / 2)
    factor = np.full_like(middle, 2 / (high - low))
    columns, missing = COLOURS[kind], middle + np.nan
    return Preparation("pixels", columns, middle, factor, missing, clip=1.0, kind="images")


@dataclass(frozen=True)
class ImageForm:
    """The form that images must have where a schema declares no other.

    Attributes
    ----------
    of : str
        The images that have it, for messages.
    size : tuple of int
        Height and width.
    kind : {"grey", "rgb"}
        The kind of their colours.
    resize, convert : str
        What to do with an image of another size or kind, for messages.
    """

    of: str
    size: tuple[int, int]
    kind: str
    resize: str = (
        "declare size = [height, width] in [images] of the schema, to which all are resized"
    )
    convert: str = (
        'declare colours = "grey" or "rgb" in [images] of the schema, to which all are converted'
    )


class KeptImages:
    """All images, of one shape, one after the other in a file.

    Parameters
    ----------
    settings : ImageSettings
        What becomes of the images.
    file : binary file
        It holds the images, and must be empty.
    form : ImageForm, optional
        The form that images must have; by default that of the first one.

    Attributes
    ----------
    content : list of bytes
        A hash of each image's file.
    kind : str
        The kind of colours, which is known after the first image.
    """

    def __init__(
        self, settings: ImageSettings, file: IO[bytes], form: ImageForm | None = None
    ) -> None:
        self._settings, self._file, self._form = settings, file, form
        self._type = np.uint8 if settings.bits == 8 else np.int16
        self._shape: tuple[int, ...] = ()
        self._changed: Counter[str] = Counter()
        self.content: list[bytes] = []
        self.kind: str = settings.colours or "grey"

    def add(self, owner: str, path: Path, problems: Problems) -> bool:
        """Decode and keep an image; return whether that was possible, and take note if not."""
        try:
            content = path.read_bytes()
            image = decoded(content)
            values = self._fitting(path, image)
        except MissingDependencyError:
            raise
        except DataError as error:
            problems.found.append(DataError(f"{owner}, {path}: {error}"))
            return False
        except OSError as error:
            problems.found.append(FileError(f"{owner}, {path}: {error.strerror or error}"))
            return False
        try:
            self._file.write(np.ascontiguousarray(values).data)
        except OSError as error:
            raise FileError(
                f"{tempfile.gettempdir()}: {error.strerror or error}; images are decoded into a "
                "temporary file there: set TMPDIR to a folder with more room"
            ) from None
        self.content.append(hashlib.blake2b(content, digest_size=16).digest())
        return True

    def _fitting(self, path: Path, image: DecodedImage) -> Array:
        """Return an image as it is kept; refuse one of another form."""
        size, colours = self._settings.size, self._settings.colours
        values = prepared_image(image, self._settings)
        if self._form is None:
            self._form = ImageForm(f"{path} is", image.size, image.kind)
        form = self._form
        if size is None and image.size != form.size:
            raise DataError(
                f"it is {_shown(image.size)}, but {form.of} {_shown(form.size)} (height × width); "
                f"{form.resize}"
            )
        if colours is None and image.kind != form.kind:
            raise DataError(f"it is {image.kind}, but {form.of} {form.kind}; {form.convert}")
        self._shape, self.kind = values.shape, colours or form.kind
        self._changed["resized"] += size is not None and image.size != size
        self._changed[f"converted to {colours}"] += colours not in (None, image.kind)
        return values

    def array(self) -> Array:
        """Return all images, mapped from the file."""
        self._file.flush()
        shape = (len(self.content), *self._shape)
        return np.memmap(self._file, dtype=self._type, mode="r", shape=shape)

    def notes(self) -> list[str]:
        """Return facts about what became of the images."""
        kept = f"{len(self.content):,} images are kept as {_shown(self._shape)} {self.kind} values"
        size = self._file.tell() / 1e6
        return [
            f"{kept} of {self._settings.bits} bits, {size:,.1f} MB in a temporary file",
            *self.changes(),
        ]

    def changes(self) -> list[str]:
        """Return how many images were resized or converted."""
        return [f"{count:,} images were {how}" for how, count in self._changed.items() if count]


def _shown(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape[:2]))


def image_entries(
    owner: str, folder: Path, schema: ImageSchema, problems: Problems
) -> list[ImageEntry]:
    """Return the images of one organisation, sorted by path; problems are collected."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "no such folder"
        problems.found.append(FileError(f"{owner}, {folder}: {what}; give its folder of images"))
        return []
    reader = _in_class_folders if schema.images.list is None else _in_list
    return reader(owner, folder, schema, problems)


def _in_class_folders(
    owner: str, folder: Path, schema: ImageSchema, problems: Problems
) -> list[ImageEntry]:
    assert schema.classes is not None  # checked with the schema
    found: list[ImageEntry] = []
    for path in visible(folder):
        if not path.is_dir():
            problems.found.append(
                DataError(
                    f"{owner}, {path}: not in the folder of a class; move it into one of "
                    f"{_names(schema)}, or elsewhere"
                )
            )
        elif path.name not in schema.classes:
            problems.found.append(
                DataError(f"{owner}, {path}: no declared class; the schema has {_names(schema)}")
            )
        else:
            own = images_below(owner, path, problems)
            if not own:
                problems.found.append(
                    DataError(
                        f"{owner}, {path}: no images of this class; remove the folder if there "
                        "are none"
                    )
                )
            label = schema.classes.index(path.name)
            groups = _named_groups(owner, path, own, schema.images.group, problems)
            found += map(ImageEntry, own, [label] * len(own), groups)
    if not found and not problems.found:
        problems.found.append(
            DataError(
                f"{owner}, {folder}: no images; put them into folders named {_names(schema)}, or "
                "name a list of their paths in [images] of the schema"
            )
        )
    return found


def _named_groups(
    owner: str, folder: Path, paths: list[Path], pattern: str | None, problems: Problems
) -> list[bytes | None]:
    """Return the key of each image's patient, as a pattern finds it in the path."""
    if pattern is None:
        return [None] * len(paths)
    groups: list[bytes | None] = []
    for path in paths:
        match = re.match(pattern, path.relative_to(folder).as_posix())
        if match is None or not match[1]:
            problems.found.append(
                DataError(
                    f"{owner}, {path}: the pattern {pattern!r} for the patient (group) does not "
                    "fit; rename the file, or change the pattern"
                )
            )
        groups.append(None if match is None else (match[1] or "").encode())
    return groups


def _in_list(owner: str, folder: Path, schema: ImageSchema, problems: Problems) -> list[ImageEntry]:
    """Return the images in a list; a path that leads nowhere is a problem."""
    settings = schema.images
    assert settings.list is not None
    given = {
        "features": [settings.path],
        "target": settings.label,
        "task": schema.task,
        "classes": schema.classes,
        "group": settings.group,
        "weight": settings.weight,
    }
    columns = validated(Schema, given, "the list of images")
    numbers = {settings.weight} - {None} | ({settings.label} if schema.classes is None else set())
    needed = (settings.path, settings.label, settings.group, settings.weight)
    wanted = WantedColumns(
        tuple(name for name in needed if name is not None),
        numbers=numbers,  # type: ignore[arg-type]
    )
    table = problems.attempt(lambda: read_table(owner, folder / str(settings.list), wanted))
    if table is None:
        return []
    targets = problems.attempt(lambda: target_of(table, columns))
    groups = _optional(problems, settings.group, lambda name: group_keys(table, name))
    weights = _optional(problems, settings.weight, lambda name: row_weights(table, name))
    paths = listed_paths(table, settings.path, folder, problems)
    if targets is None or problems.found:
        return []
    count = len(paths)
    return [
        ImageEntry(path, target, group, weight)
        for path, target, group, weight in zip(
            paths,
            targets.tolist(),
            [None] * count if groups is None else groups,
            [None] * count if weights is None else weights.tolist(),
            strict=True,
        )
    ]


def listed_paths(table: DataTable, column: str, folder: Path, problems: Problems) -> list[Path]:
    """Return the paths in a list of images; one that leads nowhere is a problem."""
    paths = [folder / text for text in table.texts(column)]
    for row, path in enumerate(paths):
        if not path.is_file():
            place = table.place(row, column)
            problems.found.append(
                DataError(f"{place}: {path} is no file; paths begin at the folder of the list")
            )
    return paths


def _optional(
    problems: Problems, column: str | None, read: Callable[[str], Result]
) -> Result | None:
    return None if column is None else problems.attempt(lambda: read(column))


def visible(folder: Path) -> list[Path]:
    """Return the content of a folder, sorted, without what operating systems leave there."""
    return sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.name.casefold() not in IGNORED
    )


def images_below(owner: str, folder: Path, problems: Problems) -> list[Path]:
    """Return the images in a folder and the folders in it; other files are problems."""
    found = []
    for path in visible(folder):
        if path.is_dir():
            found += images_below(owner, path, problems)
        elif is_image(path):
            found.append(path)
        else:
            problems.found.append(
                DataError(
                    f"{owner}, {path}: not an image that can be read; move it elsewhere "
                    f"(images end in {', '.join(ENDINGS)})"
                )
            )
    return found


def is_image(path: Path) -> bool:
    """Return whether a file is an image by its ending; DICOM files may have none."""
    if path.suffix.casefold() in ENDINGS:
        return True
    try:
        with path.open("rb") as file:
            return file.read(DICOM_MARK.stop)[DICOM_MARK] == b"DICM"
    except OSError:
        return False


def _names(schema: ImageSchema) -> str:
    return ", ".join(map(repr, (schema.classes or ())[:12]))

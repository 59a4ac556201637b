"""Profile of an organisation's folder of images: classes, sizes, copies, unreadable files."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedegoists.learning.data import DataError
from fedegoists.learning.datasets.feature_encoding import Problems
from fedegoists.learning.datasets.image_files import decoded
from fedegoists.learning.datasets.image_folders import image_entries, is_image, visible
from fedegoists.learning.datasets.image_schema import ImageSchema
from fedegoists.learning.datasets.table_files import READERS

SHOWN = 4
"""Sizes that are shown."""


@dataclass(frozen=True)
class ImageProfile:
    """What an organisation's folder of images seems to hold.

    Attributes
    ----------
    images, copies : int
        Image files, and how many of them have the same content as another.
    classes : mapping of str to int
        Images in each folder, or with each label in the list.
    sizes : mapping of (int, int) to int
        Images of each height and width.
    kinds : mapping of str to int
        Images of each kind, such as ``grey, 8 bits``.
    unreadable : tuple of str
        Files that cannot be opened, each with the reason.
    """

    images: int
    copies: int
    classes: Mapping[str, int]
    sizes: Mapping[tuple[int, int], int]
    kinds: Mapping[str, int]
    unreadable: tuple[str, ...]


def profiled_images(
    owner: str, folder: Path, schema: ImageSchema | None, problems: Problems
) -> ImageProfile:
    """Return the profile of one organisation's images.

    Parameters
    ----------
    schema : ImageSchema, optional
        The schema; without one, every folder in the organisation's is taken for a class.
    problems : Problems
        Receives what does not fit the schema.
    """
    if schema is None:
        labelled = [(path, part.name) for part in visible(folder) for path in _below(part)]
    else:
        names = schema.classes
        labelled = [
            (one.path, "" if names is None else names[int(one.target)])
            for one in image_entries(owner, folder, schema, problems)
        ]
    sizes: Counter[tuple[int, int]] = Counter()
    kinds: Counter[str] = Counter()
    content, unreadable = set(), []
    for path, _ in labelled:
        try:
            own = path.read_bytes()
            image = decoded(own)
        except (DataError, OSError) as error:
            unreadable.append(f"{path}: {error}")
            continue
        content.add(hashlib.blake2b(own).digest())
        sizes[image.size] += 1
        kinds[f"{image.kind}, {'8 bits' if image.eight_bits else 'more than 8 bits'}"] += 1
    copies = len(labelled) - len(unreadable) - len(content)
    classes = Counter(label for _, label in labelled)
    return ImageProfile(len(labelled), copies, classes, sizes, kinds, tuple(unreadable))


def _below(path: Path) -> list[Path]:
    if path.is_dir():
        return [image for part in visible(path) for image in _below(part)]
    return [path] if is_image(path) else []


def holds_images(folder: Path) -> bool:
    """Return whether a folder has folders and no tables, as one with images does."""
    content = visible(folder)
    return any(path.is_dir() for path in content) and not any(
        path.suffix.casefold() in READERS for path in content if path.is_file()
    )


def proposed_image_schema(profiles: Mapping[str, ImageProfile]) -> str:
    """Return a schema.toml to start from, for folders of images that have none.

    Examples
    --------
    >>> one = ImageProfile(9, 0, {"ill": 4, "well": 5}, {(8, 8): 9}, {"grey, 8 bits": 9}, ())
    >>> print(proposed_image_schema({"North": one}))
    task = "binary"
    classes = ["ill", "well"] # the second one is positive
    <BLANKLINE>
    [images]
    <BLANKLINE>
    """
    classes = sorted({name for one in profiles.values() for name in one.classes})
    sizes: Counter[tuple[int, int]] = Counter()
    kinds: Counter[str] = Counter()
    for one in profiles.values():
        sizes.update(one.sizes)
        kinds.update(one.kinds)
    quoted = ", ".join(f'"{name}"' for name in classes)
    binary = len(classes) == 2
    lines = [
        f'task = "{"binary" if binary else "classification"}"',
        f"classes = [{quoted}]{' # the second one is positive' if binary else ''}",
        "",
        "[images]",
    ]
    if len(sizes) > 1:
        height, width = sizes.most_common(1)[0][0]
        lines.append(f"size = [{height}, {width}] # to which all are resized")
    if len({kind.partition(",")[0] for kind in kinds}) > 1:
        lines.append('colours = "grey" # or "rgb", to which all are converted')
    if any("more" in kind for kind in kinds):
        lines.append("range = [0, 4095] # the values that become black and white")
    return "\n".join(lines) + "\n"


def shown_sizes(sizes: Mapping[tuple[int, int], int]) -> str:
    """Return the most frequent sizes with their numbers."""
    first = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    texts = [f"{height} × {width} ({count:,})" for (height, width), count in first[:SHOWN]]
    return ", ".join(texts) + (f", and {len(first) - SHOWN} more" if len(first) > SHOWN else "")

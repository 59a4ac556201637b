"""The agreed schema of a consortium's folders of images."""

import re
from typing import Annotated, Literal

from pydantic import Field, StrictInt, model_validator

from fedegoists.learning.datasets.schema import ClassName, Name
from fedegoists.learning.typed_settings import TypedSettings

Side = Annotated[StrictInt, Field(ge=1, le=4096)]
COLOURS = {"grey": ("grey",), "rgb": ("red", "green", "blue")}
"""The names of the colours of an image, by its kind."""


class ImageSettings(TypedSettings):
    """How images lie in folders, and what becomes of them.

    Without `list`, an organisation's folder has one folder for each class it has, and in these
    folders, or in folders below them, the images.
    """

    size: tuple[Side, Side] | None = None
    """Height and width to which every image is resized, with smoothing; without it all images must
    have one size."""
    colours: Literal["grey", "rgb"] | None = None
    """Every image is converted to this; without it all images must be of one kind."""
    range: tuple[float, float] | None = None
    """The values that become black and white, such as [-1000, 400] in Hounsfield units; values
    outside are cut off. By default 0 to 255, and with bits = 16, 0 to 65535. Images with more than
    8 bits need it, or bits = 16."""
    bits: Literal[8, 16] = 8
    """Bits to keep of each value, within the range."""
    list: Name | None = None
    """A table in each organisation's folder, such as images.csv, with one row for each image,
    instead of folders for classes."""
    path: Name = "path"
    """The column of the list with the paths of images, from the list's own folder."""
    label: Name = "label"
    """The column of the list with the class, or the number to predict."""
    group: Name | None = None
    """What names a patient, whose images are never in two splits: a column of the list. Without a
    list, a pattern (regular expression) for an image's path below its class folder, whose part in
    parentheses names the patient, such as ([^/]+)/ or (p[0-9]+)_. By default, copies of an image
    are not in two splits."""
    weight: Name | None = None
    """A column of the list that says how much each image counts in the loss."""

    @model_validator(mode="after")
    def _consistent(self) -> "ImageSettings":
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range is {list(self.range)}; the first number must be the smaller")
        if self.list is None:
            if self.weight is not None:
                raise ValueError("weight is a column of the list: name that, too")
            if self.group is not None and _groups_in(self.group) != 1:
                raise ValueError(
                    f"group is {self.group!r}; without a list, give a pattern with one pair of "
                    "parentheses, such as ([^/]+)/ for one folder for each patient"
                )
        return self

    @property
    def levels(self) -> tuple[float, float] | None:
        """The values that become black and white; None if those of 8-bit images do."""
        if self.range is None and self.bits == 8:
            return None
        return self.range or (0.0, 65535.0)


def _groups_in(pattern: str) -> int:
    try:
        return re.compile(pattern).groups
    except re.error:
        return -1


class ImageSchema(TypedSettings):
    """What is agreed about a consortium's images.

    Examples
    --------
    >>> schema = ImageSchema(task="binary", classes=("benign", "malignant"), images={})
    >>> schema.images.bits
    8
    """

    task: Literal["classification", "binary", "regression"]
    """One of several classes, one of two, or a number."""
    classes: tuple[ClassName, ...] | None = None
    """The names of the folders, or the labels in the list; in a binary task the second one is
    positive."""
    images: ImageSettings
    """How images lie in folders, and what becomes of them."""

    @model_validator(mode="after")
    def _consistent(self) -> "ImageSchema":
        if self.task == "regression":
            if self.classes is not None:
                raise ValueError("a regression has no classes; leave them out")
            if self.images.list is None:
                raise ValueError("a regression needs a list, in which the label is a number")
            return self
        count = len(self.classes or ())
        if count < 2 or (self.task == "binary" and count != 2):
            expected = "two" if self.task == "binary" else "at least two"
            raise ValueError(f"a {self.task} task has {expected} classes, not {count}")
        if len(set(self.classes or ())) < count:
            raise ValueError("a class is twice in classes; remove one")
        return self

"""The agreed schema of a consortium's files."""

import os
import tomllib
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, model_validator

from fedegoists.errors import SettingsError
from fedegoists.files import read_text
from fedegoists.learning.data import TaskName
from fedegoists.learning.typed_settings import TypedSettings, validated

Name = Annotated[StrictStr, Field(pattern=r"\S")]
# A file with the classes 0 and 1 invites to write them without quotes.
ClassName = Annotated[Name, BeforeValidator(lambda v: str(v) if type(v) is int else v)]


class Schema(TypedSettings):
    """Names and meaning of the columns that every organisation's file must have.

    Examples
    --------
    >>> schema = Schema(
    ...     features=("age", "income"), target="default", task="binary", classes=("no", "yes")
    ... )
    >>> schema.columns
    ('age', 'income', 'default')
    """

    features: tuple[Name, ...] = Field(min_length=1)
    """Columns with numbers to predict from, in the order of the model's inputs."""
    target: Name
    """The column to predict."""
    task: TaskName
    """One of several classes, one of two, or a number."""
    classes: tuple[ClassName, ...] | None = None
    """Values of the target as written in the files; in a binary task the second one is positive."""
    missing: Literal["error", "mean"] = "error"
    """Refuse an empty cell, or fill in the mean over the organisation's own training rows."""
    standardise: StrictBool = True
    """Scale every feature to mean 0 and deviation 1 by the organisation's own training rows; models
    train badly on numbers like 50,000."""

    @model_validator(mode="after")
    def _consistent(self) -> "Schema":
        for what, names in (("features", self.features), ("classes", self.classes or ())):
            repeated = [name for k, name in enumerate(names) if name in names[:k]]
            if repeated:
                raise ValueError(f"{repeated[0]!r} is twice in {what}; remove one")
        if self.target in self.features:
            raise ValueError(
                f"{self.target!r} is the target and a feature; what is to be predicted cannot be "
                "given to the model"
            )
        if self.task == "regression":
            if self.classes is not None:
                raise ValueError("a regression has no classes; leave them out")
            return self
        if self.classes is None:
            raise ValueError(f"a {self.task} task needs classes: the values of {self.target!r}")
        count = len(self.classes)
        if count < 2 or (self.task == "binary" and count != 2):
            expected = "two" if self.task == "binary" else "at least two"
            raise ValueError(f"a {self.task} task has {expected} classes, not {count}")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that a file must have: the features, then the target."""
        return (*self.features, self.target)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> "Schema":
        """Read a schema from a TOML file with the fields of this class.

        Raises
        ------
        SettingsError
            If the file is not TOML or not a schema.
        FileError
            If it cannot be read.
        """
        try:
            settings = tomllib.loads(read_text(path))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{os.fspath(path)}: not TOML ({error})") from None
        return validated(cls, settings, f"{os.fspath(path)}")

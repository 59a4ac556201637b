"""What the organisations of a consortium have agreed that their files contain."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

from fedegoists.errors import SettingsError
from fedegoists.files import read_text
from fedegoists.graphs.participants import shown
from fedegoists.learning.data import TaskName

__all__ = ["Schema"]

Missing = Literal["error", "mean"]


@dataclass(frozen=True)
class Schema:
    """Names and meaning of the columns that every organisation's file must have.

    Parameters
    ----------
    features : sequence of str
        The columns with numbers to predict from, in the order in which models get them.
    target : str
        The column to predict.
    task : {"classification", "binary", "regression"}
        What the target is: one of several classes, one of two, or a number.
    classes : sequence of str, or None
        The values that the target may have, as they are written in the files; of two in a binary
        task the second is the positive one. None for a regression.
    missing : {"error", "mean"}
        What to do with an empty cell in a feature: refuse it, or fill in the mean over the
        organisation's own training rows.
    standardise : bool
        Whether to scale every feature to mean 0 and deviation 1 by each organisation's own
        training rows. Models train badly on numbers like 50,000.

    Raises
    ------
    SettingsError
        If columns repeat, or the classes do not fit the task.

    Examples
    --------
    >>> schema = Schema(("age", "income"), "default", "binary", ("no", "yes"))
    >>> schema.columns
    ('age', 'income', 'default')
    """

    features: tuple[str, ...]
    target: str
    task: TaskName
    classes: tuple[str, ...] | None = None
    missing: Missing = "error"
    standardise: bool = True

    def __post_init__(self) -> None:
        features = _names("features", self.features)
        object.__setattr__(self, "features", features)
        if not features:
            raise SettingsError("schema: features is empty; name at least one column")
        if not isinstance(self.target, str) or not self.target.strip():
            raise SettingsError(f"schema: target is {shown(self.target)}; name one column")
        if self.target in features:
            raise SettingsError(
                f"schema: {self.target!r} is the target and a feature; what is to be predicted "
                "cannot be given to the model"
            )
        for name, value, allowed in (
            ("task", self.task, get_args(TaskName)),
            ("missing", self.missing, get_args(Missing)),
        ):
            if value not in allowed:
                raise SettingsError(
                    f"schema: {name} is {shown(value)}; choose one of {', '.join(allowed)}"
                )
        if not isinstance(self.standardise, bool):
            raise SettingsError(
                f"schema: standardise is {shown(self.standardise)}; choose true or false"
            )
        self._check_classes()

    def _check_classes(self) -> None:
        if self.task == "regression":
            if self.classes is not None:
                raise SettingsError("schema: a regression has no classes; leave them out")
            return
        if self.classes is None:
            raise SettingsError(
                f"schema: a task of the kind {self.task} needs classes: the values that "
                f"{self.target!r} may have"
            )
        classes = _names("classes", self.classes)
        object.__setattr__(self, "classes", classes)
        if len(classes) < 2 or (self.task == "binary" and len(classes) != 2):
            expected = "two" if self.task == "binary" else "at least two"
            raise SettingsError(
                f"schema: a task of the kind {self.task} has {expected} classes, not {len(classes)}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that a file must have: the features, then the target."""
        return (*self.features, self.target)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> "Schema":
        """Return the schema in a mapping of its fields, as TOML files have them.

        Examples
        --------
        >>> Schema.from_mapping({"features": ["a"], "target": "y", "task": "regression"}).columns
        ('a', 'y')
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise SettingsError(
                    f"schema: unknown setting {shown(name)}; settings are {', '.join(known)}"
                )
        for name in ("features", "target", "task"):
            if name not in settings:
                raise SettingsError(f"schema: the setting {name!r} is missing")
        given = dict(settings)
        if isinstance(given.get("classes"), list):
            # A file with the classes 0 and 1 invites to write them without quotes.
            given["classes"] = [
                str(value) if type(value) is int else value for value in given["classes"]
            ]
        return cls(**given)

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
        try:
            return cls.from_mapping(settings)
        except SettingsError as error:
            raise SettingsError(f"{os.fspath(path)}: {error}") from None


def _names(what: str, names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise SettingsError(f"schema: {what} is {shown(names)}; give a list of texts")
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise SettingsError(f"schema: {what} holds {shown(name)}; give a list of texts")
        if name in seen:
            raise SettingsError(f"schema: {name!r} stands twice in {what}")
        seen.add(name)
    return tuple(cast("Sequence[str]", names))

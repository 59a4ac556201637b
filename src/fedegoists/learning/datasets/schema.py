"""The agreed schema of a consortium's files."""

import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from fedegoists.errors import SettingsError
from fedegoists.files import read_text
from fedegoists.learning.data import TaskName
from fedegoists.learning.datasets.data_tables import WantedColumns
from fedegoists.learning.partitioners import SPLIT_SHARES
from fedegoists.learning.typed_settings import TypedSettings, validated

OTHER = "other"
"""The category of all values that are not declared."""

Name = Annotated[StrictStr, Field(pattern=r"\S")]
# A file with the classes 0 and 1 invites to write them without quotes.
ClassName = Annotated[Name, BeforeValidator(lambda v: str(v) if type(v) is int else v)]
Code = StrictStr | StrictInt | StrictFloat
Share = Annotated[float, Field(ge=0.05, le=0.9)]
ColumnKind = Literal["number", "category", "boolean", "date"]


class ColumnSettings(TypedSettings):
    """What is agreed about one feature, besides its name.

    Examples
    --------
    >>> ColumnSettings(categories=("icu", "surgery")).kind
    'category'
    """

    kind: ColumnKind = "number"
    """A number, one of several categories, true or false, or a date."""
    categories: tuple[ClassName, ...] = ()
    """Categories as written in the files. All other values count as one more, so rare values need
    not be told to anyone."""
    format: StrictStr = ""
    """How dates are written, such as %d.%m.%Y; by default as 2024-03-31."""
    unit: Name | None = None
    """The unit of a number; a file may have it in the column's name, as in: crp [mg/l]."""
    range: tuple[float, float] | None = None
    """The smallest and the largest number that is possible; others are refused."""
    optional: StrictBool = False
    """Whether organisations may lack the column; missing values are filled in and marked."""
    missing_values: tuple[Code, ...] | None = None
    """Values that stand for a missing one, such as -999; by default those of the schema."""

    @model_validator(mode="before")
    @classmethod
    def _implied_kind(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("categories") and "kind" not in given:
            return {**given, "kind": "category"}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> "ColumnSettings":
        if bool(self.categories) != (self.kind == "category"):
            raise ValueError("kind = 'category' and categories = […] go together")
        if self.format and self.kind != "date":
            raise ValueError("format is for kind = 'date'")
        if (self.unit or self.range) and self.kind != "number":
            raise ValueError("unit and range are for numbers")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError("range is the smallest and the largest number, in this order")
        repeated = [name for k, name in enumerate(self.categories) if name in self.categories[:k]]
        if repeated or OTHER in self.categories:
            name = repeated[0] if repeated else OTHER
            why = "is there twice" if repeated else "stands for all that are not declared"
            raise ValueError(f"category {name!r} {why}; remove it")
        return self


class SequenceSettings(TypedSettings):
    """Measurements over time, in a second table of each organisation.

    Each organisation is then a folder with two tables: one with a row for each stay or patient, and
    one with a row for each time at which something was measured.
    """

    table: Name = "patients.csv"
    """The table with one row for each stay or patient, with the target and the static features."""
    steps_file: Name = "steps.csv"
    """The table of measurements."""
    key: Name
    """The column, in both tables, that tells whose measurements they are."""
    time: Name
    """The column of the measurements with the time, a number."""
    features: Annotated[tuple[Name, ...], Field(min_length=1)]
    """The columns of the measurements to predict from; empty cells were not measured."""
    steps: Annotated[StrictInt, Field(ge=1, le=10_000)]
    """The number of time steps."""
    step: Annotated[float, Field(gt=0)] = 1.0
    """The length of a step; values are means over the measurements in it."""
    start: float = 0.0
    """The time at which the first step begins."""


class Schema(TypedSettings):
    """Names and meaning of the columns that every organisation's file must have.

    Examples
    --------
    >>> schema = Schema(
    ...     features=("age", "ward"),
    ...     target="default",
    ...     task="binary",
    ...     classes=("no", "yes"),
    ...     columns={"ward": {"categories": ("icu", "surgery")}},
    ... )
    >>> schema.inputs
    ('age', 'ward=icu', 'ward=surgery', 'ward=other')
    """

    features: tuple[Name, ...] = Field(min_length=1)
    """Columns to predict from, in the order of the model's inputs."""
    target: Name
    """The column to predict; for survival, the time to the event or to the last news."""
    task: TaskName
    """One of several classes, one of two, a number, or the time to an event."""
    classes: tuple[ClassName, ...] | None = None
    """Values of the target as written in the files; in a binary task the second one is positive."""
    event: Name | None = None
    """For survival: the column that says whether the event has happened (1, yes, true)."""
    group: Name | None = None
    """A column such as a patient's number: rows with the same value are never in two splits. By
    default, rows with the same features are not."""
    weight: Name | None = None
    """A column with numbers above 0: how much each row counts in the loss. Only ratios within an
    organisation's split matter; a weight of 2 is as good as a copy of the row."""
    split: tuple[Share, Share, Share] = SPLIT_SHARES
    """Fractions of the rows for training, validation and test. With little data, more rows for test
    make results more certain, and models a little worse."""
    missing: Literal["error", "mean", "indicate"] = "error"
    """Refuse an empty cell, or fill in the mean over the organisation's own training rows; indicate
    also adds an input for each feature that says whether it was missing."""
    missing_values: tuple[Code, ...] = ()
    """Values that stand for a missing one in any feature, such as ? or -999."""
    standardise: StrictBool = True
    """Scale every number, also the one to predict, to mean 0 and deviation 1 by the organisation's
    own training rows; models train badly on numbers like 50,000. Results are in the number's own
    units all the same."""
    columns: dict[Name, ColumnSettings] = Field(default={})
    """More about single features, as [columns.NAME]."""
    sequence: SequenceSettings | None = None
    """Measurements over time in a second table, as [sequence]; rows of one key are then never in
    two splits."""

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
        if not math.isclose(sum(self.split), 1.0, abs_tol=1e-6):
            raise ValueError(f"the fractions in split sum to {sum(self.split):g}, not to 1")
        if (self.event is not None) != (self.task == "survival"):
            raise ValueError('task = "survival" and event = "…" go together')
        if self.event is not None and self.event in (*self.features, self.target):
            raise ValueError(f"{self.event!r} is the event and a feature or the target")
        if self.group is not None and self.group in (*self.features, self.target):
            raise ValueError(
                f"{self.group!r} is the group and a feature or the target; a number that names a "
                "patient tells nothing about others"
            )
        if self.weight is not None and self.weight in (*self.features, self.target, self.group):
            raise ValueError(f"{self.weight!r} is the weight, and a feature, target or group")
        if self.sequence is not None and self.sequence.key in (*self.features, self.target):
            raise ValueError(f"{self.sequence.key!r} is the key, and a feature or the target")
        for name in self.columns:
            if name not in self.features:
                raise ValueError(f"[columns.{name}]: {name!r} is not one of the features")
        inputs = self.inputs
        repeated = [name for k, name in enumerate(inputs) if name in inputs[:k]]
        if repeated:
            raise ValueError(f"two inputs would be called {repeated[0]!r}; rename a column")
        if self.task in ("regression", "survival"):
            if self.classes is not None:
                raise ValueError(f"a {self.task} has no classes; leave them out")
            return self
        if self.classes is None:
            raise ValueError(f"a {self.task} task needs classes: the values of {self.target!r}")
        count = len(self.classes)
        if count < 2 or (self.task == "binary" and count != 2):
            expected = "two" if self.task == "binary" else "at least two"
            raise ValueError(f"a {self.task} task has {expected} classes, not {count}")
        return self

    def column(self, name: str) -> ColumnSettings:
        """Return what is agreed about a feature."""
        return self.columns.get(name, ColumnSettings())

    def codes(self, name: str) -> tuple[Code, ...]:
        """Return the values that stand for a missing one in a feature."""
        own = self.column(name).missing_values
        return self.missing_values if own is None else own

    def indicated(self, name: str) -> bool:
        """Return whether an input says that a feature was missing."""
        return self.missing == "indicate" or self.column(name).optional

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """Return the model's inputs that a feature becomes, without its indicator."""
        rule = self.column(name)
        if rule.kind != "category":
            return (name,)
        return tuple(f"{name}={category}" for category in (*rule.categories, OTHER))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the model's inputs: those of all features, then the indicators."""
        return (
            *(column for name in self.features for column in self.inputs_of(name)),
            *(f"{name} missing" for name in self.features if self.indicated(name)),
        )

    @property
    def scaled(self) -> tuple[int, ...]:
        """The positions of the inputs that are scaled: numbers and dates."""
        if not self.standardise:
            return ()
        kinds = {name: self.column(name).kind for name in self.features}
        return tuple(
            k for k, name in enumerate(self.inputs) if kinds.get(name) in ("number", "date")
        )

    @property
    def wanted(self) -> WantedColumns:
        """The columns to read from a file."""
        optional = tuple(name for name in self.features if self.column(name).optional)
        required = tuple(name for name in self.features if name not in optional)
        key = None if self.sequence is None else self.sequence.key
        more = dict.fromkeys((self.group, self.event, self.weight, key))
        others = (self.target, *(name for name in more if name is not None))
        numbers = {name for name in self.features if self.column(name).kind == "number"}
        numbers |= {self.weight} if self.weight is not None else set()
        return WantedColumns(
            (*required, *others),
            optional,
            numbers | ({self.target} if self.classes is None else set()),
            {name: rule.unit for name, rule in self.columns.items() if rule.unit is not None},
            missing=tuple(code for code in self.missing_values if isinstance(code, str)),
        )

    def wanted_for_prediction(self, keep: Sequence[str] = ()) -> WantedColumns:
        """Return the columns to read from rows to predict for, and some more to keep."""
        given = self.wanted
        known = (*self.features, *keep)
        required = tuple(name for name in given.required if name in self.features)
        kept = tuple(name for name in keep if name not in self.features)
        numbers = {name for name in given.numbers if name in known}
        return replace(given, required=(*required, *kept), numbers=numbers)

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
        return validated(cls, toml_settings(path), os.fspath(path))


def toml_settings(path: str | os.PathLike[str]) -> dict[str, object]:
    """Return the content of a TOML file."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{os.fspath(path)}: not TOML ({error})") from None

"""What a consortium.toml says, checked before anything runs.

The command line goes before the file, the file before the defaults.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedegoists.errors import SettingsError
from fedegoists.files import read_text
from fedegoists.learning.model_registry import AUTO, model_named

__all__ = [
    "BenefitSection",
    "CompetitionSection",
    "ConsortiumSettings",
    "DataSection",
    "DeploySection",
    "FormationSection",
    "OutputSection",
    "TrainingSection",
    "checked_name",
    "read_settings",
]

KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
HEADER = re.compile(rf"\s*\[{{1,2}}\s*({KEY}(?:\s*\.\s*{KEY})*)\s*\]{{1,2}}\s*(?:#.*)?")
"""A table's own line, which a line of a list over several lines is not."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,79}$"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataSection(_Section):
    """Where the participants' data is."""

    source: str = Field(description="a data set's name, or a folder with one file per organisation")
    options: dict[str, str | int | float | bool] = Field(default={}, description="of the data set")
    seed: int = Field(
        default=0, ge=0, description="divides the samples into training, validation and test"
    )
    folder: str | None = Field(default=None, description="where real data sets are kept")


class CompetitionSection(_Section):
    """Who competes with whom, as reported in confidence."""

    pairs: tuple[tuple[str, str], ...] = Field(default=(), description="pairs of names")
    file: str | None = Field(default=None, description="a CSV with a,b instead")
    published: bool = Field(
        default=False, description="take the pairs that the data set comes with"
    )

    @model_validator(mode="after")
    def _one_source(self) -> "CompetitionSection":
        if (self.file is not None) + bool(self.pairs) + self.published > 1:
            raise ValueError("give only one of pairs, file and published")
        return self


class BenefitSection(_Section):
    """How to find out who benefits whom."""

    estimator: Literal[
        "auto", "transfer", "hypernetwork", "pairs", "alignment", "everybody", "file"
    ] = "auto"
    file: str | None = Field(default=None, description="a CSV with source,target,weight")
    threshold: float | None = Field(
        default=None, ge=0, description="an edge where the weight is above"
    )
    confidence: float = Field(
        default=0.95, ge=0.5, lt=1, description="of an edge, without a threshold"
    )
    repeats: int | None = Field(default=None, ge=2, description="independent runs of the estimator")
    steps: int | None = Field(default=None, ge=1, description="of the estimator's training")
    clip: float | None = Field(
        default=None, gt=0, description="norm of a sample's gradient, for privacy"
    )
    noise: float = Field(default=0.0, ge=0, description="noise multiplier, for privacy")
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _file_given(self) -> "BenefitSection":
        if (self.estimator == "file") != (self.file is not None):
            raise ValueError('estimator = "file" and file = "…" go together')
        return self


class FormationSection(_Section):
    """How to decide who trains with whom."""

    method: Literal["best", "stable", "published", "cliques"] = "best"
    time_limit: float | None = Field(default=None, gt=0, description="seconds for method best")
    seed: int = Field(default=0, ge=0)


class TrainingSection(_Section):
    """How to train, and what to compare."""

    model: str = Field(default=AUTO, description="the network; auto suits the data")
    methods: tuple[str, ...] = Field(default=("local", "fedavg+ft", "fedegoists"), min_length=1)
    settings: dict[str, dict[str, str | int | float | bool]] = Field(
        default={}, description="of methods, by their names"
    )
    seeds: int = Field(
        default=3, ge=1, le=100, description="trials with other initial models and batches"
    )
    steps: int | None = Field(
        default=None, ge=1, description="training steps; suits the data if left out"
    )
    personal: tuple[str, ...] | None = Field(
        default=None, description="parameters that never leave a silo"
    )
    device: str = "cpu"

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        return name if name == AUTO else model_named(name).name


class OutputSection(_Section):
    """Where results go."""

    folder: str = "runs"


class DeploySection(_Section):
    """Where silos at their organisations reach the coordinator; only for the engine flare."""

    host: str = Field(default="localhost", description="the coordinator's name in the network")
    port: int = Field(default=8002, ge=1, le=65535, description="the one port that must be open")
    participants: tuple[str, ...] = Field(
        default=(), description="the organisations, where no data of theirs is here"
    )
    schema_file: str | None = Field(
        default=None, description="the schema.toml that all files follow; goes into every kit"
    )
    days: int = Field(default=365, ge=1, le=3650, description="how long certificates are valid")
    deadline: float = Field(default=600.0, gt=0, description="seconds a silo has for an answer")
    wait: float = Field(default=60.0, ge=0, description="seconds to wait for silos at the start")


class ConsortiumSettings(_Section):
    """A whole consortium: its data, who competes, and what to do."""

    name: str = Field(default="consortium", pattern=NAME)
    data: DataSection
    competition: CompetitionSection = CompetitionSection()
    benefit: BenefitSection = BenefitSection()
    formation: FormationSection = FormationSection()
    training: TrainingSection = TrainingSection()
    output: OutputSection = OutputSection()
    deploy: DeploySection = DeploySection()


def read_settings(path: str | os.PathLike[str], changes: Sequence[str] = ()) -> ConsortiumSettings:
    """Read a consortium.toml; `changes` like ``training.seeds=5`` go before what it says.

    Paths in the file are relative to its folder.

    Raises
    ------
    SettingsError
        With file, line, key and what is allowed.
    """
    path = Path(path)
    text = read_text(path)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not a TOML file ({error})") from None
    changed = [_changed(content, change) for change in changes]
    try:
        settings = ConsortiumSettings.model_validate(content)
    except ValidationError as error:
        raise SettingsError(_explained(error, path, text, changed)) from None
    return _with_paths(settings, path.parent)


def checked_name(name: str) -> str:
    """Return the name of a run, which is that of a folder too, if it can be one."""
    if not re.fullmatch(NAME, name):
        raise SettingsError(
            f"--name {name!r}: a run's name has up to 80 letters, digits, spaces and . _ -, "
            "and begins with a letter or a digit"
        )
    return name


def _changed(content: dict[str, Any], change: str) -> tuple[str, ...]:
    """Put one change into the content of the file; return which key it was."""
    target, equals, value = change.partition("=")
    keys = tuple(part.strip() for part in target.split("."))
    if not equals or not all(keys):
        raise SettingsError(f"--set {change!r}: expected KEY=VALUE, such as training.seeds=5")
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # words need no quotes on a command line
    table = content
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise SettingsError(f"--set {change!r}: {key} is not a table")
    table[keys[-1]] = parsed
    return keys


def _explained(
    error: ValidationError, path: Path, text: str, changed: Sequence[tuple[str, ...]]
) -> str:
    """Return the first thing that is wrong: where, what was given, and what is allowed."""
    first, *others = error.errors()
    if first["type"] == "missing":
        # What is missing is often there, but misspelled.
        beside = (e for e in others if e["loc"][:-1] == first["loc"][:-1])
        first = next((e for e in beside if e["type"] == "extra_forbidden"), first)
    whole = tuple(part for part in first["loc"] if isinstance(part, str))
    # Which member of a union was tried, and its like, are no keys of the file.
    keys = whole
    while keys and not _known(keys):
        keys = keys[:-1]
    key = ".".join(keys)
    blamed = [one for one in changed if all(a == b for a, b in zip(one, whole, strict=False))]
    if whole and blamed:
        where = f"--set {'.'.join(blamed[-1] if len(blamed[-1]) > len(keys) else keys)}"
    else:
        line = _line_of(whole, text)
        where = f"{path}" + (f", line {line}" if line else "")
    given = first.get("input")
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key {'.'.join(map(str, first['loc']))!r}; {_allowed(keys)}"
    if first["type"] == "missing":
        return f"{where}: {'.'.join(map(str, first['loc']))} is missing; {message.lower()}"
    shown = "" if isinstance(given, dict) else f" is {given!r}"
    return f"{where}: {key or 'the file'}{shown}: {message[0].lower()}{message[1:]}"


def _model_at(keys: Sequence[str]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = ConsortiumSettings
    for key in keys:
        field = None if model is None else model.model_fields.get(key)
        found = None if field is None else field.annotation
        model = found if isinstance(found, type) and issubclass(found, BaseModel) else None
    return model


def _known(keys: Sequence[str]) -> bool:
    parent = _model_at(keys[:-1])
    return parent is not None and keys[-1] in parent.model_fields


def _allowed(keys: Sequence[str]) -> str:
    model = _model_at(keys)
    names = [] if model is None else list(model.model_fields)
    return f"keys {'of ' + '.'.join(keys) if keys else 'at the top'} are {', '.join(names)}"


def _line_of(keys: Sequence[str], text: str) -> int | None:
    """Return the line on which a key, or else its table, stands."""
    table: tuple[str, ...] = ()
    best: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = HEADER.fullmatch(line)
        if header:
            table = tuple(part.strip().strip("\"'") for part in header[1].split("."))
            if table == tuple(keys[: len(table)]):
                best = number
            continue
        assigned = re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line)
        if assigned:
            own = (*table, *(part.strip("\"'") for part in assigned[1].split(".")))
            if own == tuple(keys[: len(own)]):
                best = number
    return best


def _with_paths(settings: ConsortiumSettings, folder: Path) -> ConsortiumSettings:
    """Return settings whose files and folders can be found from anywhere."""

    def found(text: str | None) -> str | None:
        return None if text is None else str((folder / text).resolve())

    updates: dict[str, Mapping[str, Any]] = {
        "competition": {"file": found(settings.competition.file)},
        "benefit": {"file": found(settings.benefit.file)},
        "data": {"folder": found(settings.data.folder)},
        "output": {"folder": found(settings.output.folder)},
        "deploy": {"schema_file": found(settings.deploy.schema_file)},
    }
    if (folder / settings.data.source).is_dir():
        updates["data"] = {**updates["data"], "source": found(settings.data.source)}
    return settings.model_copy(
        update={
            name: getattr(settings, name).model_copy(update=dict(update))
            for name, update in updates.items()
        }
    )

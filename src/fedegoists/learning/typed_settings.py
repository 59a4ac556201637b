"""Settings as pydantic types, and one sentence about the first value that does not fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from fedegoists.errors import SettingsError, shown


class TypedSettings(BaseModel):
    """Base of all settings that are read from files or options: immutable, no unknown keys.

    The docstring of a setting is its description.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


@dataclass(frozen=True)
class SettingsProblem:
    """The first problem in some settings: its keys as they were given, and a sentence."""

    keys: tuple[str, ...]
    sentence: str


Type = TypeVar("Type", bound=BaseModel)


def validated(kind: type[Type], given: Mapping[str, object], where: str) -> Type:
    """Return settings of a type; an error names `where`, key, value and what is allowed."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise SettingsError(f"{where}: {first_problem(error, kind).sentence}") from None


def first_problem(error: ValidationError, kind: type[BaseModel]) -> SettingsProblem:
    """Return the first problem that pydantic found in settings of a type."""
    first, *others = error.errors(include_url=False)
    if first["type"] == "missing":
        # A key that is missing is often there, but misspelled.
        beside = (e for e in others if e["loc"][:-1] == first["loc"][:-1])
        first = next((e for e in beside if e["type"] == "extra_forbidden"), first)
    given = tuple(part for part in first["loc"] if isinstance(part, str))
    whole = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        table, model = given[:-1], _type_at(kind, given[:-1])
        known = "" if model is None else ", ".join(model.model_fields)
        of = f" of {'.'.join(table)}" if table else ""
        return SettingsProblem(given, f"unknown key {whole!r}; keys{of} are {known}")
    if first["type"] == "missing":
        return SettingsProblem(given, f"{whole} is missing")
    # Other parts of the location, such as the member of a union that was tried, are no keys.
    keys = given
    while keys and not _is_key(kind, keys):
        keys = keys[:-1]
    message = str(first["msg"]).removeprefix("Value error, ")
    if not keys:
        return SettingsProblem(given, message)
    value = (
        "" if isinstance(first["input"], Mapping | BaseModel) else f" is {shown(first['input'])}"
    )
    return SettingsProblem(given, f"{'.'.join(keys)}{value}: {message[0].lower()}{message[1:]}")


def _type_at(kind: type[BaseModel], keys: Sequence[str]) -> type[BaseModel] | None:
    """Return the type of a nested table of settings."""
    for key in keys:
        found = kind.model_fields[key].annotation if key in kind.model_fields else None
        if not isinstance(found, type) or not issubclass(found, BaseModel):
            return None
        kind = found
    return kind


def _is_key(kind: type[BaseModel], keys: Sequence[str]) -> bool:
    table = _type_at(kind, keys[:-1])
    return table is not None and keys[-1] in table.model_fields

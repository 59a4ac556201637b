"""Types for the parts of a certificate file that are refused at their first error.

Pydantic describes every wrong item of a list and every unknown key. A file of ten megabytes can
have millions of them, whose descriptions take gigabytes; the first one is enough.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, model_validator

from fedegoists.errors import shown

Item = TypeVar("Item")

ListOf = Annotated[list[Item], FailFast()]
"""A list that is refused at its first wrong item."""


class SealedPart(BaseModel):
    """An object with known keys, strict types and finite numbers only."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        """Refuse an object at its first unknown key."""
        if isinstance(data, dict):
            unknown = next((key for key in data if key not in cls.model_fields), None)
            if unknown is not None:
                raise ValueError(f"there is no entry {shown(unknown)}")
        return data


def _only(kinds: tuple[type, ...], expected: str) -> Callable[[object], object]:
    """Return a validator that refuses an object at its first value of another type."""

    def check(data: object) -> object:
        if isinstance(data, dict):
            wrong = next((key for key, value in data.items() if type(value) not in kinds), None)
            if wrong is not None:
                raise ValueError(f"{shown(wrong)}: expected {expected}")
        return data

    return check


TextsByName = Annotated[dict[str, str], BeforeValidator(_only((str,), "a text"))]
"""An object of texts."""

NumbersByName = Annotated[dict[str, float], BeforeValidator(_only((int, float), "a number"))]
"""An object of numbers."""

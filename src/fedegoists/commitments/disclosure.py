"""The base of all that is opened of a commitment: one JSON file, validated when it is read."""

import os
from typing import ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fedegoists.errors import CertificateError, first_problem
from fedegoists.files import json_value, read_text, write_bytes

VERSION: Final = 1
"""The version of the file formats."""

HASH = r"^[0-9a-f]{64}$"
"""32 bytes in hexadecimal digits."""


class Disclosure(BaseModel):
    """An immutable value with a file format; `FORMAT` is the value of its key ``format``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    FORMAT: ClassVar[str]

    def to_json(self) -> str:
        """Return the content of the file as JSON text."""
        return self.model_dump_json(indent=1) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that only its owner can read."""
        write_bytes(path, self.to_json().encode(), private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; see `from_json`."""
        return cls.from_json(read_text(path), str(path))

    @classmethod
    def from_json(cls, text: str, where: str = "") -> Self:
        """Read JSON text.

        Raises
        ------
        CertificateError
            If the text is of another format or version, or is damaged so that nothing can be
            checked.
        """
        where = where or cls.FORMAT
        data = json_value(text, where, CertificateError)  # a repeated key is an error, too
        if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (
            cls.FORMAT,
            VERSION,
        ):
            raise CertificateError(f"{where}: not a {cls.FORMAT} of version {VERSION}")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise CertificateError(f"{where}: {first_problem(error)}") from None

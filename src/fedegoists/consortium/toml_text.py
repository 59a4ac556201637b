"""A consortium.toml as text: as resolved for a run, and as an example to start from."""

import json
from typing import Any

from fedegoists.consortium.consortium_settings import ConsortiumSettings

__all__ = ["config_toml", "toml_value"]


def config_toml(settings: ConsortiumSettings) -> str:
    """Return settings as TOML, every value written out.

    Examples
    --------
    >>> text = config_toml(ConsortiumSettings(data={"source": "synthetic-weak"}))
    >>> print(text.splitlines()[0])
    name = "consortium"
    """
    lines: list[str] = []
    content = settings.model_dump(mode="json")
    _table(lines, (), content)
    return "\n".join(lines) + "\n"


def _table(lines: list[str], path: tuple[str, ...], content: dict[str, Any]) -> None:
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in content.items() if isinstance(value, dict) and value}
    if path and plain:
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    for key, value in plain.items():
        if value is None:
            lines.append(f"# {key} is not set")
        else:
            lines.append(f"{_key(key)} = {toml_value(value)}")
    for key, value in tables.items():
        _table(lines, (*path, key), value)


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if plain else _text(key)


def toml_value(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    r"""Return a TOML string: one of JSON that names no letter by two halves of a code.

    Examples
    --------
    >>> print(_text('Bank 🏦 "North"'))
    "Bank 🏦 \"North\""
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

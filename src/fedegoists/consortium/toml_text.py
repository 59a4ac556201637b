"""Text of a consortium.toml: all settings of a run, or a commented example to start from."""

import json
from collections.abc import Mapping
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.learning.typed_settings import TypedSettings


def config_toml(settings: ConsortiumSettings) -> str:
    """Return settings as TOML, every value written out.

    Examples
    --------
    >>> text = config_toml(ConsortiumSettings(data={"source": "synthetic-weak"}))
    >>> print(text.splitlines()[0])
    name = "consortium"
    """
    return "\n".join(_table((), settings.model_dump(mode="json"))) + "\n"


def _table(path: tuple[str, ...], content: Mapping[str, object]) -> list[str]:
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    lines = ["", f"[{'.'.join(map(_key, path))}]"] if path and plain else []
    for key, value in plain.items():
        lines.append(
            f"# {key} is not set" if value is None else f"{_key(key)} = {toml_value(value)}"
        )
    for key, value in content.items():
        if isinstance(value, dict):
            lines += _table((*path, key), value)
    return lines


def commented_toml(given: Mapping[str, object], notes: Mapping[str, str]) -> str:
    """Return a consortium.toml with some values, and every other default as a comment.

    Parameters
    ----------
    given : mapping
        The values that are set, by section.
    notes : mapping of str to str
        Comments above some settings, by their whole names, such as ``benefit.threshold``.
    """
    lines = [f"name = {toml_value(given['name'])} # results go to runs/{given['name']}"]
    for name, field in ConsortiumSettings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, TypedSettings):
            own = given.get(name, {})
            assert isinstance(own, Mapping)
            lines += ["", f"[{name}]"]
            lines += [f"# {text}" for text in (section.__doc__ or "").split("\n\n")[0].split("\n")]
            for key, setting in section.model_fields.items():
                note = notes.get(f"{name}.{key}", "")
                lines += [f"# {text}" for text in note.splitlines()]
                lines.append(_setting(key, setting, own))
    return "\n".join(lines) + "\n"


def _setting(key: str, field: FieldInfo, given: Mapping[str, object]) -> str:
    """Return a setting's line: its value, or its default or an example as a comment."""
    comment = " ".join((field.description or "").split())
    if get_origin(field.annotation) is Literal:
        comment += f" One of {', '.join(get_args(field.annotation))}."
    elif isinstance(field.json_schema_extra, dict) and "choices" in field.json_schema_extra:
        comment += f" One of {field.json_schema_extra['choices']}."
    if key in given:
        return f"{key} = {toml_value(given[key])} # {comment}"
    value = field.default
    if field.examples:
        value = field.examples[0]
        comment += " Not set by default."
    return f"# {key} = {toml_value(value)} # {comment}"


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
    return key if plain else _text(key)


def toml_value(value: object) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(k)} = {toml_value(v)}' for k, v in value.items())} }}"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    r"""Return a TOML string: one of JSON, without surrogate pairs.

    Examples
    --------
    >>> print(_text('Bank 🏦 "North"'))
    "Bank 🏦 \"North\""
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

"""The architecture page and its drawings name what is in the code."""

import ast
import importlib
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import fedegoists

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "explanation-architecture.md").read_text(encoding="utf-8")
DRAWINGS = PROJECT / "docs" / "images"
SCRIPT = runpy.run_path(str(DRAWINGS / "draw_flows.py"))
HOUSE = Path(fedegoists.__file__).parent
COMMON = {
    "errors",
    "files",
    "folder_swap",
    "install_hints",
    "notebooks",
    "plotting",
    "sealed_files",
    "version",
}
"""Modules that every room may import."""


def room_table():
    """Return the rooms in the order of the page, with the rooms that each may import."""
    table = PAGE.split("## Rooms")[1].split("Inside `coalitions`")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", table, re.M)
    return {room: (imports, re.findall(r"`(\w+)`", imports)) for room, _, imports in rows}


def resolved(path):
    """Return what a dotted name stands for: the longest module, then attributes."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if error.name and not ".".join(parts[:count]).startswith(error.name):
                pytest.skip(f"{error.name} is not installed")
            continue
        for name in parts[count:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[name] if name in fields else getattr(found, name)
        return found
    raise AssertionError(f"no module of {path}")


@pytest.mark.parametrize("flow", SCRIPT["FLOWS"], ids=lambda flow: flow.name)
def test_the_drawings_are_up_to_date(flow):
    committed = (DRAWINGS / f"{flow.name}.svg").read_text(encoding="utf-8")
    assert committed == SCRIPT["svg"](flow), "run python docs/images/draw_flows.py"
    assert f"images/{flow.name}.svg" in PAGE


@pytest.mark.parametrize("reference", sorted({".".join(pair) for pair in SCRIPT["references"]()}))
def test_the_code_in_a_drawing_exists(reference):
    assert resolved(reference) is not None


def test_every_module_of_the_drawings_is_used():
    used = {module for module, _ in SCRIPT["references"]()}
    assert {f"fedegoists.{name}" for name in SCRIPT["MODULES"].values()} == used


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            name
            for name in re.findall(r"`(\w+(?:\.\w+)+)`", PAGE)
            if (HOUSE / name.split(".")[0]).is_dir() and not name.endswith(".toml")
        }
    ),
)
def test_the_code_named_on_the_page_exists(name):
    assert resolved(f"fedegoists.{name}") is not None


def test_the_table_has_every_room_in_the_order_of_the_import_contract():
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(
        contract["layers"]
        for contract in contracts["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    rooms = [
        name.removeprefix("fedegoists.")
        for layer in reversed(layers)
        for name in re.split(r"\s*[|:]\s*", layer)
        if name.startswith("fedegoists.")
    ]
    assert list(room_table()) == [room for room in rooms if room not in COMMON]
    folders = {path.parent.name for path in HOUSE.glob("*/__init__.py")}
    assert folders == set(room_table())


@pytest.mark.parametrize("room", room_table())
def test_a_room_imports_only_what_the_table_allows(room):
    text, allowed = room_table()[room]
    if text == "all":
        return
    found = set()
    for path in (HOUSE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedegoists."):
                found.add(node.module.split(".")[1])
    assert found - COMMON - {room} == set(allowed)


def test_the_glossary_is_sorted_and_has_each_word_once():
    page = (PROJECT / "docs" / "reference-glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r'^\| <a id="([\w-]+)"></a>([^|]+?) \|', page, re.M)
    words = [word for _, word in entries]
    assert words == sorted(set(words), key=str.lower)
    assert [anchor for anchor, _ in entries] == [w.lower().replace(" ", "-") for w in words]

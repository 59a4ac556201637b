"""The lock files name the pinned versions of all dependencies, with hashes."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
LOCKS = PROJECT / "locks"
NAMES = ("train", "flare", "dev", "core", "audit")
UNLOCKED = {"torch"}
"""Its wheels differ by device; see locks/write_locks.py."""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(encoding="utf-8"))
    return {plain(name): version for name, version in found}


CONSTRAINTS = pins(PROJECT / "constraints.txt")


@pytest.mark.parametrize("name", NAMES)
def test_every_package_of_a_lock_has_hashes_and_nothing_else_is_in_it(name):
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    entries = [one for one in re.split(r"\n(?=\S)", text.strip()) if not one.startswith("#")]
    assert len(entries) == len(pins(LOCKS / f"{name}.txt"))
    for entry in entries:
        first, *hashes = entry.split(" \\\n")
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[^\s;]+( ; [^\\]+)?", first), first
        assert hashes
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", one) for one in hashes), first


@pytest.mark.parametrize("name", [name for name in NAMES if name != "audit"])
def test_a_lock_has_the_pinned_versions(name):
    locked = pins(LOCKS / f"{name}.txt")
    wrong = {one: v for one, v in locked.items() if CONSTRAINTS.get(one, v) != v}
    assert not wrong, "run `make lock`"
    assert not UNLOCKED & locked.keys()


def test_every_pinned_package_is_locked():
    assert CONSTRAINTS.keys() - pins(LOCKS / "dev.txt").keys() == UNLOCKED, "run `make lock`"


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("core", []),
        ("train", ["train"]),
        ("flare", ["train", "flare"]),
        ("dev", ["dev", "onnx", "train", "privacy", "flare", "coordinator", "postgresql"]),
    ],
)
def test_a_lock_has_all_direct_dependencies(name, extras):
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in extras for one in project["optional-dependencies"][extra]),
    ]
    names = {plain(re.match(r"[A-Za-z0-9._-]+", one)[0]) for one in wanted}
    missing = names - pins(LOCKS / f"{name}.txt").keys() - UNLOCKED - {"fedegoists"}
    assert not missing, "run `make lock`"


def test_what_silos_are_protected_with_is_a_dependency_of_its_own():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    flare = project["optional-dependencies"]["flare"]
    assert any(one.startswith("cryptography>=") for one in flare)

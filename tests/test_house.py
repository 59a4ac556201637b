"""The floor plan: one name, one meaning; functions that fit on a screen."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedegoists

HOUSE = Path(fedegoists.__file__).parent
LONGEST = 80
"""Lines of code in a function, without its docstring, comments and blank lines."""

FILES = [
    path
    for path in sorted(HOUSE.rglob("*.py"))
    if path.name not in ("__init__.py", "__main__.py") and "versions" not in path.parts
]


def twins(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_module_name_occurs_once():
    places = defaultdict(list)
    for path in FILES:
        places[path.stem].append(str(path.relative_to(HOUSE)))
    for package in HOUSE.rglob("__init__.py"):
        if package.parent != HOUSE:
            places[package.parent.name].append(str(package.parent.relative_to(HOUSE)))
    assert not twins(places)


def test_a_class_name_occurs_once():
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(HOUSE)))
    assert not twins(places)


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield every function with its lines of code."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            code = range(node.lineno, node.end_lineno + 1)
            documented = ast.get_docstring(node) is not None
            docstring = node.body[0] if documented else None
            quoted = range(docstring.lineno, docstring.end_lineno + 1) if docstring else ()
            yield (
                node.name,
                sum(
                    1
                    for number in code
                    if number not in quoted
                    and lines[number - 1].strip()
                    and not lines[number - 1].strip().startswith("#")
                ),
            )


@pytest.mark.parametrize("path", sorted(HOUSE.rglob("*.py")), ids=lambda p: str(p.name))
def test_a_function_fits_on_a_screen(path):
    long = {n: size for n, size in functions(path.read_text(encoding="utf-8")) if size > LONGEST}
    assert not long


def test_lines_of_code_are_counted_without_docstring_and_comments():
    source = 'def f():\n    """One.\n\n    Two.\n    """\n    # why\n\n    return 1\n'
    assert list(functions(source)) == [("f", 2)]

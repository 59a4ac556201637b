"""Run the code on a page: its file, its registry entry and its test."""

import inspect
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


class HowTo:
    """A how-to page: Python blocks are the file and, if there is a second one, its test.

    Attributes
    ----------
    name : str
        The page's name without its suffix.
    text : str
        Its content.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (DOCS / f"{name}.md").read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        """Return the blocks of code in a language."""
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.S | re.M)

    def block_with(self, text: str) -> str:
        """Return the only Python block that contains a text."""
        (block,) = (one for one in self.blocks("python") if text in one)
        return block

    def module(self, monkeypatch, folder: Path) -> ModuleType:
        """Import the first Python block as the module whose path the page gives."""
        (path,) = re.findall(r"^`src/(\S+)\.py`:", self.text, re.M)
        file = folder / f"{Path(path).name}.py"  # a real file: pydantic reads docstrings there
        file.write_text(self.blocks("python")[0], encoding="utf-8")
        spec = spec_from_file_location(path.replace("/", "."), file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        spec.loader.exec_module(module)
        return module

    def entry(self, opening: str, names: dict[str, object], closing: str) -> object:
        """Evaluate the registry entry on the page, between brackets."""
        (entry,) = self.blocks("text")
        return eval(opening + entry + closing, dict(names))

    def run_tests(self, **fixtures: object) -> int:
        """Run the tests of the last Python block with fixtures; return their number."""
        names: dict[str, object] = {"__name__": self.name}
        exec(compile(self.blocks("python")[1], f"{self.name}.md, test", "exec"), names)
        tests = [one for name, one in names.items() if name.startswith("test_")]
        for test in tests:
            assert callable(test)
            test(**{name: fixtures[name] for name in inspect.signature(test).parameters})
        return len(tests)

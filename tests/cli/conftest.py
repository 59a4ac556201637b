"""Running the command line inside a test, in a folder of its own."""

import sys
from collections.abc import Callable

import pytest

from fedegoists.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Run:
    """Return a function that calls the command line: exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("FEDEGOISTS_DATA", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedegoists", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call

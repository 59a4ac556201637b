"""Hints name a command that works for how the package was installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedegoists import install_hints
from fedegoists.install_hints import install_command

HERE = Path(__file__).resolve().parents[1]

WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else real(name, *rest)
from fedegoists.cli import main
main()
"""


class Installed:
    """Metadata of an installation."""

    def __init__(self, origin, installer="pip"):
        self.files = {"direct_url.json": origin and json.dumps(origin), "INSTALLER": installer}

    def read_text(self, name):
        return self.files[name]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            {"url": "file:///a%20b/it", "dir_info": {"editable": True}},
            "pip install -e '/a b/it[train,flare]'",
        ),
        ({"url": "file:///it", "dir_info": {}}, "pip install '/it[train,flare]'"),
        (
            {"url": "file:///it.whl", "archive_info": {}},
            "pip install 'fedegoists[train,flare] @ file:///it.whl'",
        ),
        (
            {"url": "ssh://h/it", "vcs_info": {"vcs": "git", "commit_id": "f00"}},
            "pip install 'fedegoists[train,flare] @ git+ssh://h/it@f00'",
        ),
    ],
)
def test_the_command_names_where_the_package_came_from(monkeypatch, origin, command):
    monkeypatch.setattr(install_hints, "_found", lambda: Installed(origin))
    assert install_command("train,flare") == command


def test_a_checkout_that_is_not_installed_names_itself(monkeypatch):
    monkeypatch.setattr(install_hints, "_found", lambda: None)
    assert install_command("train") == f"pip install -e '{HERE}[train]'"


def test_an_index_has_only_the_name(monkeypatch, tmp_path):
    monkeypatch.setattr(install_hints, "_found", lambda: Installed(None))
    monkeypatch.setattr(install_hints, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    assert install_command("train") == "pip install 'fedegoists[train]'"


def test_uv_installs_by_uv(monkeypatch):
    monkeypatch.setattr(
        install_hints, "_found", lambda: Installed({"url": "file:///it", "dir_info": {}}, "uv\n")
    )
    assert install_command("train") == "uv pip install '/it[train]'"


@pytest.mark.parametrize(
    "arguments",
    [["methods"], ["init", "own", "--example", "own"], ["init", "synthetic"], ["--help"]],
    ids=" ".join,
)
def test_what_needs_no_network_works_without_pytorch(tmp_path, arguments):
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    if arguments == ["methods"]:
        assert "fedegoists" in ended.stdout
        assert f"where PyTorch is installed: {install_command('train')}" in ended.stdout

"""A silo runs a model's code only if its operator has approved exactly this file."""

import pytest
from typer.testing import CliRunner

from fedegoists.cli import app
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.approved_code import approve, model_here
from fedegoists.learning.own_models import file_digest

CODE = "from torch import nn\n\ndef build(data):\n    return nn.Linear(data.shapes[0][0], 1)\n"
NAME = "model.py:build"


@pytest.fixture
def kit(tmp_path):
    (tmp_path / "model.py").write_text(CODE)
    return tmp_path


def test_only_the_approved_file_is_used(kit):
    digest = file_digest(kit / "model.py")
    with pytest.raises(SettingsError, match=r"model.py has not been approved.*deploy approve KIT"):
        model_here(kit, NAME, digest)
    approve(kit, "model.py", digest)
    assert model_here(kit, NAME, digest) == f"{(kit / 'model.py').resolve()}:build"
    assert model_here(kit, "mlp", "") == "mlp"
    with pytest.raises(SettingsError, match="is not the one that was approved here"):
        model_here(kit, NAME, "0" * 64)
    (kit / "model.py").write_text(CODE + "print('hello')\n")
    changed = file_digest(kit / "model.py")
    with pytest.raises(SettingsError, match="has changed since it was approved"):
        model_here(kit, NAME, changed)
    (kit / "model.py").unlink()
    with pytest.raises(SettingsError, match="is not in this kit; get it from the coordinator"):
        model_here(kit, NAME, digest)


@pytest.mark.parametrize("name", ["../model.py:build", "/etc/model.py:build", "a/model.py:build"])
def test_a_call_cannot_name_a_file_outside_of_the_kit(kit, name):
    (kit / "a").mkdir()
    for folder in (kit / "a", kit.parent):
        (folder / "model.py").write_text(CODE)
    with pytest.raises(SettingsError, match="no function of a file in this kit"):
        model_here(kit / "a" if name.startswith("..") else kit, name, "0" * 64)
    with pytest.raises(SettingsError, match="give the name of a Python file in the kit"):
        approve(kit, name.partition(":")[0], "0" * 64)


def test_the_command_shows_the_file_and_asks(kit):
    digest = file_digest(kit / "model.py")
    refused = CliRunner().invoke(app, ["deploy", "approve", str(kit)], input="n\n")
    assert "def build(data)" in refused.output
    assert digest in refused.output
    with pytest.raises(SettingsError, match="not been approved"):
        model_here(kit, NAME, digest)
    wrong = CliRunner().invoke(app, ["deploy", "approve", str(kit), "--sha256", "0" * 64])
    assert wrong.exit_code != 0
    agreed = CliRunner().invoke(app, ["deploy", "approve", str(kit)], input="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert model_here(kit, NAME, digest)

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


WITH_WEIGHTS = """\
from torch import nn

def build(data):
    model = nn.Sequential(nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 1))
    return {"model": model, "weights": "w.safetensors"}
"""


def with_weights(folder, value):
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    (folder / "model.py").write_text(WITH_WEIGHTS)
    save_file(
        {"0.weight": torch.full((2, 3), value), "0.bias": torch.zeros(2)},
        folder / "w.safetensors",
    )
    return f"{folder / 'model.py'}:build"


def asked_with(service, model, data):
    """Ask a silo to train as a coordinator with this model would."""
    from fedegoists.federation import Train
    from fedegoists.federation.flare.wire import schema_digest
    from fedegoists.learning.model_registry import model_options
    from fedegoists.learning.own_models import model_parts, own_entry, weights_in
    from tests.flare.silo_kit import SETTINGS, asked

    schema = model_parts(data, model).schema
    return asked(
        service,
        Train(parameters=schema.drawn(0), settings=SETTINGS, seed="0/0"),
        model=NAME,
        code=own_entry(model).digest,
        weights=(weights_in(model_options(data, model)) or ("", ""))[1],
        schema_is=schema_digest(schema),
    )


def test_a_silo_trains_only_from_the_approved_weights(tmp_path):
    from fedegoists.federation.flare.silo_service import SiloService
    from fedegoists.federation.flare.silo_settings import load_silo, read_silo_settings
    from tests.flare.silo_kit import kit as write_kit

    here = tmp_path / "kit"
    here.mkdir()
    write_kit(here)
    with_weights(here, 0.5)
    same, other = with_weights(tmp_path / "same", 0.5), with_weights(tmp_path / "other", 0.25)
    data = load_silo(read_silo_settings(here / "silo.toml"))
    service = SiloService(here)
    approve(here, "model.py", file_digest(here / "model.py"))
    refused = asked_with(service, same, data).refused
    assert "w.safetensors has not been approved at this silo" in refused
    assert "deploy approve KIT w.safetensors" in refused
    approve(here, "w.safetensors", file_digest(here / "w.safetensors"))
    reply = asked_with(service, same, data).reply
    assert reply.parameters.shape == (3,)  # the frozen layer does not travel
    refused = asked_with(service, other, data).refused
    assert "w.safetensors of the coordinator is not the one that was approved here" in refused
    (here / "w.safetensors").write_bytes((tmp_path / "other" / "w.safetensors").read_bytes())
    refused = asked_with(service, other, data).refused
    assert "w.safetensors has changed since it was approved" in refused
    (here / "w.safetensors").unlink()
    refused = asked_with(service, same, data).refused
    assert "w.safetensors: the weights cannot be read" in refused
    assert str(tmp_path) not in refused  # nobody else's business


def test_the_command_shows_what_is_in_a_file_of_weights(tmp_path):
    with_weights(tmp_path / "kit", 0.5)
    shown = CliRunner().invoke(
        app, ["deploy", "approve", str(tmp_path / "kit"), "w.safetensors"], input="y\n"
    )
    assert shown.exit_code == 0, shown.output
    assert "0.weight (2, 3)" in shown.output
    assert "nothing in it runs" in shown.output
    for name in ("../w.safetensors", "w.pt"):
        with pytest.raises(SettingsError, match="or of one with weights"):
            approve(tmp_path / "kit", name, "0" * 64)


def test_invitations_hold_the_model_and_its_weights(tmp_path):
    from fedegoists.consortium.consortium_settings import ConsortiumSettings
    from fedegoists.deploy.consortium_kits import model_files

    model = with_weights(tmp_path / "own", 0.5)
    (tmp_path / "own" / "another.safetensors").write_bytes(b"not named in the code")
    settings = ConsortiumSettings(data={"source": "x"}, training={"model": model})
    assert [path.name for path in model_files(settings)] == ["model.py", "w.safetensors"]
    assert model_files(ConsortiumSettings(data={"source": "x"})) == ()

"""The demo with a user's own consortium: from its file over a real deployment to its report."""

import pytest
from typer.testing import CliRunner

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from fedegoists.cli import app
from fedegoists.errors import FileError
from fedegoists.federation.flare.approved_code import approved
from fedegoists.learning.own_models import file_digest
from tests.flare.loopback import write_tables

CODE = """\
from torch import nn

def build():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
"""


@pytest.mark.slow
def test_an_own_consortium_with_an_own_model_is_deployed_here(tmp_path):
    write_tables(tmp_path / "data", ("North", "South"))
    (tmp_path / "model.py").write_text(CODE)
    file = tmp_path / "consortium.toml"
    file.write_text(
        'name = "mine"\n[data]\nsource = "data"\n[benefit]\nestimator = "everybody"\n'
        '[training]\nmodel = "model.py:build"\nmethods = ["local", "fedavg"]\nseeds = 1\n'
        'steps = 40\n[deploy]\nprivacy = "none"\n'
    )
    place = tmp_path / "demo"
    shown = CliRunner().invoke(app, ["deploy", "demo", str(file), "--out", str(place)])
    assert shown.exit_code == 0, shown.output
    assert "a server and 2 silos start" in shown.output
    assert (place / "runs" / "mine" / "report.html").is_file()
    digest = file_digest(tmp_path / "model.py")
    for name in ("North", "South"):
        kit = place / "deploy" / "silos" / name
        assert approved(kit) == {"model.py": digest}
        assert "train for run mine" in (kit / "silo.log").read_text()
    assert not (tmp_path / "runs").exists()
    again = CliRunner().invoke(app, ["deploy", "demo", str(file), "--out", str(place)])
    assert isinstance(again.exception, FileError)
    assert "--replace" in str(again.exception)
    assert (place / "deploy").exists()

"""A whole deployment on this machine: a server, silos with files of their own, mutual TLS."""

import time
from pathlib import Path

import numpy as np

from fedegoists.consortium.consortium_settings import read_settings
from fedegoists.consortium.engine import SiloAccess
from fedegoists.consortium.pipeline import Consortium
from fedegoists.consortium.progress import SILENT
from fedegoists.deploy.flare_engine import over_silos
from fedegoists.deploy.local_deployment import LocalDeployment, free_port

SCHEMA = """\
features = ["age", "income", "debt"]
target = "default"
task = "binary"
classes = ["no", "yes"]
"""


PLANTED = (0.7310585786, -1.4142135624, 2.7182818285)
NOTE = "planted-record-zq7"


def write_tables(folder: Path, names, rows=60, seed=0):
    """Write one CSV per organisation; the first two follow one rule, the others another.

    The first record of each is a planted one: its numbers and its note are found nowhere else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    for k, name in enumerate(names):
        rng = np.random.default_rng([seed, k])
        x = rng.normal(size=(rows, 3))
        rule = np.array([1.0, -1.0, 0.5]) if k < 2 else np.array([-1.0, 1.0, 0.2])
        yes = x @ rule + rng.normal(size=rows) > 0
        lines = [
            f"{a!r},{b!r},{c!r},{'yes' if label else 'no'},"
            for (a, b, c), label in zip(x.tolist(), yes, strict=True)
        ]
        lines[0] = f"{PLANTED[0]!r},{PLANTED[1]!r},{PLANTED[2]!r},yes,{NOTE}"
        head = "age,income,debt,default,note"
        (folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")


def write_consortium(folder: Path, names, *, port: int, more: str = "") -> Path:
    write_tables(folder / "data", names)
    path = folder / "consortium.toml"
    path.write_text(
        'name = "loopback"\n[data]\nsource = "data"\n'
        '[competition]\npairs = [["East", "South"], ["East", "North Bank"]]\n'
        "[benefit]\nrepeats = 2\nthreshold = 0.05\n"
        # In a simulation linear models would search their weight decay, at silos they do not.
        "[training]\nseeds = 2\nsteps = 40\nweight_decay = 0.1\n"
        f'[deploy]\nhost = "localhost"\nport = {port}\nwait = 60\ndeadline = 60\n'
        # Most tests compare numbers, which noise would change.
        f'privacy = "none"\n{more}'
    )
    return path


class Loopback(LocalDeployment):
    """A deployment of some silos with files of their own."""

    def __init__(self, folder: Path, names, more: str = "") -> None:
        self.lines: dict[str, list[str]] = {}
        self.file = write_consortium(folder, names, port=free_port(), more=more)
        super().__init__(read_settings(self.file), folder / "deploy", self._heard)
        self.place = folder
        self.port = self.settings.deploy.port

    def _heard(self, name: str, text: str) -> None:
        self.lines.setdefault(name, []).append(text)

    def wait_until(self, condition, seconds=60.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.2)


def run_deployed(settings, kit, name=None, *, progress=SILENT, record=None):
    """Run a consortium over its silos."""
    access = SiloAccess(name or settings.name, kit, progress=progress)
    return over_silos(
        settings,
        access,
        lambda engine, again: Consortium(settings, engine).run(
            name, resume=again, replace=True, progress=progress
        ),
        record=record,
    )

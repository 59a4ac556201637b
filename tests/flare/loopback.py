"""A whole deployment on this machine: a server, silos with files of their own, mutual TLS."""

import socket
import threading
import time
from pathlib import Path

import numpy as np

from fedegoists.consortium.settings import read_settings
from fedegoists.deploy.init import make_deployment
from fedegoists.deploy.processes import KitProcess
from fedegoists.federation.flare.session import Operator

SCHEMA = """\
features = ["age", "income", "debt"]
target = "default"
task = "binary"
classes = ["no", "yes"]
"""


PLANTED = (0.7310585786, -1.4142135624, 2.7182818285)
NOTE = "planted-record-zq7"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


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
        "[training]\nseeds = 2\nsteps = 40\n"
        f'[deploy]\nhost = "localhost"\nport = {port}\nwait = 60\ndeadline = 60\n{more}'
    )
    return path


class Loopback:
    """A deployment of some silos; everything ends with the block."""

    def __init__(self, folder: Path, names, more: str = "") -> None:
        self.folder, self.names = folder, tuple(names)
        self.port = free_port()
        self.file = write_consortium(folder, names, port=self.port, more=more)
        self.settings = read_settings(self.file)
        self.deployment = make_deployment(self.settings, folder / "deploy")
        self.kit = folder / "deploy" / "coordinator"
        for name, site in self.deployment.sites.items():
            toml = self.silo(name) / "silo.toml"
            data = str(folder / "data" / f"{name}.csv")
            toml.write_text(toml.read_text().replace("data.csv", data))
            assert site
        self.processes: dict[str, KitProcess] = {}
        self.lines: dict[str, list[str]] = {}

    def silo(self, name: str) -> Path:
        return self.folder / "deploy" / "silos" / self.deployment.sites[name]

    def start(self, name: str) -> KitProcess:
        role, kit = ("coordinator", self.kit) if name == "" else ("silo", self.silo(name))
        lines = self.lines.setdefault(name, [])
        process = KitProcess(role, kit, tell=lines.append)
        threading.Thread(target=process.run, daemon=True).start()
        self.processes[name] = process
        return process

    def __enter__(self) -> "Loopback":
        try:
            for name in ("", *self.names):
                self.start(name)
            operator = Operator(self.kit)
            sites = list(self.deployment.sites.values())
            assert operator.wait_for_silos(sites, 90) == []
            operator.close()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        threads = [threading.Thread(target=p.stop) for p in self.processes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def wait_until(self, condition, seconds=60.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.2)

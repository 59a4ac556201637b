"""Demos of a deployment on this machine: three banks, one of which is killed, or a user's own."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedegoists.consortium.consortium_run import ConsortiumRun
from fedegoists.consortium.consortium_settings import ConsortiumSettings, read_settings
from fedegoists.consortium.engine import ENGINES, Engine, SiloAccess
from fedegoists.consortium.pipeline import Consortium
from fedegoists.deploy.child_processes import end_children
from fedegoists.deploy.local_deployment import LocalDeployment, free_port
from fedegoists.files import write_all
from fedegoists.folder_swap import check_replaceable

BANKS = ("Harbour", "Meadow", "Summit")
CUSTOMERS = 3000
"""Customers of each bank. Noise that hides one of a few hundred would hide all the rest."""

SCHEMA = """\
features = ["age", "income", "debt"]
target = "default"
task = "binary"
classes = ["no", "yes"]
"""
CONSORTIUM = """\
name = "demo"

[data]
source = "data"

[competition]
pairs = [["Harbour", "Summit"]]

[benefit]
repeats = 3
threshold = 0.02

[training]
methods = ["local", "fedavg+ft", "fedegoists"]
seeds = 2
steps = 400

[deploy]
port = {port}
"""


SWITCHED_OFF_AFTER = 5
"""Rounds of FedAvg after which a silo is killed."""


def demo(
    folder: Path | None, tell: Callable[[str], None], *, replace: bool = False
) -> ConsortiumRun:
    """Deploy three banks here, run, kill a silo in the middle, and end all processes."""
    place = Path(tempfile.mkdtemp(prefix="fedegoists-demo-")) if folder is None else folder
    _check_replaced("demo", place, replace)
    if (place / "deploy").exists():
        shutil.rmtree(place / "deploy")  # kits of an earlier demo have another port
    tables = [(place / "data" / f"{bank}.csv", demo_table(k)) for k, bank in enumerate(BANKS)]
    settings_file = (place / "consortium.toml", CONSORTIUM.format(port=free_port()).encode())
    write_all([settings_file, (place / "data" / "schema.toml", SCHEMA.encode()), *tables])
    settings = read_settings(place / "consortium.toml")
    return _deployed(settings, place, tell, killed="Meadow", replace=replace)


def own_demo(
    file: Path, folder: Path | None, tell: Callable[[str], None], *, replace: bool = False
) -> ConsortiumRun:
    """Deploy a user's own consortium on this machine, run it, and end all processes.

    An own model's files count as approved: its user is the operator of all silos here.
    """
    settings = read_settings(file, [f"deploy.port={free_port()}", 'deploy.host="localhost"'])
    place = Path(tempfile.mkdtemp(prefix="fedegoists-demo-")) if folder is None else folder
    output = settings.output.model_copy(update={"folder": str(place / "runs")})
    settings = settings.model_copy(update={"output": output})
    _check_replaced(settings.name, place, replace)
    if (place / "deploy").exists():
        shutil.rmtree(place / "deploy")
    return _deployed(settings, place, tell, replace=replace)


def _check_replaced(name: str, place: Path, replace: bool) -> None:
    """Refuse to run here again, before anything is changed, unless that was asked for."""
    check_replaceable(place / "runs" / name, ["report.html"], replace=replace)


def _deployed(
    settings: ConsortiumSettings,
    place: Path,
    tell: Callable[[str], None],
    killed: str = "",
    *,
    replace: bool,
) -> ConsortiumRun:
    """Deploy a consortium here and run it; one silo may be killed on the way."""
    began = time.monotonic()

    def at(text: str) -> None:
        tell(f"[{time.monotonic() - began:5.1f} s] {text}")

    def heard(name: str, text: str) -> None:
        if "ready with" in text or "refused" in text or "ended with" in text:
            at(f"{name or 'server'}: {text}")

    deployment = LocalDeployment(settings, place / "deploy", heard)
    count = len(deployment.deployment.sites)
    at(f"kits with certificates for a coordinator and {count} silos are in {place}/deploy")
    at(f"a server and {count} silos start, each a process with its own certificate and data")
    with deployment:
        at("all silos are connected with mutual TLS; the run begins")
        progress = _KillASilo(deployment, at, killed)

        def work(reached: Engine, again: bool) -> ConsortiumRun:
            return Consortium(settings, reached).run(
                resume=again, replace=replace, progress=progress
            )

        access = SiloAccess(settings.name, deployment.kit, progress=progress)
        run = ENGINES["flare"].over_silos(settings, access, work)
        at("the run is finished; all processes end")
    return run


class _KillASilo:
    """Tells the progress, and kills one of the silos on the way, if there is one to be killed."""

    def __init__(
        self, deployment: LocalDeployment, tell: Callable[[str], None], killed: str
    ) -> None:
        self._deployment, self._tell, self._killed = deployment, tell, killed
        self._averaged = 0

    def __call__(self, stage: str, what: str, done: int, total: int, remark: str) -> None:
        if total and done == total:
            self._tell(f"{stage}: {what} done {remark}")
        if what != "fedavg" or not self._killed:
            return
        self._averaged += 1
        pid = self._deployment.processes[self._killed].pid
        if self._averaged == SWITCHED_OFF_AFTER and pid is not None:
            self._tell(f"{self._killed}'s machine is switched off and on again: the others go on")
            end_children(pid, itself=True)

    def message(self, text: str, *, waiting: bool = False) -> None:  # noqa: ARG002
        self._tell(text)


def demo_table(number: int) -> bytes:
    """Return the customers of one of the banks as CSV, always the same."""
    rng = np.random.default_rng([7, number])
    x = rng.normal(size=(CUSTOMERS, 3))
    rule = np.array([[1.0, -1.0, 0.5], [1.0, -0.9, 0.6], [0.9, -1.0, 0.4]][number])
    yes = x @ rule + 1.2 * rng.normal(size=CUSTOMERS) > 0
    rows = [
        f"{a:.6f},{b:.6f},{c:.6f},{'yes' if y else 'no'}"
        for (a, b, c), y in zip(x.tolist(), yes.tolist(), strict=True)
    ]
    return ("age,income,debt,default\n" + "\n".join(rows) + "\n").encode()

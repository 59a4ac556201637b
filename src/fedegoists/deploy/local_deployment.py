"""A whole deployment on this machine: for demos, tests and benchmarks."""

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.deploy.consortium_kits import make_deployment, model_files
from fedegoists.deploy.kit_process import KitProcess, Role
from fedegoists.deploy.membership import install, join, sign
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.approved_code import approve
from fedegoists.federation.flare.job_operator import Operator
from fedegoists.federation.flare.kits import INVITATIONS, Deployment
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.files import read_text, write_bytes
from fedegoists.learning.datasets.table_files import READERS
from fedegoists.learning.own_models import file_digest

COORDINATOR = ""
"""Key of the coordinator's process, beside those of the participants."""


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class LocalDeployment:
    """A server and all silos as processes, with the kits and certificates of a real deployment.

    A context manager; at its end every process has ended.

    Parameters
    ----------
    settings : ConsortiumSettings
        With a port of this machine; if the data source is a folder, it has each silo's file.
    folder : Path
        Where the kits are written.
    tell : callable
        Called with a participant, or `COORDINATOR`, and a line of its log.
    """

    def __init__(
        self,
        settings: ConsortiumSettings,
        folder: Path,
        tell: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self.settings, self.folder, self._tell = settings, folder, tell
        self.deployment = make_deployment(settings, folder)
        self.kit = folder / "coordinator"
        join_all(folder, self.deployment)
        for name in self.deployment.sites:  # their operator is the user who has this file
            for file in model_files(settings):
                approve(self.silo(name), file.name, file_digest(file))
        self.processes: dict[str, KitProcess] = {}
        source = Path(settings.data.source)
        for name in self.deployment.sites if source.is_dir() else ():
            path = self.silo(name) / SILO_FILE
            files = [source / f"{name}{suffix}" for suffix in READERS]
            found = [file for file in (*files, source / name) if file.exists()]
            if not found:
                raise SettingsError(f"{source} has no file or folder of {name!r}")
            text, own = read_text(path), json.dumps(str(found[0]))
            for written in ('"data.csv"', '"data"'):
                text = text.replace(f"file = {written}", f"file = {own}")
            write_bytes(path, text.encode())

    def silo(self, participant: str) -> Path:
        """Return a participant's kit."""
        return self.folder / "silos" / self.deployment.sites[participant]

    def start(self, name: str) -> KitProcess:
        """Start a participant, or the coordinator."""
        role: Role = "coordinator" if name == COORDINATOR else "silo"
        kit = self.kit if name == COORDINATOR else self.silo(name)
        one_thread = {"OMP_NUM_THREADS": "1"}  # all silos share this machine
        process = KitProcess(role, kit, lambda text: self._tell(name, text), one_thread)
        threading.Thread(target=process.run, daemon=True).start()
        self.processes[name] = process
        return process

    def __enter__(self) -> "LocalDeployment":
        try:
            for name in (COORDINATOR, *self.deployment.sites):
                self.start(name)
            with closing(Operator(self.kit)) as operator:
                missing = operator.wait_for_silos(list(self.deployment.sites.values()), TO_CONNECT)
            if missing:
                raise SettingsError(f"{', '.join(missing)} did not connect; see log.txt in its kit")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes in parallel."""
        with ThreadPoolExecutor(max(1, len(self.processes))) as pool:
            list(pool.map(KitProcess.stop, self.processes.values()))


def join_all(folder: Path, deployment: Deployment) -> None:
    """Do for every silo on this machine what its operator would do to join; kits that exist stay.

    Every key is made in the silo's own kit, as in a real deployment.
    """
    for site in deployment.sites.values():
        kit = folder / "silos" / site
        if not kit.exists():
            _, request = join(folder / INVITATIONS / f"{site}.zip", kit)
            install(sign(folder, request.file, folder / f"{site}.crt"), kit)
            (folder / f"{site}.crt").unlink()


TO_CONNECT = 120.0
"""Seconds for all silos to connect."""

"""All kits of a consortium on this machine: for trying out, for tests, and to measure."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.deploy.new_kits import make_deployment
from fedegoists.deploy.processes import KitProcess, Role
from fedegoists.errors import SettingsError
from fedegoists.federation.flare.job_operator import Operator
from fedegoists.federation.flare.silo_settings import SILO_FILE
from fedegoists.files import read_text, write_bytes
from fedegoists.learning.datasets.data_tables import READERS

__all__ = ["COORDINATOR", "LocalDeployment", "free_port"]

COORDINATOR = ""
"""As what the coordinator stands among the processes, beside the participants."""


def free_port() -> int:
    """Return a port of this machine that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class LocalDeployment:
    """A server and all silos as processes here, with the same kits and certificates as elsewhere.

    Used in a ``with`` block, at whose end every process has ended.

    Parameters
    ----------
    settings : ConsortiumSettings
        With a port of this machine; a folder as its data source has each silo's file.
    folder : Path
        Where kits go.
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
        self.processes: dict[str, KitProcess] = {}
        source = Path(settings.data.source)
        for name in self.deployment.sites if source.is_dir() else ():
            path = self.silo(name) / SILO_FILE
            found = [
                source / f"{name}{end}" for end in READERS if (source / f"{name}{end}").is_file()
            ]
            if not found:
                raise SettingsError(f"{source} has no file of {name!r}")
            text = read_text(path).replace('"data.csv"', json.dumps(str(found[0])))
            write_bytes(path, text.encode())

    def silo(self, participant: str) -> Path:
        """Return a participant's kit."""
        return self.folder / "silos" / self.deployment.sites[participant]

    def start(self, name: str) -> KitProcess:
        """Start a participant, or the coordinator."""
        role: Role = "coordinator" if name == COORDINATOR else "silo"
        kit = self.kit if name == COORDINATOR else self.silo(name)
        # All silos share this machine: threads of one would only wait for those of the others.
        alone = {"OMP_NUM_THREADS": "1"}
        process = KitProcess(role, kit, lambda text: self._tell(name, text), alone)
        threading.Thread(target=process.run, daemon=True).start()
        self.processes[name] = process
        return process

    def __enter__(self) -> "LocalDeployment":
        try:
            for name in (COORDINATOR, *self.deployment.sites):
                self.start(name)
            operator = Operator(self.kit)
            missing = operator.wait_for_silos(list(self.deployment.sites.values()), TO_CONNECT)
            operator.close()
            if missing:
                raise SettingsError(f"{', '.join(missing)} did not connect; see log.txt in its kit")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes, at once."""
        threads = [threading.Thread(target=one.stop) for one in self.processes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


TO_CONNECT = 120.0
"""Seconds in which all silos must have connected."""

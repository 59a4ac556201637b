"""The coordinator's operator: submits jobs to the FLARE server and queries its status."""

import contextlib
import functools
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.flare.kits import (
    CONTROLLER,
    EXECUTOR,
    OPERATOR,
    RELAY,
    SILO_CLIENT,
    Deployment,
    read_deployment,
    require,
)
from fedegoists.files import write_all

if TYPE_CHECKING:
    from nvflare.fuel.flare_api.flare_api import Session

Result = TypeVar("Result")


class UnreachableError(FedEgoistsError):
    """The FLARE server, or a job at it, cannot be reached."""


class JobLostError(UnreachableError):
    """The FLARE server accepted a job, and then the job or the server was lost."""


class DeclinedError(FedEgoistsError):
    """The FLARE server refuses a command."""


DECLINED = (
    "AuthorizationError",
    "InvalidJobDefinition",
    "InvalidTarget",
    "JobNotFound",
    "JobNotRunning",
    "NoClientsAvailable",
    "NoReply",
)
"""FLARE's errors that are refusals, not a lost connection."""


@dataclass(frozen=True)
class ServerStatus:
    """The status of the FLARE server: connected silos and jobs.

    Attributes
    ----------
    started : float
        The start time of the server, so that a restart is noticed.
    silos : dict of str to float
        The registered sites, and the times of their last heartbeats.
    jobs : dict of str to str
        The states of jobs by number; a job that died with an earlier server is not running.
    """

    started: float
    silos: dict[str, float]
    jobs: dict[str, str]


class Operator:
    """A session with the server, opened when needed and reopened when it was lost.

    Parameters
    ----------
    kit : Path
        The coordinator's kit.

    Attributes
    ----------
    accepted : bool
        Whether the server has accepted a job, so that its address and the kit are right.
    """

    def __init__(self, kit: Path) -> None:
        require()
        self.kit, self.accepted = kit, False
        self.deployment: Deployment = read_deployment(kit)
        self._session: Session | None = None

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            with contextlib.suppress(Exception):  # the server may be gone
                self._session.close()
            self._session = None

    def status(self) -> ServerStatus:
        """Return the status of the server."""
        # In this order: a job that starts between the two questions is waiting, and has not died.
        listed = self._do(lambda session: session.list_jobs(limit=20))
        info = self._do(lambda session: session.get_system_info())
        running = {str(job.job_id) for job in info.job_info}
        jobs = {str(job["job_id"]): _state(job, running) for job in listed}
        started = info.server_info.start_time
        return ServerStatus(
            float(started),
            {client.name: float(client.last_connect_time) for client in info.client_info},
            jobs,
        )

    def taking_part(self, job: str, sites: Sequence[str]) -> list[str]:
        """Return those of some sites that run a job."""
        found = []
        for site in sites:
            with contextlib.suppress(DeclinedError):  # a site that is not there runs nothing
                rows = self._do(functools.partial(_jobs_of, site))
                if any(job in map(str, row.values()) for row in rows or ()):
                    found.append(site)
        return found

    def submit(self, job: Path) -> str:
        """Submit a job; return its number."""
        number = str(self._do(lambda session: session.submit_job(str(job.resolve()))))
        self.accepted = True
        return number

    def abort(self, job: str) -> None:
        """End a job, if it still runs."""
        with contextlib.suppress(UnreachableError, DeclinedError):
            self._do(lambda session: session.abort_job(job))

    def _do(self, command: Callable[["Session"], Result]) -> Result:
        while True:
            kept = self._session is not None  # it may have been lost meanwhile
            try:
                if self._session is None:
                    self._session = self._opened()
                return command(self._session)
            except Exception as error:
                if type(error).__name__ in DECLINED:
                    raise DeclinedError(f"the server declines: {error}") from None
                self.close()
                if not kept:
                    raise UnreachableError(
                        f"the server at {self.deployment.host}:{self.deployment.port} does not "
                        f"answer ({type(error).__name__}: {error}); is it started with `fedegoists "
                        "deploy start coordinator`?"
                    ) from None

    def _opened(self) -> "Session":
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        with contextlib.redirect_stdout(io.StringIO()):  # it prints that it connects
            return new_secure_session(
                self.deployment.operator, str((self.kit / OPERATOR).resolve()), timeout=TO_CONNECT
            )

    def wait_for_silos(
        self, sites: Sequence[str], seconds: float, tell: Callable[[str], None] = lambda _: None
    ) -> list[str]:
        """Wait for some seconds until all silos are connected; return those that are missing."""
        deadline = time.monotonic() + seconds
        told: list[str] = []
        while True:
            try:
                present = self.status().silos
                missing = [site for site in sites if site not in present]
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                missing = list(sites)
            if not missing or time.monotonic() > deadline:
                return missing
            if missing != told:
                tell(f"waiting for the silo of {', '.join(missing)}")
                told = missing
            time.sleep(1.0)


TO_CONNECT = 10.0


def _jobs_of(site: str, session: "Session") -> list[dict[str, object]] | None:
    rows: list[dict[str, object]] | None = session.get_client_job_status([site])
    return rows


def _state(job: Mapping[str, object], running: set[str]) -> str:
    """Return the state of a job; a job that the server's store calls running may have died."""
    status = str(job.get("status", ""))
    if str(job["job_id"]) in running:
        return "running"
    if status.startswith("FINISHED"):
        return status.removeprefix("FINISHED:").lower().replace("_", " ")
    return "waiting" if status in ("SUBMITTED", "APPROVED", "DISPATCHED") else "died"


def write_job(folder: Path, address: str, key: str, sites: Sequence[str]) -> Path:
    """Write a job for some sites: the names of our two components and where the relay connects.

    Only the server is told the latter; no code is in a job.
    """
    job = folder / "job"
    meta = {
        "name": "fedegoists",
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"app_server": ["server"], "app_silo": list(sites)},
    }
    server = {
        "format_version": 2,
        "server": {"task_request_interval": max(FEWEST_SECONDS, len(sites) / MOST_QUESTIONS)},
        "workflows": [
            {
                "id": "controller",
                "path": CONTROLLER,
                "args": {"server_obj_id": "relay", "sync_task_timeout": SYNC},
            }
        ],
        "components": [{"id": "relay", "path": RELAY, "args": {"address": address, "key": key}}],
    }
    silo = {
        "format_version": 2,
        "executors": [
            {"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {"client_obj_id": "silo"}}}
        ],
        "components": [{"id": "silo", "path": SILO_CLIENT, "args": {}}],
    }
    write_all(
        [
            (job / path, json.dumps(content, indent=2).encode())
            for path, content in (
                ("meta.json", meta),
                ("app_server/config/config_fed_server.json", server),
                ("app_silo/config/config_fed_client.json", silo),
            )
        ]
    )
    return job


MOST_QUESTIONS = 5
"""Times a second that all silos together ask the server for tasks, of which a job has two."""

FEWEST_SECONDS = 0.5
"""Seconds between two such questions of a silo, at least."""

SYNC = 120
"""Seconds for silos to load their data when a job starts."""

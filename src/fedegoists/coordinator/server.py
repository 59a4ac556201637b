"""The coordinator's process, which serves one folder until it is stopped."""

import errno
import fcntl
import ipaddress
import json
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import uvicorn
from pydantic import BaseModel, ConfigDict

from fedegoists.coordinator.connection_limits import (
    ConnectionGate,
    ConnectionLimits,
    GuardedProtocol,
)
from fedegoists.coordinator.domain.accounts import first_manager
from fedegoists.coordinator.runs.run_orders import LOCAL_ONLY, Reach
from fedegoists.coordinator.service.coordinator_service import Limits, Service
from fedegoists.coordinator.service.web_app import create_app
from fedegoists.coordinator.store import CoordinatorStore
from fedegoists.coordinator.store.database import sqlite_url
from fedegoists.errors import FileError, MissingDependencyError, SettingsError
from fedegoists.files import read_text
from fedegoists.install_hints import install_command

DATABASE = "coordinator.db"
KIT_FILE = "deploy.json"
SECONDS_TO_STOP = 5

ACCEPTED_AT_ONCE = 64
"""Connections that the event loop accepts before it looks at the limit of their number."""

WAITING_TO_BE_ACCEPTED = 1024
"""Connections that the operating system keeps until they are accepted."""

OTHER_FILES = 256
"""Open files that are no connections: of the database, of runs, and of answers."""


class ServerSettings(BaseModel):
    """Settings of a coordinator's process.

    Attributes
    ----------
    data : Path
        The folder with the database, unless `database` is given, runs and silos' data.
    database : str or None
        The address of a PostgreSQL database, or of an SQLite file elsewhere.
    certificate, key : Path or None
        For HTTPS.
    client_ca : Path or None
        The authority that signs client certificates; with HTTPS only.
    behind_proxy : bool
        Trust the headers of a proxy on this machine about addresses and HTTPS.
    kit : Path or None
        The coordinator's kit of a deployment, for runs over FLARE.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path
    host: str = "127.0.0.1"
    port: int = 8000
    database: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    behind_proxy: bool = False
    limits: Limits = Limits()
    connections: ConnectionLimits = ConnectionLimits()
    kit: Path | None = None

    def check(self) -> None:
        """Refuse settings that contradict each other, and files that do not exist."""
        if (self.certificate is None) != (self.key is None):
            raise SettingsError("a certificate and its key belong together; give both or neither")
        if self.client_ca is not None and self.certificate is None:
            raise SettingsError("client certificates need HTTPS: give a certificate and a key too")
        for path in (self.certificate, self.key, self.client_ca):
            if path is not None and not path.is_file():
                raise FileError(f"{path}: no such file")


def open_store(data: Path, database: str | None) -> CoordinatorStore:
    """Open the database of a folder, or the one at an address; an empty folder is enough."""
    _make(data)
    return CoordinatorStore(database or sqlite_url((data / DATABASE).resolve()))


def _make(data: Path) -> None:
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{data}: cannot be used ({error.strerror})") from None


def _make_private(runs: Path) -> None:
    """Take from others what earlier versions let them read."""
    for folder, _, names in os.walk(runs):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            with suppress(OSError):  # such as a file that a run has just renamed
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o700)


@contextmanager
def _alone_in(data: Path) -> Iterator[None]:
    """Context manager that refuses a second service in the same folder.

    Both would work on the same runs.
    """
    _make(data)
    with (data / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FileError(f"{data}: another coordinator is running in this folder") from None
        yield


@contextmanager
def _listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Context manager that opens the port first; connections wait until they are served."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise SettingsError(f"--host {host!r}: no such address") from None
    with ExitStack() as opened:
        sockets, absent = [], None
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                one = opened.enter_context(socket.socket(family, kind, protocol))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind(address)
                one.listen()
            except OSError as error:
                if error.errno not in ABSENT:
                    raise SettingsError(_refused(host, port, error)) from None
                absent = error  # a name may have an IPv6 address where the machine has none
            else:
                sockets.append(one)
        if absent is not None and not sockets:
            raise SettingsError(_refused(host, port, absent))
        yield sockets


ABSENT = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Errors for an address that the machine does not have."""


def _refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than this user has; choose another with --port"
    return f"--host {host!r}: cannot be listened on ({error.strerror}); choose another"


def _unencrypted(settings: ServerSettings, sockets: Sequence[socket.socket]) -> bool:
    """Whether connections from other machines are not encrypted."""
    local = all(ipaddress.ip_address(one.getsockname()[0]).is_loopback for one in sockets)
    return not (local or settings.certificate or settings.behind_proxy)


def serve(
    settings: ServerSettings, say: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; interrupted runs are resumed at the next start."""
    settings.check()
    reach = _reach(settings.kit)
    os.umask(0o077)  # all files are for this user only
    _make_private(settings.data / "runs")
    with (
        _alone_in(settings.data),
        _listening(settings.host, settings.port) as sockets,
        closing(open_store(settings.data, settings.database)) as store,
        store.alone(),
    ):
        if _unencrypted(settings, sockets):
            warn(
                "logins and reports of competitors cross the network unencrypted, so others may "
                "read them: give --certificate and --key for HTTPS, or put a proxy with HTTPS in "
                "front and give --behind-proxy"
            )
        scheme = "https" if settings.certificate else "http"
        address = f"{scheme}://{settings.host}:{settings.port}"
        say(f"The coordinator is at {address} and keeps its data in {settings.data}")
        invitation = first_manager(store)
        if invitation is not None:
            # After the sign, so that a browser does not send it with the address.
            say(f"The manager's one-time login: {address}/login#{invitation}")
        service = Service(store, settings.data.resolve(), settings.limits, reach)
        _Server(_config(settings, service), service, _gate(settings, service)).run(sockets)


def _reach(kit: Path | None) -> Reach:
    """Return the silos of a deployment; what runs over FLARE need is checked now."""
    if kit is None:
        return LOCAL_ONLY
    for package in ("torch", "nvflare"):
        if find_spec(package) is None:
            raise MissingDependencyError(
                f"runs over FLARE need {package}: {install_command('train,flare')}"
            )
    # Read here: importing the module of kits would load all that training needs.
    try:
        sites = json.loads(read_text(kit / KIT_FILE))["sites"]
        return Reach(kit.resolve(), tuple(map(str, sites)))
    except (FileError, ValueError, KeyError, TypeError):
        raise FileError(
            f"{kit}: not a coordinator's kit; `fedegoists deploy init` makes one"
        ) from None


def _gate(settings: ServerSettings, service: Service) -> ConnectionGate:
    """Return the limits of connections, fewer than the files that this process may open."""
    limits = settings.connections
    wanted = limits.connections + ACCEPTED_AT_ONCE + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        room = soft - ACCEPTED_AT_ONCE - OTHER_FILES
        if room < 1:
            raise SettingsError(
                f"this process may open {soft} files, too few to serve anyone; allow "
                f"{wanted} (ulimit -n, or LimitNOFILE of systemd)"
            )
        limits = limits.model_copy(update={"connections": room})
    if settings.behind_proxy:  # all connections come from its address
        limits = limits.model_copy(update={"per_address": None})

    def closed(why: str) -> None:
        service.metrics.ended.labels(why).inc()
        log.warning("a connection was ended: %s", why, extra={"kind": f"connection ended: {why}"})

    return ConnectionGate(limits, closed=closed)


def _config(settings: ServerSettings, service: Service) -> uvicorn.Config:
    logging.getLogger("fedegoists.coordinator").setLevel(logging.INFO)
    return uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        loop="asyncio",
        ws="none",  # there are no web sockets, so nothing is upgraded to one
        backlog=ACCEPTED_AT_ONCE,
        access_log=False,  # paths may name members; the service logs routes instead
        server_header=False,
        proxy_headers=settings.behind_proxy,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
        log_config=LOGGING,
        ssl_certfile=settings.certificate,
        ssl_keyfile=str(settings.key) if settings.key else None,
        ssl_ca_certs=str(settings.client_ca) if settings.client_ca else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if settings.client_ca else ssl.CERT_NONE,
    )


LOGGING: dict[str, object] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {
        "error": {
            "()": "fedegoists.coordinator.throttled_log.ThrottledHandler",
            "formatter": "plain",
        }
    },
    "loggers": {
        name: {"handlers": ["error"], "level": "INFO", "propagate": False}
        for name in ("uvicorn", "fedegoists", "asyncio")
    },
}

log = logging.getLogger("fedegoists.coordinator")


class _Server(uvicorn.Server):
    """A server that guards its connections, and ends event streams when it stops."""

    def __init__(self, config: uvicorn.Config, service: Service, gate: ConnectionGate) -> None:
        super().__init__(config)
        self._service, self._gate = service, gate

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        gate, config = self._gate, self.config
        # The protocol begins TLS itself, after it has counted the connection.
        gate.tls, config.ssl = config.ssl, None
        protocol = type("CountedProtocol", (GuardedProtocol,), {"gate": gate})
        config.http_protocol_class = protocol
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(WAITING_TO_BE_ACCEPTED)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # Otherwise uvicorn raises the signal again, and the process ends with its store open.
        self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # So that it does not wait for them.
        self._service.stopping.set()
        super().handle_exit(sig, frame)

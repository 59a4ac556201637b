"""Running the coordinator: one folder, one process, until it is told to stop."""

import errno
import fcntl
import hashlib
import ipaddress
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedegoists.coordinator.domain.access import first_manager
from fedegoists.coordinator.runs.run_task import LOCAL_ONLY, Reach
from fedegoists.coordinator.service.app import create_app
from fedegoists.coordinator.service.identity import TLS_EXTENSION
from fedegoists.coordinator.service.state import Limits, Service
from fedegoists.coordinator.store import Store
from fedegoists.coordinator.store.database import sqlite_url
from fedegoists.errors import FileError, MissingDependencyError, SettingsError
from fedegoists.files import read_text

__all__ = ["DATABASE", "ServerSettings", "open_store", "serve"]

DATABASE = "coordinator.db"
KIT_FILE = "deploy.json"
SECONDS_TO_STOP = 5


@dataclass(frozen=True)
class ServerSettings:
    """Where to listen and what to keep where.

    Attributes
    ----------
    data : Path
        The folder with the database, unless `database` says otherwise, runs and silos' data.
    database : str or None
        The address of a PostgreSQL database, or of an SQLite file elsewhere.
    certificate, key : Path or None
        For HTTPS.
    client_ca : Path or None
        Who signs client certificates; with HTTPS only.
    behind_proxy : bool
        Believe what a proxy on this machine says about addresses and HTTPS.
    kit : Path or None
        The coordinator's kit of a deployment, for runs over FLARE.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8000
    database: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    behind_proxy: bool = False
    limits: Limits = field(default_factory=Limits)
    kit: Path | None = None


def open_store(data: Path, database: str | None) -> Store:
    """Open the database of a folder, or the one at an address; an empty folder is enough."""
    _make(data)
    return Store(database or sqlite_url((data / DATABASE).resolve()))


def _make(data: Path) -> None:
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{data}: cannot be used ({error.strerror})") from None


@contextmanager
def _alone_in(data: Path) -> Iterator[None]:
    """Refuse a second service in the same folder: both would work on the same runs."""
    _make(data)
    with (data / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FileError(f"{data}: another coordinator is running in this folder") from None
        yield


@contextmanager
def _listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Take the port before anything is promised; whoever connects waits until it is served."""
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
                absent = error  # a name may stand for an address of IPv6 where there is none
            else:
                sockets.append(one)
        if absent is not None and not sockets:
            raise SettingsError(_refused(host, port, absent))
        yield sockets


ABSENT = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""How a machine refuses an address that it does not have."""


def _refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than this user has; choose another with --port"
    return f"--host {host!r}: nobody can listen there ({error.strerror}); choose another"


def _unencrypted(settings: ServerSettings, sockets: Sequence[socket.socket]) -> bool:
    """Whether others could read along."""
    at_home = all(ipaddress.ip_address(one.getsockname()[0]).is_loopback for one in sockets)
    return not (at_home or settings.certificate or settings.behind_proxy)


def serve(
    settings: ServerSettings, say: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    """Serve until told to stop by SIGTERM or SIGINT; runs go on at the next start."""
    if (settings.certificate is None) != (settings.key is None):
        raise SettingsError("a certificate and its key belong together; give both or neither")
    if settings.client_ca is not None and settings.certificate is None:
        raise SettingsError("client certificates need HTTPS: give a certificate and a key too")
    for path in (settings.certificate, settings.key, settings.client_ca):
        if path is not None and not path.is_file():
            raise FileError(f"{path}: no such file")
    reach = _reach(settings.kit)
    os.umask(0o077)  # whatever is written here is nobody else's business
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
            say(f"The manager's one-time login, at {address}/login: {invitation}")
        service = Service.over(store, settings.data.resolve(), settings.limits, reach)
        _Server(_config(settings, service), service).run(sockets)


def _reach(kit: Path | None) -> Reach:
    """Return which silos there are; what is missing for runs over FLARE is said now."""
    if kit is None:
        return LOCAL_ONLY
    for package in ("torch", "nvflare"):
        if find_spec(package) is None:
            raise MissingDependencyError(
                f"runs over FLARE need {package}: pip install 'fedegoists[train,flare]'"
            )
    # Read here: the package of kits would load all that training needs, and keep it in memory.
    try:
        sites = json.loads(read_text(kit / KIT_FILE))["sites"]
        return Reach(kit.resolve(), tuple(map(str, sites)))
    except (FileError, ValueError, KeyError, TypeError):
        raise FileError(
            f"{kit}: not a coordinator's kit; `fedegoists deploy init` makes one"
        ) from None


def _config(settings: ServerSettings, service: Service) -> uvicorn.Config:
    logging.getLogger("fedegoists.coordinator").setLevel(logging.INFO)
    return uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        http=_Protocol,
        access_log=False,  # addresses may name somebody; the service logs routes instead
        server_header=False,
        proxy_headers=settings.behind_proxy,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
        log_config=LOGGING,
        ssl_certfile=settings.certificate,
        ssl_keyfile=str(settings.key) if settings.key else None,
        ssl_ca_certs=str(settings.client_ca) if settings.client_ca else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if settings.client_ca else ssl.CERT_NONE,
    )


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"error": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "uvicorn": {"handlers": ["error"], "level": "INFO", "propagate": False},
        "fedegoists": {"handlers": ["error"], "level": "INFO", "propagate": False},
    },
}


class _Server(uvicorn.Server):
    """Tells those who follow runs that it stops, so that nobody waits for them."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.stopping.set()
        super().handle_exit(sig, frame)


class _Protocol(H11Protocol):
    """Tells the application which client certificate a connection has shown."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        secured = transport.get_extra_info("ssl_object")
        shown = secured.getpeercert(binary_form=True) if secured is not None else None
        if shown:
            self.app = _with_certificate(self.app, hashlib.sha256(shown).hexdigest())


def _with_certificate(app: Any, fingerprint: str) -> Any:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        extensions = {**scope.get("extensions", {}), TLS_EXTENSION: fingerprint}
        await app({**scope, "extensions": extensions}, receive, send)

    return application

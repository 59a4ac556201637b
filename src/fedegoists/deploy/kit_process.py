"""The FLARE process of a kit in the foreground: started, watched, restarted and ended."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from fedegoists.deploy.child_processes import end_children
from fedegoists.deploy.kit_lock import KitLock
from fedegoists.deploy.membership import certificate_state
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare import kits
from fedegoists.federation.flare.kit_identity import IdentityError, read_trust, silo_identity
from fedegoists.federation.flare.kits import prepare_kit, require
from fedegoists.federation.flare.silo_settings import SILO_FILE, load_silo, read_silo_settings
from fedegoists.files import read_text

Role = Literal["coordinator", "silo"]

LONGEST_PAUSE = 30.0
"""Longest pause in seconds before a restart."""

STEADY = 60.0
"""Seconds after which the start of a process counts as successful."""

LOOK_AT_CERTIFICATE = 2.0
"""Seconds between two looks at the certificate, which may be renewed."""

REPEATED = 6
"""Number of earlier lines that a line must differ from to be shown."""

LINE = re.compile(r"^\S+ (\S+?),\d+ - (\S+) - (\w+) - (?:\[.*?\] - )?(.*)$")
SHOWN = {
    "silo": None,
    "ClientManager": re.compile(r"^Client: (New client .*|Client .*|.* left.*)"),
    "FederatedClient": re.compile(r"^(Successfully registered .*|Connected to server.*)"),
    "JobRunner": re.compile(r"^(Start to .*|.*[Jj]ob.*)"),
    "root": re.compile(r"^(Server started)"),
}
"""Lines of FLARE's log that users see, by logger, besides warnings and errors."""


class KitProcess:
    """One organisation's FLARE process, started from its kit.

    Parameters
    ----------
    role : {"coordinator", "silo"}
        Whose kit it is.
    kit : Path
        The kit's folder.
    tell : callable
        Called with a line for the user.
    environment : mapping of str to str
        Further environment variables of the process.
    """

    def __init__(
        self,
        role: Role,
        kit: Path,
        tell: Callable[[str], None] = lambda _: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        require()
        self.role, self.kit, self._tell = role, kit.resolve(), tell
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._lifeline: int | None = None
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        expected = "fed_server.json" if role == "coordinator" else "fed_client.json"
        if not (self.kit / "startup" / expected).is_file():
            made_by = "init" if role == "coordinator" else "join"
            raise FileError(
                f"{kit}: not the kit of a {role}; `fedegoists deploy {made_by}` makes it"
            )
        self._lock = KitLock(self.kit)
        try:
            if role == "silo":
                self._check_certificate()
                # Problems with the data are reported here, not in a job's log later on.
                load_silo(read_silo_settings(self.kit / SILO_FILE))
            prepare_kit(self.kit, role)
        except BaseException:
            self._lock.release()
            raise

    @property
    def pid(self) -> int | None:
        """The ID of the process that guards FLARE (`kit_guard`), while there is one."""
        return None if self._process is None else self._process.pid

    def _check_certificate(self) -> None:
        """Say what is wrong with a silo's certificate, or soon will be, before anything starts."""
        identity, trust = silo_identity(self.kit), read_trust(self.kit)
        state = certificate_state(identity.certificate, trust.revoked)
        until = f"{identity.certificate.not_valid_after_utc:%Y-%m-%d}"
        fix = f"make a new key with `fedegoists deploy renew {self.kit}` and have it signed"
        if state in ("expired", "revoked"):
            raise IdentityError(f"{self.kit}: its certificate (until {until}) is {state}; {fix}")
        trust.check(identity.certificate, identity.site)
        if state != "valid":
            self._tell(f"warning: the certificate of this silo expires on {until}; {fix}")

    def run(self) -> None:
        """Run until `stop`; restart the process whenever it ends by itself."""
        try:
            threading.Thread(target=self._watch_certificate, daemon=True).start()
            self._run()
        finally:
            self._lock.release()

    def _watch_certificate(self) -> None:
        """End the process when its certificate is replaced, so that it reconnects with it."""
        name = "server.crt" if self.role == "coordinator" else "client.crt"
        path = self.kit / "startup" / name
        used = path.read_bytes()
        while not self._stopping.wait(LOOK_AT_CERTIFICATE):
            if path.is_file() and (now := path.read_bytes()) != used:
                used = now
                self._tell("a new certificate is installed; connecting again with it")
                if self.pid is not None:
                    end_children(self.pid, itself=True)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            if not self._start():
                break
            assert self._process is not None
            with self._process as process:  # waits for it, and closes its output
                self._show(process)
            if self._stopping.is_set():
                break
            failures = failures + 1 if time.monotonic() - began < STEADY else 1
            pause = min(2.0**failures, LONGEST_PAUSE)
            self._tell(f"ended with {process.returncode}; starts again in {pause:.0f} s")
            end_children(process.pid)
            self._stopping.wait(pause)

    def _start(self) -> bool:
        """Start the FLARE process; return False if `stop` was called."""
        own = {"PYTHONUNBUFFERED": "1", "MALLOC_ARENA_MAX": "1", **self._environment}
        # Code in the kit runs only where it was approved, and is never imported by its name.
        own["PYTHONSAFEPATH"] = "1"
        with self._starting:
            if self._stopping.is_set():
                return False
            # Closed by the system when this process ends, however it ends.
            watched, lifeline = os.pipe()
            held = self._lock.descriptor
            guard = ["-m", "fedegoists.deploy.kit_guard", str(watched), str(held)]
            self._process = subprocess.Popen(  # noqa: S603 - the command is our own
                [sys.executable, "-u", *guard, *self._command()],
                pass_fds=(watched, held),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                cwd=self.kit,
                env={**os.environ, **own},
                start_new_session=True,
                umask=0o077,  # logs and state are for this user only
            )
            os.close(watched)
            self._close_lifeline()
            self._lifeline = lifeline
        return True

    def _close_lifeline(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _command(self) -> list[str]:
        if self.role == "coordinator":
            kind, own = "server", ["org=coordinator"]
        else:
            kind, site = "client", _site(self.kit)
            own = [f"uid={site}", f"org={re.sub(r'[^A-Za-z0-9_]', '_', site)}"]
            own.append(f"heart_beat_interval={kits.HEARTBEAT}")
        module = f"nvflare.private.fed.app.{kind}.{kind}_train"
        options = ["--set", "secure_train=true", "config_folder=config", *own]
        return [module, "-m", str(self.kit), "-s", f"fed_{kind}.json", *options]

    def _show(self, process: "subprocess.Popen[str]") -> None:
        """Tell the user selected lines of the log, until the process ends."""
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=REPEATED)
        for line in filter(None, map(shown_line, process.stdout)):
            # FLARE repeats some lines twice a second while a server is away.
            alike = re.sub(r"[0-9a-f]{8,}|\d+", "", line)
            if alike not in last:
                self._tell(line)
            last.append(alike)

    def stop(self) -> None:
        """End the process and every job process that it started."""
        self._stopping.set()
        with self._starting:  # so that no process starts afterwards
            process = self._process
        if process is not None:
            end_children(process.pid, itself=True)
            process.wait()
        self._close_lifeline()
        self._lock.release()

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Context manager that stops on SIGINT and SIGTERM."""

        def stop(*_: object) -> None:
            self._tell("stopping")
            self._stopping.set()
            threading.Thread(target=self.stop, daemon=True).start()

        before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            self.stop()
            for one, handler in before.items():
                signal.signal(one, handler)


def _site(kit: Path) -> str:
    """Return the name of the silo in its certificate."""
    site = str(json.loads(read_text(kit / "startup" / "fed_client.json"))["client"]["fqsn"])
    if not re.fullmatch(r"[A-Za-z0-9_-]+", site):
        raise SettingsError(f"{kit}: no site can be called {site!r}")
    return site


def shown_line(text: str) -> str | None:
    """Return a line of FLARE's log for users, or None if it is not for them.

    Examples
    --------
    >>> shown_line("2026-01-01 10:00:00,123 - silo - INFO - train for run demo: answered")
    '10:00:00 train for run demo: answered'
    >>> shown_line("2026-01-01 10:00:00,123 - Cell - INFO - Register blob CB")
    """
    found = LINE.match(text.rstrip())
    if found is None:
        return None
    clock, logger, level, message = found.groups()
    if level in ("WARNING", "ERROR", "CRITICAL"):
        return f"{clock} {level.lower()}: {message[:300]}"
    if logger not in SHOWN:
        return None
    wanted = SHOWN[logger]
    return f"{clock} {message[:300]}" if wanted is None or wanted.match(message) else None

"""The processes of a kit in the foreground: started, watched, started again, and all ended."""

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

from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare.kits import prepare_kit, require
from fedegoists.federation.flare.silo_settings import SILO_FILE, load_silo, read_silo_settings
from fedegoists.files import read_text

__all__ = ["KitProcess", "Role"]

Role = Literal["coordinator", "silo"]

LONGEST_PAUSE = 30.0
"""Seconds before the last of many restarts in a row."""

STEADY = 60.0
"""Seconds after which a process has not failed to start."""

PATIENCE = 8.0
"""Seconds that a process has to end by itself."""

REPEATED = 6
"""A line like one of so many before it is not shown again."""

LINE = re.compile(r"^\S+ (\S+?),\d+ - (\S+) - (\w+) - (?:\[.*?\] - )?(.*)$")
SHOWN = {
    "silo": None,
    "ClientManager": re.compile(r"^Client: (New client .*|Client .*|.* left.*)"),
    "FederatedClient": re.compile(r"^(Successfully registered .*|Connected to server.*)"),
    "JobRunner": re.compile(r"^(Start to .*|.*[Jj]ob.*)"),
    "root": re.compile(r"^(Server started)"),
}
"""What of FLARE's log is of interest while all is well: by logger, which lines."""


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
        Variables that the process gets besides those of this one.
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
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        expected = "fed_server.json" if role == "coordinator" else "fed_client.json"
        if not (self.kit / "startup" / expected).is_file():
            raise FileError(f"{kit}: not the kit of a {role}; `fedegoists deploy init` makes them")
        if role == "silo":
            # Whatever is wrong with the data is said here, not in a job's log later on.
            load_silo(read_silo_settings(self.kit / SILO_FILE))
        prepare_kit(self.kit, role)

    @property
    def pid(self) -> int | None:
        """The number of the FLARE process, while there is one."""
        return None if self._process is None else self._process.pid

    def run(self) -> None:
        """Run until `stop`; whenever the process ends by itself, start it again."""
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            if not self._start():
                break
            assert self._process is not None
            self._show(self._process)
            code = self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            if self._stopping.is_set():
                break
            failures = failures + 1 if time.monotonic() - began < STEADY else 1
            pause = min(2.0**failures, LONGEST_PAUSE)
            self._tell(f"ended with {code}; starts again in {pause:.0f} s")
            end_children(self._process.pid)
            self._stopping.wait(pause)

    def _start(self) -> bool:
        """Start the FLARE process, unless all is to stop."""
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "MALLOC_ARENA_MAX": "1",
            **self._environment,
        }
        with self._starting:
            if self._stopping.is_set():
                return False
            self._process = subprocess.Popen(  # noqa: S603 - the command is our own
                [sys.executable, "-u", "-m", *self._command()],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                cwd=self.kit,
                env=environment,
                start_new_session=True,
                umask=0o077,  # logs and what is kept are nobody else's business
            )
        return True

    def _command(self) -> list[str]:
        if self.role == "coordinator":
            kind, own = "server", ["org=coordinator"]
        else:
            kind, site = "client", _site(self.kit)
            own = [f"uid={site}", f"org={re.sub(r'[^A-Za-z0-9_]', '_', site)}"]
        module = f"nvflare.private.fed.app.{kind}.{kind}_train"
        options = ["--set", "secure_train=true", "config_folder=config", *own]
        return [module, "-m", str(self.kit), "-s", f"fed_{kind}.json", *options]

    def _show(self, process: "subprocess.Popen[str]") -> None:
        """Tell the user what of the log is of interest, until the process ends."""
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=REPEATED)
        for text in process.stdout:
            line = shown_line(text)
            if line is None:
                continue
            # FLARE says some things twice a second for as long as a server is away.
            alike = re.sub(r"[0-9a-f]{8,}|\d+", "", line)
            if alike not in last:
                self._tell(line)
            last.append(alike)

    def stop(self) -> None:
        """End the process and every job process that it started."""
        self._stopping.set()
        with self._starting:  # so that nothing starts that nobody would end
            process = self._process
        if process is not None:
            end_children(process.pid, itself=True)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Stop when the user or the system says so."""

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
    """Return as what the kit's certificate knows the silo."""
    site = str(json.loads(read_text(kit / "startup" / "fed_client.json"))["client"]["fqsn"])
    if not re.fullmatch(r"[A-Za-z0-9_-]+", site):
        raise SettingsError(f"{kit}: no site can be called {site!r}")
    return site


def shown_line(text: str) -> str | None:
    """Return a line of FLARE's log as a user reads it, or nothing if it is of no interest.

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


def end_children(pid: int, *, itself: bool = False) -> None:
    """End the processes that a process started, and itself if wanted; those that stay, by force."""
    import psutil

    try:
        parent = psutil.Process(pid)
        children = parent.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    processes = [*children, *([parent] if itself else [])]
    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=PATIENCE)

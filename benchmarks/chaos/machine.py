"""Processes, disks, clocks and networks that the chaos is made of; most of it needs root."""

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from benchmarks.chaos.slow_relay import SlowRelay
from benchmarks.chaos.tally import Tally

__all__ = [
    "COMPILER",
    "MARK",
    "ROOT",
    "Clock",
    "Forked",
    "Network",
    "Running",
    "SmallDisk",
    "marked",
    "wait_until",
]

MARK = "FEDEGOISTS_CHAOS"
"""Environment variable that every process of an instance inherit: so its orphans are found."""

ROOT = os.geteuid() == 0
COMPILER = shutil.which("cc")


def wait_until(condition, seconds: float, pause: float = 0.1) -> bool:
    """Return whether a condition held within some time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def marked(mark: str) -> list[psutil.Process]:
    """Return the living processes of an instance."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if f"{MARK}={mark}\0".encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                found.append(process)
    return found


def _environment(mark: str) -> dict[str, str]:
    return {
        **os.environ,
        MARK: mark,
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


class Clock:
    """A wall clock of some programs that can be moved while they run, where there is a compiler."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.environment: Mapping[str, str] = {}
        if COMPILER is None:
            return
        library = file.with_suffix(".so")
        source = str(Path(__file__).with_name("moved_clock.c"))
        command = [COMPILER, "-shared", "-fPIC", "-O2", "-o", str(library), source]
        subprocess.run(command, check=True)
        self._file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(file)}

    def jump(self, hours: int) -> bool:
        """Set how far it is from the true time; return whether there is such a clock."""
        if not self.environment:
            return False
        with self._file.open("r+b") as file:  # in place: programs have it mapped
            file.write(struct.pack("q", hours * 3600))
        return True


class Running:
    """A program of an instance, which can be killed and started again."""

    def __init__(
        self,
        arguments: Sequence[object],
        mark: str,
        log: Path,
        prefix: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self.arguments, self.mark, self.log, self.prefix = arguments, mark, log, tuple(prefix)
        self.clock = clock
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        command = [*self.prefix, sys.executable, "-m", "fedegoists", *self.arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(self.mark), **(self.clock.environment if self.clock else {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The program's process while it lives; `ip netns exec` replaces itself by it."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def kill(self) -> bool:
        """Kill the program itself, and none of its children; return whether it was alive."""
        return _ended(self.pid, signal.SIGKILL, 30)

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        if not _ended(self.pid, signal.SIGTERM, 30):
            self.kill()

    def close(self) -> None:
        """End it for good."""
        self.stop()


class Forked:
    """A program that is forked from a process which has loaded it; see `zygote`."""

    def __init__(self, arguments: Sequence[object], mark: str, log: Path) -> None:
        self.arguments, self.log = [str(part) for part in arguments], log
        self.clock = Clock(log.with_name("clock"))
        environment = {**_environment(mark), **self.clock.environment}
        with log.open("ab") as errors:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.chaos.zygote"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
                start_new_session=True,
            )
        self._child: int | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps([self.arguments, str(self.log)]) + "\n")
        self._zygote.stdin.flush()
        self._child = int(self._zygote.stdout.readline())

    @property
    def pid(self) -> int | None:
        """The program's process while it lives."""
        return self._child if self._child and psutil.pid_exists(self._child) else None

    def kill(self) -> bool:
        """Kill it; return whether it was alive."""
        return _ended(self.pid, signal.SIGKILL, 30)

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        if not _ended(self.pid, signal.SIGTERM, 30):
            self.kill()

    def close(self) -> None:
        """End it for good."""
        self.stop()
        self._zygote.kill()
        self._zygote.wait()


def _ended(pid: int | None, how: signal.Signals, seconds: float) -> bool:
    """Send a living process a signal and wait for its end; return whether both happened."""
    if pid is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.send_signal(how)
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            return False
    return True


class SmallDisk:
    """A small file system of its own that can be filled; a plain folder without root."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.small = folder, False
        if ROOT:
            options = f"size={megabytes}m,mode=700"
            command = ["mount", "-t", "tmpfs", "-o", options, "chaos", str(folder)]
            before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
            self.small = subprocess.run(command, capture_output=True, check=False).returncode == 0
            for name, content in before.items() if self.small else ():
                (folder / name).write_bytes(content)
                (folder / name).chmod(0o600)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Fill the disk to its last byte for a while."""
        filler = self.folder / ".filler"
        try:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                for size in (1 << 20, 1 << 12, 1):
                    with contextlib.suppress(OSError):
                        while True:
                            file.write(b"\0" * size)
                            if not self.small:
                                return
            yield
        finally:
            filler.unlink(missing_ok=True)

    def fill_now_and_then(self, stop: threading.Event, rng: random.Random, tally: Tally) -> None:
        """Fill it again and again for up to a second, until told to stop."""
        while self.small and not stop.wait(rng.uniform(0.1, 2.0)):
            if rng.random() < 0.4:
                with self.full():
                    tally.fault("disk of a coordinator full")
                    stop.wait(rng.uniform(0.2, 1.0))

    def close(self) -> None:
        """Remove the file system."""
        if self.small:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


class Network:
    """Network namespaces around a bridge, with links to be delayed, throttled and cut; needs root.

    In each of them `host` is the name of the first one. Silos reach it through a `SlowRelay`.
    """

    def __init__(self, name: str, subnet: int, members: int) -> None:
        self.name, self.host = name, f"{name}-hub"
        self.spaces = [f"{name}{k}" for k in range(members)]
        self.addresses = [f"10.99.{subnet}.{k + 10}" for k in range(members)]
        self.relays: dict[int, SlowRelay] = {}
        self._ip("link", "add", name, "type", "bridge")
        self._ip("addr", "add", f"10.99.{subnet}.1/24", "dev", name)
        self._ip("link", "set", name, "up")
        for k, (space, address) in enumerate(zip(self.spaces, self.addresses, strict=True)):
            self._ip("netns", "add", space)
            hub = self.addresses[0]
            if k:
                hub = f"10.99.{subnet}.{k + 100}"
                self._ip("addr", "add", f"{hub}/24", "dev", name)
                self.relays[k] = SlowRelay(hub, self.addresses[0])
            hosts = f"127.0.0.1 localhost\n{hub} {self.host}\n"
            own = Path("/etc/netns") / space
            own.mkdir(parents=True, exist_ok=True)
            (own / "hosts").write_text(hosts)
            pair = ("type", "veth", "peer", "name", "eth0", "netns", space)
            self._ip("link", "add", f"v{space}", *pair)
            self._ip("link", "set", f"v{space}", "master", name, "up")
            inside = ("netns", "exec", space, "ip")
            self._ip(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
            self._ip(*inside, "link", "set", "eth0", "up")
            self._ip(*inside, "link", "set", "lo", "up")

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def open(self, port: int) -> None:
        """Let silos reach a port of the hub."""
        for relay in self.relays.values():
            relay.open(port)

    def inside(self, member: int) -> tuple[str, ...]:
        """Return the prefix that starts a program in a namespace."""
        return ("ip", "netns", "exec", self.spaces[member])

    def cut(self, member: int, *, off: bool) -> None:
        """Take the link to a namespace down, or up again."""
        self._ip("link", "set", f"v{self.spaces[member]}", "down" if off else "up")

    def delay(self, member: int, seconds: float) -> None:
        """Let everything between a silo and the hub take longer, both ways."""
        self.relays[member].seconds = seconds

    def throttle(self, member: int, *, on: bool) -> bool:
        """Let packets to a namespace queue for seconds; return whether this machine can."""
        limits = ["root", "tbf", "rate", "200kbit", "burst", "4kb", "latency", "3s"]
        change = [
            "replace",
            "dev",
            f"v{self.spaces[member]}",
            *(limits if on else ["root", "pfifo"]),
        ]
        command = ["tc", "qdisc", *change]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def close(self) -> None:
        """Remove the namespaces and the bridge."""
        for relay in self.relays.values():
            relay.close()
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)
        subprocess.run(["ip", "link", "del", self.name], capture_output=True, check=False)

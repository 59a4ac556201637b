"""Processes, disks, clocks and networks that the chaos is made of; most of it needs root."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

__all__ = [
    "FAKETIME",
    "MARK",
    "ROOT",
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
FAKETIME = shutil.which("faketime")


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


class Running:
    """A program of an instance, which can be killed and started again."""

    def __init__(
        self, arguments: Sequence[object], mark: str, log: Path, prefix: Sequence[str] = ()
    ) -> None:
        self.arguments, self.mark, self.log, self.prefix = arguments, mark, log, tuple(prefix)
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
                env=_environment(self.mark),
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

    def __init__(
        self, arguments: Sequence[object], mark: str, log: Path, *, clock: bool = False
    ) -> None:
        self.arguments, self.log = [str(part) for part in arguments], log
        self.clock = log.with_name("clock") if clock and FAKETIME is not None else None
        environment = _environment(mark)
        if self.clock is not None:
            self.clock.write_text("+0\n")
            environment |= {
                "LD_PRELOAD": _faketime_library(),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "FAKETIME_CACHE_DURATION": "1",
                "NO_FAKE_STAT": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
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

    def move_clock(self, rng: random.Random) -> bool:
        """Let the clock jump by up to two days, while the program runs."""
        if self.clock is None:
            return False
        self.clock.write_text(f"{rng.randint(-48, 48) * 3600:+d}\n")
        return True

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


def _faketime_library() -> str:
    found = [*Path("/usr/lib").rglob("libfaketime.so.1")]
    return str(found[0]) if found else ""


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

    def close(self) -> None:
        """Remove the file system."""
        if self.small:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


class Network:
    """Network namespaces around a bridge, whose links can be slowed and cut; needs root.

    In each of them `host` is the name of the first one.
    """

    def __init__(self, name: str, subnet: int, members: int) -> None:
        self.name, self.host = name, f"{name}-hub"
        self.spaces = [f"{name}{k}" for k in range(members)]
        self.addresses = [f"10.99.{subnet}.{k + 10}" for k in range(members)]
        self._ip("link", "add", name, "type", "bridge")
        self._ip("addr", "add", f"10.99.{subnet}.1/24", "dev", name)
        self._ip("link", "set", name, "up")
        for space, address in zip(self.spaces, self.addresses, strict=True):
            self._ip("netns", "add", space)
            hosts = f"127.0.0.1 localhost\n{self.addresses[0]} {self.host}\n"
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

    def inside(self, member: int) -> tuple[str, ...]:
        """Return the prefix that starts a program in a namespace."""
        return ("ip", "netns", "exec", self.spaces[member])

    def cut(self, member: int, *, off: bool) -> None:
        """Take the link to a namespace down, or up again."""
        self._ip("link", "set", f"v{self.spaces[member]}", "down" if off else "up")

    def slow(self, member: int, *, on: bool) -> bool:
        """Let packets to a namespace queue for seconds; return whether this machine can."""
        # netem, which delays directly, is not in every kernel.
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
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)
        subprocess.run(["ip", "link", "del", self.name], capture_output=True, check=False)

"""Silos over FLARE on this machine: time and bytes of a round beside the parameters, and memory.

A round is one ``train`` of a single step on eight samples by every silo, so that almost nothing but
the way there and back is measured; nothing is subtracted. All processes share this machine's cores.
Where others use them as well, ``processor_ms``, what all processes together need of the processors
in a round, says more than the time on the clock.

Memory is that of all processes of the server, and of a silo, after every round. It goes up and down
with what is on its way and what is collected, so means over 64 rounds are compared, after which all
of that has come round. It fills while FLARE gathers what it keeps in mind for twelve seconds; from
then on its growth is the slope of a line through these means, with the line's standard error. After
the end no process may be left and no port that one of them had open.

What signatures cost is measured in one run: its silos answer calls with and without a signature,
and every pair of rounds has one of each, in random order.
"""

import argparse
import json
import math
import os
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import torch

from benchmarks.measure import report
from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.consortium.engine import SiloAccess
from fedegoists.deploy.flare_engine import FlareEngine
from fedegoists.deploy.local_deployment import LocalDeployment, free_port
from fedegoists.federation import Failure, Train, TrainSettings

FEATURES = 1200
"""Gives the network 120,201 parameters, about as many as the paper's for CIFAR-10."""

STEP = TrainSettings(steps=1, batch_size=8)


class Counting:
    """Passes on what silos and server send each other, and counts every byte, TLS included."""

    def __init__(self, target: int) -> None:
        self.bytes, self._target = 0, target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()  # the server is not up yet; the silo will come again
                continue
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while content := one.recv(1 << 16):
                self.bytes += len(content)
                other.sendall(content)
        except OSError:
            pass
        finally:
            other.close()


def consortium(folder: Path, silos: int) -> ConsortiumSettings:
    """Write a table for each silo."""
    data = folder / "data"
    data.mkdir()
    names = [f"x{k}" for k in range(FEATURES)]
    (data / "schema.toml").write_text(
        f'features = {json.dumps(names)}\ntarget = "y"\ntask = "regression"\n'
    )
    rng = np.random.default_rng(0)
    for silo in range(silos):
        columns = {name: rng.normal(size=60) for name in (*names, "y")}
        np.savez(data / f"silo{silo}.npz", **columns)
    return ConsortiumSettings.model_validate(
        {
            "data": {"source": str(data)},
            "deploy": {"port": free_port(), "deadline": 120, "privacy": "none"},
        }
    )


def families(deployment: LocalDeployment) -> dict[str, list[psutil.Process]]:
    """Return the processes of the server and of each silo, with those of their jobs."""
    parents = {name: psutil.Process(one.pid) for name, one in deployment.processes.items()}
    return {name: [one, *one.children(recursive=True)] for name, one in parents.items()}


def memory(deployment: LocalDeployment) -> tuple[float, float]:
    """Return the resident memory of the server and of a silo, their mean, in MB."""
    sizes = {
        name: sum(one.memory_info().rss for one in family) / 1e6
        for name, family in families(deployment).items()
    }
    server = sizes.pop("")
    return server, statistics.mean(sizes.values())


def growth(samples: list[tuple[float, float, float]], who: int) -> dict[str, float]:
    """Return the mean memory of some rounds, and its growth after it has filled."""
    blocks = [samples[k : k + CYCLE] for k in range(0, len(samples) - CYCLE + 1, CYCLE)]
    means = [statistics.mean(one[who] for one in block) for block in blocks]
    filled = next(k for k, block in enumerate(blocks) if block[0][0] > FILLED)
    later = means[filled:]
    places = [float(CYCLE * k) for k in range(len(later))]
    line = statistics.linear_regression(places, later)
    rest = sum(
        (y - line.intercept - line.slope * x) ** 2 for x, y in zip(places, later, strict=True)
    )
    spread = statistics.pvariance(places) * len(places)
    error = math.sqrt(rest / (len(later) - 2) / spread)
    percent = 100 * 1000 / statistics.mean(later)
    return {
        "mb_first": means[0],
        "mb_filled": later[0],
        "mb_last": later[-1],
        "percent_in_1000_rounds": percent * line.slope,
        "standard_error": percent * error,
    }


def listening(processes: list[psutil.Process]) -> set[int]:
    """Return the ports at which some processes listen."""
    return {
        one.laddr.port
        for process in processes
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }


def processor_seconds(deployment: LocalDeployment) -> float:
    """Return what all processes have used of the processors so far, this one included."""
    others = [one for family in families(deployment).values() for one in family]
    times = [process.cpu_times() for process in (psutil.Process(), *others)]
    return sum(one.user + one.system for one in times)


def left_behind(processes: list[psutil.Process], ports: set[int]) -> tuple[int, int]:
    """Return how many of some processes still run, and how many of their ports are still open."""
    running = [one for one in processes if one.is_running()]
    still = {
        one.laddr.port
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.port in ports
    }
    return len(running), len(still)


Samples = list[tuple[float, float, float]]
"""After each round: seconds since the first began, and the memory of the server and of a silo."""


class Measured(NamedTuple):
    """What came of some rounds: time and bytes, memory and what was left, and all samples."""

    time: dict[str, float]
    memory: dict[str, float]
    samples: Samples


def measure(silos: int, rounds: int, *, count_bytes: bool = False, look: bool = False) -> Measured:
    """Measure some rounds; `look` at the memory after each, which takes processor time."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        settings = consortium(folder, silos)
        deployment = LocalDeployment(settings, folder / "deploy")
        counting = Counting(settings.deploy.port) if count_bytes else None
        if counting is not None:
            for name in deployment.deployment.sites:
                path = deployment.silo(name) / "startup" / "fed_client.json"
                port = str(settings.deploy.port)
                path.write_text(path.read_text().replace(f":{port}", f":{counting.port}"))
        with deployment:
            engine = FlareEngine(settings, SiloAccess("run", deployment.kit))
            try:
                federation = engine.federation("mlp")
                start = federation.schema.drawn(0)
                times, counted, used = [], 0, 0.0
                samples: Samples = []
                first = time.perf_counter()
                for done in range(1, rounds + 1):
                    request = Train(parameters=start, settings=STEP, seed=f"0/{done}")
                    requests = dict.fromkeys(federation.participants, request)
                    if done == WARM:
                        counted = 0 if counting is None else counting.bytes
                        used = processor_seconds(deployment)
                    began = time.perf_counter()
                    replies = federation.call(requests)
                    times.append(time.perf_counter() - began)
                    assert not any(isinstance(reply, Failure) for reply in replies.values())
                    if look:
                        samples.append((time.perf_counter() - first, *memory(deployment)))
                used = (processor_seconds(deployment) - used) / (rounds - WARM + 1)
                travelled = 0 if counting is None else counting.bytes - counted
                processes = [one for family in families(deployment).values() for one in family]
                ports = listening(processes)
            finally:
                engine.close()
        left = left_behind(processes, ports)
    size = 2 * 4 * federation.schema.size  # there and back
    messages = sum(engine.link.sent.values()) + sum(engine.link.received.values())
    times = times[WARM:]
    server, silo = (growth(samples, k) if look else {} for k in (1, 2))
    about = {"silos": silos, "rounds": rounds}
    load = {"load_average": os.getloadavg()[1]}
    return Measured(
        about
        | {
            "parameters": federation.schema.size,
            "ms_median": 1000 * statistics.median(times),
            "ms_90": 1000 * statistics.quantiles(times, n=10)[-1],
            "processor_ms": 1000 * used,
            "message_bytes_ratio": messages / silos / rounds / size,
            "wire_bytes_ratio": travelled / silos / (rounds - WARM + 1) / size,
        }
        | load,
        about
        | {
            **{f"server_{key}": value for key, value in server.items()},
            **{f"silo_{key}": value for key, value in silo.items()},
            "processes": len(processes),
            "processes_left": left[0],
            "ports": len(ports),
            "ports_left": left[1],
        }
        | load,
        samples,
    )


WARM = 10
"""Rounds before anything counts."""

CYCLE = 64
"""Rounds after which a silo has collected everything once, old objects included."""

FILLED = 15.0
"""Seconds after which FLARE forgets as many messages as it gets."""

FLAT = 2.0
"""Percent by which memory may grow in 1,000 rounds, beyond twice the standard error."""


def measure_time(silos: list[int], rounds: int) -> None:
    """Measure time and bytes; the latter in a run of their own, as counting them takes time."""
    rows = []
    for count in silos:
        timed = measure(count, rounds).time
        timed["wire_bytes_ratio"] = measure(count, 40, count_bytes=True).time["wire_bytes_ratio"]
        rows.append(timed)
    told("deploy_loopback", "A round over FLARE; target: 200 ms, 1.05 times the parameters", rows)


class WithoutSignatures:
    """Takes the place of a `CallSigner` where silos accept calls without a signature."""

    def knows(self, site: str) -> bool:  # noqa: ARG002
        """Return True, so that no silo is greeted."""
        return True

    def call(self, site: str, message: bytes, seconds: float) -> bytes:  # noqa: ARG002
        """Return a message as it is, with a mark."""
        return UNSIGNED + message

    def opened(self, site: str, content: bytes) -> bytes:  # noqa: ARG002
        """Return an answer without its mark."""
        assert content[: len(UNSIGNED)] == UNSIGNED, "the silo answered with a seal"
        return content[len(UNSIGNED) :]


UNSIGNED = b"unsigned call "
"""As in `benchmarks/unsigned_silos/sitecustomize.py`."""


def signed_and_unsigned(silos: int, pairs: int) -> dict[str, float]:
    """Measure pairs of rounds, one of which is signed."""
    rng = np.random.default_rng(0)
    clock: dict[bool, list[float]] = {True: [], False: []}
    processor = {True: 0.0, False: 0.0}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        settings = consortium(folder, silos)
        deployment = LocalDeployment(settings, folder / "deploy")
        path = os.environ.get("PYTHONPATH", "")
        own = str(Path(__file__).parent / "unsigned_silos")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own, path]))
        with deployment:
            engine = FlareEngine(settings, SiloAccess("run", deployment.kit))
            try:
                federation = engine.federation("mlp")
                start = federation.schema.drawn(0)
                signers = {True: engine.link._signer, False: WithoutSignatures()}
                for number in range(WARM + pairs):
                    for signed in rng.permutation([True, False]).tolist():
                        seed = f"0/{number}/{signed}"
                        request = Train(parameters=start, settings=STEP, seed=seed)
                        engine.link._signer = signers[signed]
                        used = processor_seconds(deployment)
                        began = time.perf_counter()
                        replies = federation.call(dict.fromkeys(federation.participants, request))
                        took = time.perf_counter() - began
                        assert not any(isinstance(one, Failure) for one in replies.values())
                        if number >= WARM:
                            clock[signed].append(took)
                            processor[signed] += processor_seconds(deployment) - used
            finally:
                engine.close()
    ratios = [one / other for one, other in zip(clock[True], clock[False], strict=True)]
    logs = [math.log(one) for one in ratios]
    error = statistics.stdev(logs) / math.sqrt(pairs)
    return {
        "silos": silos,
        "pairs": pairs,
        "signed_ms_median": 1000 * statistics.median(clock[True]),
        "unsigned_ms_median": 1000 * statistics.median(clock[False]),
        "ratio": math.exp(statistics.mean(logs)),
        "ratio_standard_error": error,
        "signed_processor_ms": 1000 * processor[True] / pairs,
        "unsigned_processor_ms": 1000 * processor[False] / pairs,
        "processor_ratio": processor[True] / processor[False],
        "load_average": os.getloadavg()[1],
    }


def measure_signing(silos: list[int], pairs: int) -> None:
    """Measure what signatures cost."""
    rows = [signed_and_unsigned(count, pairs) for count in silos]
    told("deploy_signing", "A round with and without signatures; ratio: geometric mean", rows)


def measure_memory(silos: list[int], rounds: int) -> None:
    """Measure memory, and look for what is left after the end."""
    rows, sampled = [], []
    for count in silos:
        measured = measure(count, rounds, look=True)
        rows.append(measured.memory)
        for number, (seconds, server, silo) in enumerate(measured.samples, 1):
            sampled.append((count, number, f"{seconds:.1f}", f"{server:.1f}", f"{silo:.1f}"))
    columns = ("silos", "round", "seconds", "server_mb", "silo_mb")
    every = max(1, len(sampled) // 40)
    report("deploy_memory_rounds", "Memory by round", columns, sampled, every=every)
    title = f"Memory and what is left; target: growth below {FLAT:g} % in 1,000 rounds, 0 left"
    told("deploy_memory", title, rows)
    for row in rows:
        growing = [
            who
            for who in ("server", "silo")
            if row[f"{who}_percent_in_1000_rounds"] > FLAT + 2 * row[f"{who}_standard_error"]
        ]
        left = row["processes_left"] + row["ports_left"]
        if growing or left:
            raise SystemExit(f"{row['silos']} silos: growing {growing}, left behind {left:g}")


def told(name: str, title: str, rows: list[dict[str, float]]) -> None:
    columns = list(rows[0])
    for row in rows:
        print(", ".join(f"{key} {value:.5g}" for key, value in row.items()), flush=True)
    report(name, title, columns, [[f"{row[column]:.5g}" for column in columns] for row in rows])


MEASURED = {
    "time": (measure_time, 200),
    "signing": (measure_signing, 200),
    "memory": (measure_memory, 1000),
}
"""What can be measured, and in how many rounds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=[*MEASURED, "all"], default="all")
    parser.add_argument("--silos", type=int, nargs="+", default=[4, 10])
    parser.add_argument(
        "--rounds", type=int, help="200 for the time, 1000 for the memory, 200 pairs for signing"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)  # as in the silos: here all processes share the cores
    for what, (measured, rounds) in MEASURED.items():
        if options.what in (what, "all"):
            measured(options.silos, options.rounds or rounds)


if __name__ == "__main__":
    main()

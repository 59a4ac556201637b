"""Silos over FLARE on this machine: time and bytes of a round beside the parameters, and memory.

A round is one ``train`` of a single step on eight samples by every silo, so that almost nothing but
the way there and back is measured; nothing is subtracted. All processes share this machine's cores.
Where others use them as well, ``processor_ms``, what all processes together need of the processors
in a round, says more than the time on the clock.
"""

import argparse
import json
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import torch

from benchmarks.measure import report
from fedegoists.consortium.settings import ConsortiumSettings
from fedegoists.deploy.engine import FlareEngine
from fedegoists.deploy.local import LocalDeployment, free_port
from fedegoists.federation import Failure, TrainSettings

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
        {"data": {"source": str(data)}, "deploy": {"port": free_port(), "deadline": 120}}
    )


def memory(deployment: LocalDeployment) -> dict[str, float]:
    """Return the resident memory of server and silos, with their job processes, in MB."""
    sizes = {"server": 0.0, "silos": 0.0}
    for name, process in deployment.processes.items():
        parent = psutil.Process(process.pid)
        for one in (parent, *parent.children(recursive=True)):
            sizes["silos" if name else "server"] += one.memory_info().rss / 1e6
    return sizes


def processor_seconds(deployment: LocalDeployment) -> float:
    """Return what all processes have used of the processors so far, this one included."""
    kits = [psutil.Process(process.pid) for process in deployment.processes.values()]
    jobs = [child for kit in kits for child in kit.children(recursive=True)]
    times = [process.cpu_times() for process in (psutil.Process(), *kits, *jobs)]
    return sum(one.user + one.system for one in times)


def measure(silos: int, rounds: int, *, count_bytes: bool) -> dict[str, float]:
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
            engine = FlareEngine(settings, deployment.kit)
            try:
                federation = engine.federation("mlp")
                start = federation.schema.drawn(0)
                payloads = {
                    name: {"parameters": start, "settings": STEP, "seed": 0}
                    for name in federation.participants
                }
                times, counted, used, remembered = [], 0, 0.0, {}
                for done in range(1, rounds + 1):
                    if done == WARM:
                        counted = 0 if counting is None else counting.bytes
                        used = processor_seconds(deployment)
                    began = time.perf_counter()
                    replies = federation.call("train", payloads)
                    times.append(time.perf_counter() - began)
                    assert not any(isinstance(reply, Failure) for reply in replies.values())
                    if done in (rounds // 4, rounds):
                        remembered[done] = memory(deployment)
                used = (processor_seconds(deployment) - used) / (rounds - WARM + 1)
                travelled = 0 if counting is None else counting.bytes - counted
            finally:
                engine.close()
            early, late = remembered[rounds // 4], remembered[rounds]
            size = 2 * 4 * federation.schema.size  # there and back
            messages = sum(engine.link.sent.values()) + sum(engine.link.received.values())
            times = times[WARM:]
            return {
                "silos": silos,
                "rounds": rounds,
                "parameters": federation.schema.size,
                "ms_median": 1000 * statistics.median(times),
                "ms_90": 1000 * statistics.quantiles(times, n=10)[-1],
                "processor_ms": 1000 * used,
                "message_bytes_ratio": messages / silos / rounds / size,
                "wire_bytes_ratio": travelled / silos / (rounds - WARM + 1) / size,
                "server_mb_quarter": early["server"],
                "server_mb_end": late["server"],
                "silo_mb_quarter": early["silos"] / silos,
                "silo_mb_end": late["silos"] / silos,
            }


WARM = 10
"""Rounds before anything counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--silos", type=int, nargs="+", default=[4, 10])
    options = parser.parse_args()
    torch.set_num_threads(1)  # as in the silos: here all processes share the cores
    rows = []
    for silos in options.silos:
        timed = measure(silos, options.rounds, count_bytes=False)
        timed["wire_bytes_ratio"] = measure(silos, 40, count_bytes=True)["wire_bytes_ratio"]
        rows.append(timed)
        print(", ".join(f"{key} {value:.5g}" for key, value in timed.items()), flush=True)
    columns = list(rows[0])
    report(
        "deploy_loopback",
        "Silos over FLARE on one machine; target: 200 ms, 1.05 times the parameters",
        columns,
        [[f"{row[column]:.5g}" for column in columns] for row in rows],
    )


if __name__ == "__main__":
    main()

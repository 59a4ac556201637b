"""Rounds over FLARE on this machine, masked and plain in turn: ratios of time, processors, bytes.

A plain round is one call in which every silo trains and sends its model; a masked round is the call
in which it sends its part of the sum, and the one in which it gives shares. Both train the same.
``bare`` rounds train one step on eight samples, so that almost nothing but the way there and back
is measured; ``usual`` ones train as methods do by default, 20 steps. All processes share this
machine's cores. The first round, in which keys are made, is measured apart.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.bench_deploy import consortium, processor_seconds
from benchmarks.measure import report
from fedegoists.consortium.engine import SiloAccess
from fedegoists.deploy.flare_engine import FlareEngine
from fedegoists.deploy.local_deployment import LocalDeployment
from fedegoists.federation import Train, TrainSettings
from fedegoists.federation.flare.flare_federation import FlareFederation
from fedegoists.federation.mixing import Sum
from fedegoists.learning.model_registry import model_options

KINDS = {"bare": TrainSettings(steps=1, batch_size=8), "usual": TrainSettings()}
TARGETS = {"time": 1.3, "bytes": 1.1}


def federation(engine: FlareEngine, *, masked: bool) -> FlareFederation:
    """Return the silos as a federation that masks sums, or does not."""
    return FlareFederation(
        engine.link,
        engine.sites,
        model="mlp",
        options=model_options(engine.data, "mlp"),
        task=engine.data.task,
        samples={name: one.sizes[0] for name, one in engine.about.items()},
        masked=masked,
    )


def one_round(silos: FlareFederation, settings: TrainSettings, number: int) -> None:
    """Train once and average."""
    names = silos.participants
    request = Train(parameters=silos.schema.drawn(0), settings=settings, seed=f"0/{number}")
    mean = Sum(names, dict.fromkeys(names, 1.0), names)
    mixed = silos.mix(dict.fromkeys(names, request), [mean])
    assert mixed.failures == (), mixed.failures
    assert mixed.received == set(names)


def measure(silos: int, rounds: int) -> list[dict[str, object]]:
    """Carry out masked and plain rounds in turn."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        settings = consortium(folder, silos)
        deployment = LocalDeployment(settings, folder / "deploy")
        for name in deployment.deployment.sites:
            consent(deployment.silo(name) / "silo.toml")
        with deployment:
            engine = FlareEngine(settings, SiloAccess("run", deployment.kit))
            try:
                masked, plain = (federation(engine, masked=one) for one in (True, False))
                began = time.perf_counter()
                one_round(masked, KINDS["bare"], 0)
                first = time.perf_counter() - began
                return [
                    {"silos": silos, "round": kind, "parameters": masked.schema.size}
                    | compared(
                        engine,
                        lambda: processor_seconds(deployment),
                        {"plain": plain, "masked": masked},
                        train,
                        rounds,
                    )
                    | {"first_ms": 1000 * first}
                    for kind, train in KINDS.items()
                ]
            finally:
                engine.close()


def consent(path: Path) -> None:
    """Let a silo send its model alone, for the plain rounds, and answer without limits."""
    lines = [
        line
        for line in path.read_text().splitlines()
        if not line.startswith(("single_updates", "rounds_per_day"))
    ]
    place = lines.index("[limits]") + 1 if "[limits]" in lines else len(lines)
    head = [] if "[limits]" in lines else ["[limits]"]
    lines[place:place] = [*head, "single_updates = true"]
    path.write_text("\n".join(lines) + "\n")


def compared(
    engine: FlareEngine,
    used: Callable[[], float],
    federations: dict[str, FlareFederation],
    settings: TrainSettings,
    rounds: int,
) -> dict[str, float]:
    """Return medians of both kinds of rounds, and their ratios."""
    times: dict[str, list[float]] = {kind: [] for kind in federations}
    processors: dict[str, list[float]] = {kind: [] for kind in federations}
    sizes: dict[str, list[float]] = {kind: [] for kind in federations}
    for number in range(rounds + 2):
        for kind, silos in federations.items():
            before, travelled, began = used(), traffic(engine), time.perf_counter()
            one_round(silos, settings, number)
            if number >= 2:  # the first ones warm up
                times[kind].append(time.perf_counter() - began)
                sizes[kind].append(traffic(engine) - travelled)
                processors[kind].append(used() - before)
    result = {f"{kind}_ms": 1000 * statistics.median(own) for kind, own in times.items()} | {
        f"{kind}_kb": statistics.median(own) / 1000 for kind, own in sizes.items()
    }
    for name, own in (("time", times), ("processor", processors), ("bytes", sizes)):
        result[f"{name}_ratio"] = statistics.median(own["masked"]) / statistics.median(own["plain"])
    return result


def traffic(engine: FlareEngine) -> int:
    """Return all bytes of messages so far."""
    return sum(engine.link.sent.values()) + sum(engine.link.received.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, nargs="+", default=[10])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)  # as in the silos: here all processes share the cores
    rows = [row for silos in options.silos for row in measure(silos, options.rounds)]
    columns = list(rows[0])
    told = [[one if isinstance(one, str) else f"{one:.5g}" for one in row.values()] for row in rows]
    for row in told:
        print(", ".join(f"{k} {v}" for k, v in zip(columns, row, strict=True)), flush=True)
    title = "Masked rounds; target: 1.3 times the time and 1.1 times the bytes of plain ones"
    report("masked_rounds", title, columns, told)


if __name__ == "__main__":
    main()

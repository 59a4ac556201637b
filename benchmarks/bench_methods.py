"""The time of a round of every method beside FedAvg's, in the same run.

    python -m benchmarks.bench_methods --device cpu
    python -m benchmarks.bench_methods --device cuda

On the CPU: 10 silos × 500 CIFAR-shaped samples in two coalitions of five, batch 64, 8 local steps a
round, one thread, processor time. On a GPU: five trials of ten silos of 4,500 samples, all stacked,
50 steps. A method's extra time is explained by the gradients it must compute (passes relative to
FedAvg's) and by what the server does with them.
"""

import argparse
import time

import torch

from benchmarks.bench_training import silos
from benchmarks.measure import report
from fedegoists.federation import SimulatedFederation, TrainSettings
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods import METHODS


def seconds_a_round(
    name: str, federation: SimulatedFederation, settings: TrainSettings, rounds: int
) -> tuple[float, float]:
    """Return the fastest round's time, and sample passes of a participant in it."""
    names = federation.participants
    coalitions = [names[k : k + 5] for k in range(0, len(names), 5)]
    model = build_model("cifar10-cnn", 0)
    start = ParameterSchema.of(model).flatten(dict(model.named_parameters()))
    initial = start.to(federation.device).repeat(len(names), 1)
    method = METHODS[name](settings)
    state = method.start(federation, coalitions, initial, 0)
    # With one thread, processor time is what others on the machine cannot disturb.
    clock = time.perf_counter if federation.device.type == "cuda" else time.process_time
    best, passes = float("inf"), 0.0
    for number in range(rounds + 1):
        began = clock()
        state, done = method.round(federation, coalitions, state, 0)
        if federation.device.type == "cuda":
            torch.cuda.synchronize()
        if number:  # the first one warms up
            best = min(best, clock() - began)
        passes = sum(done.sample_passes.values()) / len(names)
    return best, passes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", default=",".join(METHODS))
    arguments = parser.parse_args()
    device = arguments.device
    if device == "cpu":
        torch.set_num_threads(1)
        data, settings, rounds = silos(10, 500, validation=50), TrainSettings(steps=8), 2
        federation = SimulatedFederation(data, build_model("cifar10-cnn", 0), device=device)
    else:
        data, settings, rounds = silos(10, 4500, validation=500), TrainSettings(steps=50), 4
        federation = SimulatedFederation(
            {str(k): data for k in range(5)}, build_model("cifar10-cnn", 0), device=device
        )
    reference, base = seconds_a_round("fedavg", federation, settings, rounds)
    rows = []
    for name in arguments.methods.split(","):
        seconds, passes = seconds_a_round(name, federation, settings, rounds)
        rows.append(
            (
                name,
                f"{seconds:.3f}",
                f"{seconds / reference:.2f}",
                f"{passes / base:.2f}",
                f"{seconds / reference / (passes / base):.2f}",
            )
        )
    columns = ("method", "seconds a round", "/ FedAvg", "passes / FedAvg", "time per pass")
    report(f"methods_{device}", f"A round of every method on {device}", columns, rows)


if __name__ == "__main__":
    main()

"""Peak memory: a hundred silos of CIFAR's size beside a copy per silo, and the synthetic data.

    python -m benchmarks.bench_memory

Every case runs in a process of its own, so that its peak is its own.
"""

import argparse
import resource
import subprocess
import sys
import tempfile

import numpy as np
import torch

from benchmarks.bench_training import silos
from benchmarks.measure import report
from fedegoists.federation import SimulatedFederation, Train, TrainSettings
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.methods import METHODS, Callbacks, RunSettings, run
from fedegoists.training import Comparison, compare


def shared() -> None:
    """Train a step with 100 silos over one pool of 60,000 images."""
    model = build_model("cifar10-cnn", 0)
    start = ParameterSchema.of(model).flatten(dict(model.named_parameters()))
    federation = SimulatedFederation(silos(100, 540, validation=59), model)
    settings = TrainSettings(steps=1)
    request = Train(parameters=start, settings=settings)
    federation.call(dict.fromkeys(federation.participants, request))


def whole() -> None:
    """Train with Local and FedAvg, 100 silos of 600 images, with evaluations and checkpoints."""
    model = build_model("cifar10-cnn", 0)
    federation = SimulatedFederation(silos(100, 540, validation=59), model)
    start = ParameterSchema.of(model).flatten(dict(model.named_parameters())).detach()
    alone = [(name,) for name in federation.participants]
    kept = []  # as a comparison keeps what each method gave
    with tempfile.TemporaryDirectory() as folder:
        for name, groups in (("local", alone), ("fedavg", [federation.participants])):
            kept.append(
                run(
                    METHODS[name](TrainSettings(steps=1), ()),
                    federation,
                    groups,
                    start.repeat(100, 1),
                    RunSettings(rounds=2, seed=0),
                    Callbacks(f"{folder}/{name}"),
                )
            )


def copied() -> None:
    """Make tensors of numbers for each silo instead, as one would write it."""
    data = silos(100, 540, validation=59)
    own = []
    for silo in data.silos:
        rows = np.concatenate([silo.train, silo.validation, silo.test])
        images = torch.from_numpy(data.samples.inputs[0][rows]).permute(0, 3, 1, 2)
        own.append(images.float() / 127.5 - 1)
    for images in own:
        build_model("cifar10-cnn", 0)(images[:64]).sum().backward()


def synthetic() -> None:
    """Compare Local, FedAvg and its fine-tuning on synthetic data with five seeds."""
    with tempfile.TemporaryDirectory() as folder:
        compare(Comparison("synthetic-weak", seeds=(0, 1, 2, 3, 4), steps=100), f"{folder}/out")


def nothing() -> None:
    """Do nothing but import."""


CASES = {case.__name__: case for case in (nothing, shared, whole, copied, synthetic)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES)
    case = parser.parse_args().case
    if case:
        CASES[case]()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    command = [sys.executable, "-m", "benchmarks.bench_memory", "--case"]
    peaks = {
        name: int(subprocess.check_output([*command, name], text=True).split()[-1])
        for name in CASES
    }
    rows = [
        (
            name,
            (function.__doc__ or "").split(".")[0],
            peaks[name],
            f"{peaks[name] / peaks['copied']:.2f}",
        )
        for name, function in CASES.items()
    ]
    report("memory", "Peak memory on the CPU", ("case", "what", "MB", "/ copied"), rows)


if __name__ == "__main__":
    main()

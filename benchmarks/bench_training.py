"""Images a second in local training: stacked silos against one at a time, in the same run.

    python -m benchmarks.bench_training --device cuda
    python -m benchmarks.bench_training --device cpu

On the CPU the peer is a plain PyTorch loop over silos (10 silos × 500 CIFAR-shaped samples, batch
64, one local pass, one thread); on a GPU it is our own looped execution, one silo at a time.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.measure import report
from fedegoists.federation import SimulatedFederation, Train, TrainSettings
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema


def silos(count: int, each: int, validation: int = 1) -> SiloedData:
    """Return silos with random images of CIFAR's shape."""
    rng = np.random.default_rng(0)
    own = each + validation + 1  # and one sample to test
    samples = Samples(
        (rng.integers(0, 256, (count * own, 32, 32, 3), dtype=np.uint8),),
        rng.integers(0, 10, count * own),
    )
    return SiloedData(
        "random images",
        "classification",
        samples,
        tuple(
            SiloIndices(
                f"v{k}",
                np.arange(k * own, k * own + each),
                np.arange(k * own + each, (k + 1) * own - 1),
                np.array([(k + 1) * own - 1]),
            )
            for k in range(count)
        ),
        10,
        "random images",
        (),
    )


def trained(
    data: SiloedData, device: str, execution: str, steps: int, **how: bool
) -> Callable[[int], None]:
    """Return a function that trains all silos of a federation for some steps."""
    model = build_model("cifar10-cnn", 0)
    schema = ParameterSchema.of(model)
    start = schema.flatten(dict(model.named_parameters())).to(device)
    federation = SimulatedFederation(data, model, device=device, execution=execution, **how)
    settings = TrainSettings(steps=steps, batch_size=BATCH)

    def train(seed: int) -> None:
        request = Train(parameters=start, settings=settings, seed=seed)
        federation.call(dict.fromkeys(federation.participants, request))
        if device != "cpu":
            torch.cuda.synchronize()

    return train


def plain_loop(data: SiloedData, steps: int) -> Callable[[int], None]:
    """Return the same for a loop as one would write it: one module and optimiser a silo."""
    images = torch.from_numpy(np.array(data.samples.inputs[0])).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(np.array(data.samples.targets)).long()

    def train(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for silo in data.silos:
            model = build_model("cifar10-cnn", 0)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            for _ in range(steps):
                batch = torch.from_numpy(rng.choice(silo.train, BATCH, replace=False))
                x = images[batch].float() / 127.5 - 1
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(x), labels[batch]).backward()
                optimiser.step()

    return train


def rates(
    images: int, ways: dict[str, Callable[[int], None]], clock: Callable[[], float]
) -> dict[str, float]:
    """Return images a second of each way at its best, the ways taking turns."""
    best = dict.fromkeys(ways, 0.0)
    for train in ways.values():
        train(0)
    for seed in range(1, TURNS + 1):
        for name, train in ways.items():
            began = clock()
            train(seed)
            best[name] = max(best[name], images / (clock() - began))
    return best


BATCH = 64
TURNS = 4


# What one image moves at least: 23,000 numbers of activations, written and read going forwards
# and again going backwards, and a 64th of eight passes over parameters, gradient and momentum.
BYTES_PER_IMAGE = 4 * (4 * 22_966 + 8 * 121_182 / 64)


def copy_bandwidth(device: str) -> float:
    """Return bytes read and written a second by a large copy."""
    source = torch.empty(2**30, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        target.copy_(source)
    torch.cuda.synchronize()
    return 10 * 2 * source.nbytes / (time.perf_counter() - began)


def share(images: float, bandwidth: float) -> str:
    """Return which part of the memory bandwidth the images need at least."""
    return f"{images * BYTES_PER_IMAGE / bandwidth:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    rows = []
    if device == "cpu":
        torch.set_num_threads(1)
        data = silos(10, 500)
        ways = {"plain": plain_loop(data, 8)}
        ways |= {how: trained(data, device, how, 8) for how in ("looped", "stacked")}
        # Processor time, as others may use the machine too.
        found = rates(10 * 8 * BATCH, ways, time.process_time)
        plain = found.pop("plain")
        for execution, ours in found.items():
            rows.append((execution, 10, f"{ours:,.0f}", f"{plain:,.0f}", f"{plain / ours:.2f}"))
        columns = ("execution", "silos", "images/s", "plain loop", "time / plain loop")
    else:
        one = trained(silos(10, 500), device, "looped", 20)
        single = rates(10 * 20 * BATCH, {"": one}, time.perf_counter)[""]
        copied = copy_bandwidth(device)
        rows.append(("looped", 10, "fp32", "", f"{single:,.0f}", "1.0", share(single, copied)))
        for count in (10, 50, 100):
            for bf16 in (False, True):
                for graphs in (False, True):
                    way = trained(
                        silos(count, 500), device, "stacked", 100, bf16=bf16, graphs=graphs
                    )
                    ours = rates(count * 100 * BATCH, {"": way}, time.perf_counter)[""]
                    rows.append(
                        (
                            "stacked",
                            count,
                            "bf16" if bf16 else "fp32",
                            "yes" if graphs else "no",
                            f"{ours:,.0f}",
                            f"{ours / single:.1f}",
                            share(ours, copied),
                        )
                    )
        columns = (
            "execution",
            "silos",
            "precision",
            "CUDA graphs",
            "images/s",
            "/ one at a time",
            "of bandwidth",
        )
    report(
        f"training_{device}", f"Local training of the CIFAR-10 network on {device}", columns, rows
    )


if __name__ == "__main__":
    main()

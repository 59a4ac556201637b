"""Images a second in local training of own modules: all silos at once against one at a time.

    python -m benchmarks.bench_own_modules --device cuda
    python -m benchmarks.bench_own_modules --steps 2

20 silos, batch 32: the four-layer network of many papers on personalised federated learning (32
and 64 filters, 512 units), a small residual network with batch normalisation, and a network of one
convolution. Both ways train in the same run, and take turns. On a CPU convolutions are faster one
silo at a time, which is what `auto` chooses there.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.bench_training import rates, silos
from benchmarks.measure import report
from fedegoists.federation import SimulatedFederation, Train, TrainSettings

SILOS, BATCH = 20, 32


class Block(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.around = nn.Sequential()
        if stride != 1 or channels != out:
            self.around.append(nn.Conv2d(channels, out, 1, stride, bias=False))
            self.around.append(nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        return torch.relu(self.body(x) + self.around(x))


def four_layers() -> nn.Module:
    """Return a network of two convolutions and two dense layers."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


def residual() -> nn.Module:
    """Return a residual network of seven convolutions with batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        Block(32, 32, 1), Block(32, 64, 2), Block(64, 128, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def one_convolution() -> nn.Module:
    """Return a small network, with 404,800 operations for an image."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(800, 10)
    )


def trained(
    build: Callable[[], nn.Module], device: str, execution: str, steps: int, bf16: bool
) -> Callable[[int], None]:
    """Return a function that trains all silos for some steps."""
    model = build()
    federation = SimulatedFederation(
        silos(SILOS, 500), model, device=device, execution=execution, bf16=bf16
    )
    start = federation.schema.flatten(dict(model.named_parameters())).detach().to(device)
    settings = TrainSettings(steps=steps, batch_size=BATCH)
    print(execution, federation.engine)

    def train(seed: int) -> None:
        request = Train(parameters=start, settings=settings, seed=seed)
        federation.call(dict.fromkeys(federation.participants, request))
        if device != "cpu":
            torch.cuda.synchronize()

    return train


NETWORKS = {"four layers": four_layers, "residual": residual, "one convolution": one_convolution}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    rows = []
    for name, build in NETWORKS.items():
        ways = {
            "looped": trained(build, given.device, "looped", given.steps, False),
            "stacked": trained(build, given.device, "stacked", given.steps, False),
        }
        if given.device != "cpu":
            ways["stacked bf16"] = trained(build, given.device, "stacked", given.steps, True)
        found = rates(SILOS * given.steps * BATCH, ways, time.perf_counter)
        for way, images in found.items():
            rows.append((name, way, f"{images:,.0f}", f"{images / found['looped']:.1f}"))
    report(
        f"own_modules_{given.device}",
        f"Local training of own modules, {SILOS} silos, batch {BATCH}, on {given.device}",
        ("network", "execution", "images/s", "/ one at a time"),
        rows,
    )


if __name__ == "__main__":
    main()

"""The GPU kernels for many small convolutional networks, against `vmap` in the same run.

python -m benchmarks.bench_kernels [--networks 50 250] [--parts]
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.stacked_cnn import StackedCNN

BATCH, POOL = 64, 50_000


def captured(function: Callable[[], object]) -> Callable[[], object]:
    """Return a function as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def seconds(function: Callable[[], object], times: int = 20) -> float:
    """Return the time of one call, the best of three series."""
    best = float("inf")
    function()
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            function()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / times)
    return best


def profile(function: Callable[[], object]) -> None:
    """Print the kernels that take longest."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiling

    function()
    torch.cuda.synchronize()
    with profiling(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            function()
        torch.cuda.synchronize()
    for event in sorted(found.key_averages(), key=lambda e: -e.device_time_total)[:22]:
        print(
            f"    {event.device_time_total / 5000:8.3f} ms  {event.count // 5:4d}  {event.key[:80]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", type=int, nargs="+", default=[50, 250])
    parser.add_argument("--models", nargs="+", default=["cifar10-cnn", "cifar100-cnn"])
    parser.add_argument("--parts", action="store_true", help="print the time of each kernel")
    chosen = parser.parse_args()
    print("model,networks,way,images_per_second,against_vmap,largest_difference")
    for name in chosen.models:
        for networks in chosen.networks:
            measure(name, networks, parts=chosen.parts)


def measure(name: str, networks: int, *, parts: bool) -> None:
    """Print the rates of all ways for one model."""
    model = build_model(name, 0).cuda().to(memory_format=torch.channels_last)
    schema = ParameterSchema.of(model)
    rows = torch.stack(
        [schema.flatten(dict(build_model(name, k).named_parameters())) for k in range(networks)]
    ).cuda()
    pool = torch.randint(0, 256, (POOL, 32, 32, 3), dtype=torch.uint8, device="cuda")
    positions = torch.randint(0, POOL, (networks, BATCH), device="cuda")
    targets = torch.randint(0, 10, (networks, BATCH), device="cuda")
    shifts = torch.randint(0, 9, (networks, BATCH, 2), device="cuda")
    draws = torch.cat([torch.randint_like(shifts[..., :1], 0, 2), shifts], -1)

    def plain(bf16: bool) -> Callable[[], tuple[Tensor, Tensor]]:
        def loss(vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
            with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                out = functional_call(model, schema.unflatten(vector), (x,))
            return torch.nn.functional.cross_entropy(out.float(), y)

        gradient = vmap(grad_and_value(loss))
        images = (pool[positions].float() / 127.5 - 1).movedim(-1, -3)
        return lambda: gradient(rows, images, targets)

    def ours(bf16: bool) -> Callable[[], tuple[Tensor, Tensor]]:
        cnn = StackedCNN(model, schema, bf16=bf16)  # type: ignore[arg-type]
        return lambda: cnn.gradients(rows, cnn.images(pool, positions), targets)

    exact = plain(False)()[0]
    base = 0.0
    for way, function in (
        ("vmap", plain(False)),
        ("vmap bf16", plain(True)),
        ("kernels", ours(False)),
        ("kernels bf16", ours(True)),
    ):
        gap = ((function()[0] - exact).norm() / exact.norm()).item()
        rate = networks * BATCH / seconds(captured(function))
        base = base or rate
        print(f"{name},{networks},{way},{rate:.0f},{rate / base:.2f},{gap:.1e}", flush=True)
        if parts:
            profile(function)
    cnn = StackedCNN(model, schema)  # type: ignore[arg-type]
    rate = networks * BATCH / seconds(captured(lambda: cnn.images(pool, positions, draws)))
    print(f"{name},{networks},images augmented,{rate:.0f},,", flush=True)


if __name__ == "__main__":
    main()

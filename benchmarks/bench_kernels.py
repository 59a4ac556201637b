"""The GPU kernels for many small convolutional networks, against `vmap` in the same run.

python -m benchmarks.bench_kernels [--models pfllib-cnn] [--networks 50 250] [--parts]
python -m benchmarks.bench_kernels --sweep [--limit 60] [--precisions bf16 fp32]

The second command looks for faster tunings of the kernels: it compiles all that could fit into
registers, side by side on all cores, and times them one after the other.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from multiprocessing import TimeoutError as LateError
from multiprocessing import get_context

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedegoists.learning import stacked_cnn
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.stacked_cnn import FORWARD, INPUTS, WEIGHTS, Shape, StackedCNN, Tuning

BATCH, POOL = 64, 50_000
TILES, WARPS, STAGES, WIDTHS = (32, 64, 128, 256), (2, 4, 8), (2, 3), (32, 64, 128, 256)
"""Values of tunings that a sweep tries."""
MOST_SUMS, FEWEST_SUMS = 160, 8
"""Sums in the registers of one thread; it has 255, and others are needed, too."""
MOST_READ = 128
"""Numbers that one thread reads at once at most; with more, compiling takes long."""


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
    parser.add_argument(
        "--models", nargs="+", help="all of them by default, or pfllib-cnn for a sweep"
    )
    parser.add_argument("--parts", action="store_true", help="print the time of each kernel")
    parser.add_argument("--sweep", action="store_true", help="look for faster tunings instead")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a sweep")
    parser.add_argument(
        "--precisions", nargs="+", choices=("bf16", "fp32"), default=["bf16", "fp32"]
    )
    chosen = parser.parse_args()
    if chosen.sweep:
        sweep(
            chosen.models or ["pfllib-cnn"], max(chosen.networks), chosen.precisions, chosen.limit
        )
        return
    print("model,networks,way,images_per_second,against_vmap,largest_difference")
    for name in chosen.models or ["cifar10-cnn", "cifar100-cnn", "pfllib-cnn"]:
        for networks in chosen.networks:
            measure(name, networks, parts=chosen.parts)


def built(name: str, seed: int) -> nn.Module:
    """Return one of the networks, PFLlib's with ten classes."""
    return build_model(name, seed, **({"outputs": 10} if name == "pfllib-cnn" else {}))


def measure(name: str, networks: int, *, parts: bool) -> None:
    """Print the rates of all ways for one model."""
    model = built(name, 0).cuda().to(memory_format=torch.channels_last)
    schema = ParameterSchema.of(model)
    rows = torch.stack(
        [schema.flatten(dict(built(name, k).named_parameters())) for k in range(networks)]
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


Values = dict[str, int]


@dataclass
class Job:
    """One kernel for one convolution, with its present tuning."""

    kernel: str
    table: dict[Shape, Tuning]
    shape: Shape
    run: Callable[[], Tensor]

    def __str__(self) -> str:
        number, inputs, outputs = self.shape
        return f"{self.kernel} {str(number).removeprefix('torch.')} {inputs}->{outputs}"

    def values(self) -> Values:
        """Return the present tuning."""
        tile, options = self.table[self.shape]
        return {"TILE": tile, "num_stages": stacked_cnn.STAGES, **options}

    def candidates(self) -> list[Values]:
        """Return the present tuning, and all that could fit into registers."""
        widths = WIDTHS if self.kernel == "weights" else (0,)
        found = [self.values()]
        for tile, warps, stages, width in product(TILES, WARPS, STAGES, widths):
            values = {"TILE": tile, "num_warps": warps, "num_stages": stages}
            values |= {"WIDTH": width} if width else {}
            if values not in found and self.fits(tile, 32 * warps, width):
                found.append(values)
        return found

    def fits(self, tile: int, threads: int, width: int) -> bool:
        """Return whether sums and numbers that are read could fit into registers."""
        _, inputs, outputs = self.shape
        sums, read = {
            "forward": (4 * tile * outputs, 32 * max(tile, 4 * outputs)),
            "weights": (4 * width * outputs, tile * max(width, outputs)),
            "inputs": (4 * tile * inputs, outputs * max(tile, 4 * inputs)),
        }[self.kernel]
        few = FEWEST_SUMS * threads <= sums <= MOST_SUMS * threads
        return few and read <= MOST_READ * threads and width < 72 * inputs

    def prepare(self, values: Values) -> None:
        """Compile the kernel with a tuning, into Triton's cache."""
        with suppress(Exception), self.tuned(values):
            self.run()
            torch.cuda.synchronize()

    @contextmanager
    def tuned(self, values: Values) -> Iterator[None]:
        """Use a tuning inside the context."""
        before = self.table[self.shape]
        options = {key: value for key, value in values.items() if key != "TILE"}
        self.table[self.shape] = (values["TILE"], options)
        try:
            yield
        finally:
            self.table[self.shape] = before

    def milliseconds(self, values: Values, expected: Tensor) -> float:
        """Return the time with a tuning; infinity, and a line, if it fails or is wrong."""
        try:
            with self.tuned(values):
                found = self.run().float()
                gap = ((found - expected).norm() / expected.norm()).item()
                if not gap < 0.01:
                    print(f"# {self}: {values} is wrong by {gap:.1e}", flush=True)
                    return float("inf")
                return 1000 * seconds(self.run, 5)
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")[:120]
            print(f"# {self}: {values} fails: {type(error).__name__}: {reason}", flush=True)
            return float("inf")


def sweep(names: list[str], networks: int, precisions: list[str], limit: float) -> None:
    """Print the fastest tuning of each kernel; after some seconds, present tunings only."""
    end = time.monotonic() + limit
    which = [(name, networks, precision) for name in names for precision in precisions]
    shares = os.cpu_count() or 1
    compiling = get_context("spawn").Pool(shares)
    done = compiling.starmap_async(compile_share, [(which, k, shares) for k in range(shares)])
    with suppress(LateError):
        done.get(0.7 * limit)
    compiling.terminate()
    lines = []
    print("kernel,tuning,milliseconds,present,tried", flush=True)
    for one in which:
        for job in jobs_of(*one):
            expected, times = job.run().float(), {}
            for number, values in enumerate(job.candidates()):
                if time.monotonic() > end and number:
                    break
                times[number] = job.milliseconds(values, expected)
            best = min(times, key=lambda number: times[number])
            values = dict(job.candidates()[best])
            print(f'{job},"{values}",{times[best]:.3f},{times[0]:.3f},{len(times)}', flush=True)
            tile = values.pop("TILE")
            lines.append(f"{job.kernel.upper()}[{job.shape}] = ({tile}, {values})")
    print("\n".join(["# as entries of the tables:", *lines]), flush=True)


def compile_share(which: list[tuple[str, int, str]], k: int, shares: int) -> None:
    """Compile every so many of all candidates."""
    jobs = [job for one in which for job in jobs_of(*one)]
    for job, values in [(one, values) for one in jobs for values in one.candidates()][k::shares]:
        job.prepare(values)


def jobs_of(name: str, networks: int, precision: str) -> list[Job]:
    """Return all kernels of one network that have tunings, with inputs as in training."""
    model = built(name, 0).cuda()
    schema = ParameterSchema.of(model)
    rows = schema.flatten(dict(model.named_parameters())).detach().repeat(networks, 1)
    parts = schema.unflatten(rows)
    cnn = StackedCNN(model, schema, bf16=precision == "bf16")  # type: ignore[arg-type]
    pool = torch.randint(0, 256, (POOL, 32, 32, 3), dtype=torch.uint8, device="cuda")
    images = cnn.images(pool, torch.randint(0, POOL, (networks, BATCH), device="cuda"))
    first, second = cnn._convolutions(parts)
    pooled, winner1 = first.forward(images)
    flat, winner2 = second.forward(pooled, flat=True)
    slope2 = second.laid_out(torch.randn_like(flat), flat)
    slope1 = torch.randn_like(pooled)
    found = schema.unflatten(torch.empty_like(rows))
    one, two = first.shape, second.shape

    def weights(convolution: stacked_cnn._Convolution, *given: Tensor) -> Tensor:
        convolution.backward(*given, found)
        return found[f"{convolution.name}.weight"]

    return [
        Job("forward", FORWARD, one, lambda: first.forward(images)[0]),
        Job("forward", FORWARD, two, lambda: second.forward(pooled, flat=True)[0]),
        Job("weights", WEIGHTS, one, lambda: weights(first, images, slope1, winner1)),
        Job("weights", WEIGHTS, two, lambda: weights(second, pooled, slope2, winner2)),
        Job("inputs", INPUTS, two, lambda: second.back_to_inputs(slope2, winner2, pooled)),
    ]


if __name__ == "__main__":
    main()

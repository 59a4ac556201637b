"""The GPU kernels for many small convolutional networks, against `vmap` in the same run.

python -m benchmarks.bench_kernels [--models pfllib-cnn] [--networks 50 250] [--parts]
python -m benchmarks.bench_kernels --sweep [--limit 60] [--precisions bf16 fp32]

The second command looks for faster tunings of the kernels: from the present one it goes to the
fastest of those that differ in one value by one step, again and again, until none is faster.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedegoists.learning import stacked_cnn
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.stacked_cnn import FORWARD, INPUTS, WEIGHTS, Shape, StackedCNN, Tuning

BATCH, POOL = 64, 50_000
STEPS = {
    "TILE": (16, 32, 64, 128, 256),
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": (1, 2, 3, 4, 5),
    "WIDTH": (64, 128, 256, 512, 1024),
}
"""Values of a tuning, between which a sweep takes single steps."""
DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""What Triton takes where a tuning says nothing."""
MOST_SUMS = 192
"""Sums in the registers of one thread at most; it has 255, and others are needed, too."""
MOST_READ = 256
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

    def values(self) -> dict[str, int]:
        """Return the present tuning with everything that can be changed."""
        tile, options = self.table[self.shape]
        found = {"TILE": tile, **DEFAULTS, **options}
        if self.kernel == "weights":
            found.setdefault("WIDTH", min(self.patch(), 16_384 // self.shape[2]))
        return found

    def patch(self) -> int:
        """Return the power of two that holds the numbers of a patch."""
        return 1 << (25 * self.shape[1] - 1).bit_length()

    def neighbours(self, values: dict[str, int]) -> Iterator[dict[str, int]]:
        """Yield the tunings that differ in one value by one step and could fit into registers."""
        for key, value in values.items():
            steps = STEPS[key]
            at = steps.index(value)
            for other in (at + 1, at - 1):
                if not 0 <= other < len(steps):
                    continue
                near = {**values, key: steps[other]}
                if self.fits(near):
                    yield near

    def fits(self, values: dict[str, int]) -> bool:
        """Return whether sums and numbers that are read could fit into registers."""
        _, inputs, outputs = self.shape
        tile, width, threads = values["TILE"], values.get("WIDTH", 0), 32 * values["num_warps"]
        sums, read = {
            "forward": (4 * tile * outputs, 32 * tile),
            "weights": (width * outputs, width * tile),
            "inputs": (tile * inputs, tile * outputs),
        }[self.kernel]
        fit = sums <= MOST_SUMS * threads and read <= MOST_READ * threads
        return fit and width <= self.patch()

    def milliseconds(self, values: dict[str, int], expected: Tensor | None) -> float:
        """Return the time with a tuning; infinity, and a line, if it fails or is wrong."""
        before = self.table[self.shape]
        options = {key: value for key, value in values.items() if key != "TILE"}
        self.table[self.shape] = (values["TILE"], options)
        try:
            torch.cuda.empty_cache()  # of graphs that are gone
            found = self.run().float()
            if expected is not None:
                gap = ((found - expected).norm() / expected.norm()).item()
                if not gap < 0.01:
                    print(f"# {self}: {values} is wrong by {gap:.1e}", flush=True)
                    return float("inf")
            del found
            return 1000 * seconds(captured(self.run), 10)
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")[:120]
            print(f"# {self}: {values} fails: {type(error).__name__}: {reason}", flush=True)
            return float("inf")
        finally:
            self.table[self.shape] = before


def sweep(names: list[str], networks: int, precisions: list[str], limit: float) -> None:
    """Print the fastest tuning found for each kernel, within a number of seconds for all."""
    end = time.monotonic() + limit
    jobs = [
        job for name in names for number in precisions for job in jobs_of(name, networks, number)
    ]
    lines = []
    print("kernel,tuning,milliseconds,present,tried", flush=True)
    for k, job in enumerate(jobs):
        now = time.monotonic()
        values, best, present, tried = fastest(job, now + (end - now) / (len(jobs) - k))
        print(f'{job},"{values}",{best:.3f},{present:.3f},{tried}', flush=True)
        options = {key: value for key, value in values.items() if key != "TILE"}
        lines.append(f"{job.kernel.upper()}[{job.shape}] = ({values['TILE']}, {options})")
    print("\n".join(["# as entries of the tables:", *lines]), flush=True)


def fastest(job: Job, end: float) -> tuple[dict[str, int], float, float, int]:
    """Return the fastest tuning, its time, the present one's, and how many were tried."""
    values = job.values()
    try:
        expected = job.run().float()
    except Exception:
        expected = None
    best = present = job.milliseconds(values, expected)
    known = {tuple(sorted(values.items()))}
    better = True
    while better:
        better = False
        for near in list(job.neighbours(values)):
            if time.monotonic() > end:
                return values, best, present, len(known)
            if tuple(sorted(near.items())) in known:
                continue
            known.add(tuple(sorted(near.items())))
            found = job.milliseconds(near, expected)
            if found < 0.995 * best:  # less is noise
                values, best, better = near, found, True
    return values, best, present, len(known)


def jobs_of(name: str, networks: int, precision: str) -> list[Job]:
    """Return all kernels of one network that have tunings, with inputs as in training."""
    model = built(name, 0).cuda()
    schema = ParameterSchema.of(model)
    rows = schema.flatten(dict(model.named_parameters())).detach().repeat(networks, 1)
    parts = schema.unflatten(rows)
    number = torch.bfloat16 if precision == "bf16" else torch.float32
    cnn = StackedCNN(model, schema, bf16=precision == "bf16")  # type: ignore[arg-type]
    pool = torch.randint(0, 256, (POOL, 32, 32, 3), dtype=torch.uint8, device="cuda")
    images = cnn.images(pool, torch.randint(0, POOL, (networks, BATCH), device="cuda"))
    rectified = bool(model.rectified)
    first = stacked_cnn._Convolution(parts, "conv1", 32, rectified, number)
    second = stacked_cnn._Convolution(parts, "conv2", 14, rectified, number)
    pooled, winner1 = first.forward(images)
    flat, winner2 = second.forward(pooled, flat=True)
    full2 = second.unpooled(torch.randn_like(flat), winner2, flat, flat=True)
    full1 = first.unpooled(torch.randn_like(pooled), winner1, pooled)
    one, two = first.shape, second.shape
    return [
        Job("forward", FORWARD, one, lambda: first.forward(images)[0]),
        Job("forward", FORWARD, two, lambda: second.forward(pooled, flat=True)[0]),
        Job("weights", WEIGHTS, one, lambda: first.backward(images, full1)[0]),
        Job("weights", WEIGHTS, two, lambda: second.backward(pooled, full2)[0]),
        Job("inputs", INPUTS, two, lambda: second.back_to_inputs(full2)),
    ]


if __name__ == "__main__":
    main()

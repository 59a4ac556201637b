"""The kernels against `vmap`, in Triton's interpreter: the same program on a CPU, slowly."""

import importlib.util
import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from fedegoists.learning import stacked_cnn
from fedegoists.learning.stacked_cnn import StackedCNN

CHECK = """
import torch
from torch.func import functional_call, grad_and_value, vmap
from fedegoists.federation.silo_operations import augmented
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.stacked_cnn import StackedCNN

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

own_dot = InterpreterBuilder.create_dot

def dot(self, a, b, *others):
    # The interpreter would multiply the bits of 16-bit numbers as if they were integers.
    a, b = (
        TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
        if x.dtype.scalar == tl.bfloat16 else x
        for x in (a, b)
    )
    return own_dot(self, a, b, *others)

InterpreterBuilder.create_dot = dot

name, weighted, bf16, batch = {name!r}, {weighted}, {bf16}, {batch}
options = {{"outputs": 10}} if name == "pfllib-cnn" else {{}}
model = build_model(name, 0, **options)
schema = ParameterSchema.of(model)
rng = torch.Generator().manual_seed(3)
rows = torch.stack(
    [schema.flatten(dict(build_model(name, k, **options).named_parameters())) for k in range(2)]
)
pool = torch.randint(0, 256, (20, 32, 32, 3), dtype=torch.uint8, generator=rng)
positions = torch.randint(0, 20, (2, batch), generator=rng)
flips = torch.randint(0, 2, (2, batch, 1), generator=rng)
draws = torch.cat([flips, torch.randint(0, 9, (2, batch, 2), generator=rng)], -1)
targets = torch.randint(0, 10, (2, batch), generator=rng)
weights = torch.rand(2, batch, generator=rng) if weighted else None
cnn = StackedCNN(model, schema, bf16=bf16)
images = cnn.images(pool, positions, draws)
plain = (pool[positions].float() / 127.5 - 1).movedim(-1, -3)
shifted = torch.stack([augmented(one, draw) for one, draw in zip(plain, draws)])
number = torch.bfloat16 if bf16 else torch.float32
# The interpreter cuts off digits where a GPU rounds.
images_close = dict(rtol=0, atol=2**-8 if bf16 else 0)
close = dict(rtol=1e-4, atol=1e-6)
for given, wanted in (images, shifted), (cnn.images(pool, positions), plain):
    assert given.dtype == number and (given[..., 3] == 0).all()
    torch.testing.assert_close(given[..., :3].movedim(-1, -3).float(), wanted, **images_close)

def loss(vector, x, y, weight=None):
    out = functional_call(model, schema.unflatten(vector), (x,))
    losses = torch.nn.functional.cross_entropy(out, y, reduction="none")
    return losses.mean() if weight is None else (losses * weight).sum()

given = (rows, shifted, targets) + (() if weights is None else (weights,))
gradients, losses = vmap(grad_and_value(loss))(*given)
ours = cnn.gradients(rows, images, targets, weights)
outputs = vmap(lambda v, x: functional_call(model, schema.unflatten(v), (x,)))(rows, shifted)
found = cnn.outputs(rows, images)
if bf16:

    def same(found, exact, most):
        gap = ((found - exact).norm() / exact.norm()).item()
        assert found.dtype == exact.dtype and gap < most, gap

    same(found, outputs, 0.02)
    same(ours[1], losses, 0.02)
    parts = zip(schema.unflatten(ours[0]).items(), schema.unflatten(gradients).values())
    for (part, mine), exact in parts:
        same(mine, exact, 0.15 if part.startswith("conv") else 0.05)
else:
    torch.testing.assert_close(found, outputs, **close)
    torch.testing.assert_close(ours[1], losses)
    torch.testing.assert_close(ours[0], gradients, **close)
print("the same")
"""


GPU = torch.device("cuda", 7)


class Descend:
    """A kernel that takes the step on the CPU, or whatever it is said to do instead."""

    def __init__(self, instead=None):
        self.instead = instead

    def __getitem__(self, grid):
        return self.step if self.instead is None else self.instead

    @staticmethod
    def step(parameters, momentum, gradients, rate, size, keep, decay, **constants):
        momentum.mul_(keep).add_(gradients + decay * parameters)
        parameters.sub_(rate * momentum)


@pytest.fixture
def stand_in(monkeypatch):
    """Let a GPU with Triton be there, whose memory is the CPU's."""
    made = torch.ones

    def put(kernel, capability=(9, 0)):
        kernels = SimpleNamespace(descend=kernel)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
        monkeypatch.setitem(sys.modules, "fedegoists.learning.cnn_kernels", kernels)
        monkeypatch.setattr(torch, "ones", lambda *shape, device: made(*shape))
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)

    stacked_cnn.kernels_work.cache_clear()
    yield put
    stacked_cnn.kernels_work.cache_clear()


def raising(error):
    """A kernel that cannot be run."""

    def fails(*given, **constants):
        raise error

    return Descend(fails)


UNUSED = "kernels for GPUs are not used, which is slower: "


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (
            raising(RuntimeError("Failed to find C compiler.\nSet CC.")),
            "Triton fails (Failed to find C compiler.)",
        ),
        (raising(KeyError()), "Triton fails (KeyError)"),
        (Descend(lambda *given, **constants: None), "Triton computes wrong numbers"),
    ],
)
def test_kernels_are_not_used_where_triton_fails(stand_in, caplog, kernel, reason):
    """Such as without a C compiler; the reason is said once."""
    stand_in(kernel)
    assert not stacked_cnn.kernels_work(GPU)
    assert not stacked_cnn.kernels_work(GPU)
    assert [one.message for one in caplog.records] == [UNUSED + reason]


def test_kernels_are_used_where_triton_works(stand_in, caplog):
    assert not stacked_cnn.kernels_work(torch.device("cpu"))
    stand_in(Descend())
    assert stacked_cnn.kernels_work(GPU)
    assert not caplog.records


def test_a_gpu_whose_memory_is_full_for_a_moment_is_tried_again(stand_in, caplog):
    stand_in(raising(torch.cuda.OutOfMemoryError("CUDA out of memory.")))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        stacked_cnn.kernels_work(GPU)
    stand_in(Descend())
    assert stacked_cnn.kernels_work(GPU)
    assert not caplog.records


@pytest.mark.parametrize(
    ("capability", "known"), [((7, 5), False), ((8, 0), True), ((8, 6), True), ((12, 0), True)]
)
def test_a_gpu_that_cannot_multiply_in_bf16_has_kernels_for_float32_only(
    stand_in, caplog, capability, known
):
    stand_in(Descend(), capability)
    stacked_cnn.multiplies_bf16.cache_clear()
    pool = SimpleNamespace(
        dtype=torch.uint8, shape=(5, 32, 32, 3), device=GPU, is_contiguous=lambda: True
    )
    assert StackedCNN.suits(pool, bf16=False)
    assert not caplog.records
    assert [StackedCNN.suits(pool, bf16=True) for _ in range(2)] == [known, known]
    stacked_cnn.multiplies_bf16.cache_clear()
    reason = "bf16 needs a GPU of compute capability 8.0, and this one has 7.5"
    assert [one.message for one in caplog.records] == ([] if known else [UNUSED + reason])


needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton comes with PyTorch for GPUs only"
)


def in_interpreter(program: str) -> str:
    """Return what a program prints; the interpreter is chosen when Triton is imported."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_triton
@pytest.mark.parametrize(
    ("name", "weighted", "bf16", "batch"),
    [
        ("cifar10-cnn", False, False, 3),
        ("cifar10-cnn", True, True, 3),
        ("cifar100-cnn", True, False, 3),
        ("pfllib-cnn", False, False, 3),
        ("pfllib-cnn", True, False, 6),  # so many that programs share the pixels, too
        ("pfllib-cnn", True, True, 3),
    ],
)
def test_kernels_give_what_vmap_gives(name, weighted, bf16, batch):
    check = CHECK.format(name=name, weighted=weighted, bf16=bf16, batch=batch)
    assert in_interpreter(check).endswith("the same\n")


HELD = """
import torch
from torch.func import grad_and_value, vmap
from fedegoists.federation.representations import Represented
from fedegoists.federation.requests import LocalTerms, Representation, Train, TrainSettings
from fedegoists.learning.models import build_model
from fedegoists.learning.network import Network
from fedegoists.learning.stacked_cnn import StackedCNN
from fedegoists.learning.task import TASKS

model = build_model("cifar10-cnn", 0)
rng = torch.Generator().manual_seed(4)
terms = {{
    "shift": torch.randn(84, generator=rng),
    "mean": torch.randn(84, generator=rng),
    "centres": torch.randn(10, 84, generator=rng),
    "pulls": torch.rand(10, generator=rng),
}}
given = {{name: terms[name] for name in {names}}}
within = Representation(**given, strength=0.7)
network = Represented(Network(model, TASKS["classification"])).network_for(
    Train(parameters=torch.zeros(1), settings=TrainSettings(steps=1), seed=0,
          terms=LocalTerms(representation=within))
)
schema = network.schema
start = Network(model, TASKS["classification"]).schema.flatten(dict(model.named_parameters()))
vectors = [one.reshape(-1) for one in within.tensors.values()]
rows = torch.stack([torch.cat([factor * start, *vectors]) for factor in (1.0, 1.1)]).detach()
pool = torch.randint(0, 256, (20, 32, 32, 3), dtype=torch.uint8, generator=rng)
positions = torch.randint(0, 20, (2, 3), generator=rng)
targets = torch.randint(0, 10, (2, 3), generator=rng)
weights, plain = torch.rand(2, 2, 3, generator=rng) if {weighted} else (None, None)
cnn = StackedCNN(model, schema, mean_strength=network.mean_strength)
images = cnn.images(pool, positions)
ours = cnn.gradients(rows, images, targets, weights, plain)
still = [name for name in schema.names if name.startswith("representation") and "shift" not in name]
for row in range(2):

    def loss(vector):
        inputs = ((pool[positions[row]].float() / 127.5 - 1).movedim(-1, -3),)
        own = [None if one is None else one[row] for one in (weights, plain)]
        return network.loss(schema.unflatten(vector), inputs, targets[row], own[0], plain=own[1])

    gradient, value = grad_and_value(loss)(rows[row])
    wanted = dict(schema.unflatten(gradient))
    for name, found in schema.unflatten(ours[0][row]).items():
        expected = torch.zeros_like(found) if name in still else wanted[name]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours[1][row], value)
print("the same")
"""


@needs_triton
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("names", [("shift", "mean"), ("centres", "pulls")])
def test_terms_about_representations_are_those_of_the_changed_network(names, weighted):
    check = HELD.format(names=names, weighted=weighted)
    assert in_interpreter(check).endswith("the same\n")


DESCENT = """
import torch
from fedegoists.federation.stacked_tensors import descend_at_once

rng = torch.Generator().manual_seed(5)
before, momentum, slope = torch.randn(3, 2, 700, generator=rng)
rate = torch.tensor([0.05])
moved, faster = before.clone(), momentum.clone()
descend_at_once(moved, faster, slope, rate, 0.9, 0.01)
wanted = 0.9 * momentum + slope + 0.01 * before
torch.testing.assert_close(faster, wanted)
torch.testing.assert_close(moved, before - 0.05 * wanted)
print("the same")
"""


@needs_triton
def test_descent_in_one_kernel_is_descent_with_momentum_and_decay():
    assert in_interpreter(DESCENT).endswith("the same\n")


SMALL = """
from triton.runtime.errors import OutOfResources
from fedegoists.learning.stacked_cnn import _launch

class Kernel:
    def __getitem__(self, grid):
        return lambda *given, num_stages, **options: self.run(num_stages)

    def run(self, stages):
        tried.append(stages)
        if stages > most:
            raise OutOfResources(stages, most, "shared memory")

for most, wanted in ((3, [3]), (2, [3, 2]), (1, [3, 2, 1])):
    tried = []
    _launch(Kernel(), (1, 1), {"num_warps": 4})
    assert tried == wanted, tried
most = 0
try:
    _launch(Kernel(), (1, 1), {"num_stages": 2})
except OutOfResources:
    print("the same")
"""


@needs_triton
def test_a_smaller_gpu_has_fewer_stages():
    assert in_interpreter(SMALL).endswith("the same\n")

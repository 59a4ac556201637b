"""The kernels against `vmap`, in Triton's interpreter: the same program on a CPU, slowly."""

import importlib.util
import os
import subprocess
import sys

import pytest

CHECK = """
import torch
from torch.func import functional_call, grad_and_value, vmap
from fedegoists.federation.silo_operations import augmented
from fedegoists.learning.models import build_model
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.stacked_cnn import StackedCNN

name, weighted = {name!r}, {weighted}
model = build_model(name, 0)
schema = ParameterSchema.of(model)
rng = torch.Generator().manual_seed(3)
rows = torch.stack(
    [schema.flatten(dict(build_model(name, k).named_parameters())) for k in range(2)]
)
pool = torch.randint(0, 256, (20, 32, 32, 3), dtype=torch.uint8, generator=rng)
positions = torch.randint(0, 20, (2, 3), generator=rng)
flips = torch.randint(0, 2, (2, 3, 1), generator=rng)
draws = torch.cat([flips, torch.randint(0, 9, (2, 3, 2), generator=rng)], -1)
targets = torch.randint(0, 10, (2, 3), generator=rng)
weights = torch.rand(2, 3, generator=rng) if weighted else None
cnn = StackedCNN(model, schema)
images = cnn.images(pool, positions, draws)
plain = (pool[positions].float() / 127.5 - 1).movedim(-1, -3)
shifted = torch.stack([augmented(one, draw) for one, draw in zip(plain, draws)])
torch.testing.assert_close(images[..., :3].movedim(-1, -3), shifted, rtol=0, atol=0)
torch.testing.assert_close(cnn.images(pool, positions)[..., :3].movedim(-1, -3), plain)

def loss(vector, x, y, weight=None):
    out = functional_call(model, schema.unflatten(vector), (x,))
    losses = torch.nn.functional.cross_entropy(out, y, reduction="none")
    return losses.mean() if weight is None else (losses * weight).sum()

given = (rows, shifted, targets) + (() if weights is None else (weights,))
gradients, losses = vmap(grad_and_value(loss))(*given)
ours = cnn.gradients(rows, images, targets, weights)
torch.testing.assert_close(ours[0], gradients, rtol=1e-4, atol=1e-6)
torch.testing.assert_close(ours[1], losses)
outputs = vmap(lambda v, x: functional_call(model, schema.unflatten(v), (x,)))(rows, shifted)
torch.testing.assert_close(cnn.outputs(rows, images), outputs, rtol=1e-4, atol=1e-6)
print("the same")
"""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton comes with PyTorch for GPUs only"
)
@pytest.mark.parametrize(("name", "weighted"), [("cifar10-cnn", False), ("cifar100-cnn", True)])
def test_kernels_give_what_vmap_gives(name, weighted):
    # The interpreter is chosen when Triton is imported, so in a process of its own.
    done = subprocess.run(
        [sys.executable, "-c", CHECK.format(name=name, weighted=weighted)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout.endswith("the same\n"), done.stderr

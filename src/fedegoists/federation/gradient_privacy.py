"""Differentially private gradients: each sample's is clipped, and noise is added to their mean.

With gradients clipped to the norm C, adding or removing one of B changes the mean by at most C/B.
Gaussian noise with standard deviation z·C/B in every coordinate makes one such answer the Gaussian
mechanism with noise multiplier z (Abadi et al., Deep learning with differential privacy, 2016).
"""

import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed
from fedegoists.learning.parameters import ParameterSchema

SHORTEST = 1e-12
"""Gradients of zero stay as they are."""


def check_privacy(clip: float | None, noise: float) -> None:
    """Refuse noise without clipping, by whose norm it is measured."""
    if clip is not None and not 0 < clip < math.inf:
        raise SettingsError(f"clip is {clip}; expected a norm above 0")
    if not 0 <= noise < math.inf:
        raise SettingsError(f"noise is {noise}; expected a multiple of the norm, 0 or more")
    if noise > 0 and clip is None:
        raise SettingsError("noise hides a sample only beside a limit on its gradient: set clip")


AT_ONCE = 7_000_000
"""Numbers in gradients of single samples that a CPU computes at once. These are 28 MB; the C
library requests blocks of 32 MB and more from the system every time, which costs more than the
work."""


def samples_at_once(schema: ParameterSchema, device: torch.device) -> int:
    """Return the number of samples whose gradients may be computed at once."""
    return max(1, AT_ONCE // schema.size) if device.type == "cpu" else sys.maxsize


def clipped_gradient(
    loss: Callable[..., Tensor], schema: ParameterSchema, clip: float
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function like `grad_and_value` of a loss that clips every sample's gradient.

    The loss is one of named parameters: slices of a vector would each leave a gradient as long as
    the vector. The value is zero: the loss of a batch would reveal something of its samples, too.
    """

    def of_one(values: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        return loss(values, tuple(part.unsqueeze(0) for part in inputs), target.unsqueeze(0))

    of_each = vmap(grad(of_one), in_dims=(None, 0, 0))

    def clipped(
        vector: Tensor,
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        values, total = schema.unflatten(vector), torch.zeros_like(vector)
        count = len(targets)
        step = samples_at_once(schema, vector.device)
        for some in (slice(start, start + step) for start in range(0, count, step)):
            named = of_each(values, tuple(part[some] for part in inputs), targets[some])
            gradients = [named[name].flatten(1) for name in schema.names]
            norms = torch.stack([part.norm(dim=1) for part in gradients]).norm(dim=0)
            scale = (clip / norms.clamp_min(SHORTEST)).clamp_max(1.0)
            shares = scale / count if weights is None else scale * weights[some]
            total = total + torch.cat([shares @ part for part in gradients])
        return total, torch.zeros((), device=vector.device)

    return clipped


def gaussian_noise(shape: torch.Size, deviation: float, seed: int, step: int) -> Tensor:
    """Return the Gaussian noise of one reply.

    A simulated silo draws it from the seed of the request, so that runs can be repeated. A deployed
    silo must draw it from a secret: known noise can be subtracted.
    """
    generator = torch.Generator().manual_seed(stream_seed(seed, step, "noise"))
    return deviation * torch.randn(shape, generator=generator)

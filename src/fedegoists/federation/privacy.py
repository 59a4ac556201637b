"""Gradients that hide single samples: each sample's is shortened, and noise is added to their mean.

With samples shortened to the norm C, adding or removing one of B changes the mean by at most C/B.
Gaussian noise with standard deviation z·C/B in every coordinate makes one such answer the Gaussian
mechanism with noise multiplier z (Abadi et al., Deep learning with differential privacy, 2016).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import stream_seed

__all__ = ["check_privacy", "clipped_gradient", "gaussian_noise"]

SHORTEST = 1e-12
"""Gradients of zero stay as they are."""


def check_privacy(clip: float | None, noise: float) -> None:
    """Refuse noise without a norm that it is measured by."""
    if clip is not None and not 0 < clip < math.inf:
        raise SettingsError(f"clip is {clip}; expected a norm above 0")
    if not 0 <= noise < math.inf:
        raise SettingsError(f"noise is {noise}; expected a multiple of the norm, 0 or more")
    if noise > 0 and clip is None:
        raise SettingsError("noise hides a sample only beside a limit on its gradient: set clip")


def clipped_gradient(loss: Callable[..., Tensor], clip: float) -> Callable[..., Any]:
    """Return a function like `grad_and_value(loss)` with every sample's gradient shortened.

    The value is zero: the loss of a batch would be one more number that tells of its samples.
    """

    def of_one(vector: Tensor, inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        return loss(vector, tuple(part.unsqueeze(0) for part in inputs), target.unsqueeze(0))

    def clipped(
        vector: Tensor,
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        gradients, _ = vmap(grad_and_value(of_one), in_dims=(None, 0, 0))(vector, inputs, targets)
        scale = (clip / gradients.norm(dim=1).clamp_min(SHORTEST)).clamp_max(1.0)
        shares = scale / len(targets) if weights is None else scale * weights
        return shares @ gradients, torch.zeros((), device=vector.device)

    return clipped


def gaussian_noise(shape: torch.Size, deviation: float, seed: int, step: int) -> Tensor:
    """Return the noise of one answer.

    A silo in this process draws it from the seed it is given, so that runs can be repeated. A silo
    of one's own must draw it from a secret: who knows the noise can take it off.
    """
    generator = torch.Generator().manual_seed(stream_seed(seed, step, "noise"))
    return deviation * torch.randn(shape, generator=generator)

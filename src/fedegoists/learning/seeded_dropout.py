"""Dropout whose masks follow from a seed: the same for one silo at a time and for many at once."""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

SEED = "dropout_seed"
"""The name of the buffer from which a layer draws its masks."""

CHANNEL_DIMENSIONS = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}
"""Last dimensions of an input that share one draw: dropout of channels drops whole planes."""

# The constants of SplitMix64 (Steele, Lea and Flood, 2014), as signed numbers of 64 bits.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24


def hashed_uniforms(seed: Tensor, count: int) -> Tensor:
    """Return numbers from 0 to 1 that follow from a seed alone.

    A generator of PyTorch has one state for a whole process. A hash of seed and position can be
    computed for many seeds at once, inside `torch.func.vmap` and in a CUDA graph.

    Examples
    --------
    >>> one = hashed_uniforms(torch.tensor(3), 100_000)
    >>> bool(one.min() >= 0), bool(one.max() < 1), round(float(one.mean()), 2)
    (True, True, 0.5)
    """
    places = torch.arange(1, count + 1, device=seed.device)
    mixed = _spread(seed * _GOLDEN) + places * _GOLDEN
    found: Tensor = (_spread(mixed) >> (64 - _BITS) & (2**_BITS - 1)).float() * 2.0**-_BITS
    return found


def _spread(value: Tensor) -> Tensor:
    """Return the finaliser of SplitMix64; shifts of signed numbers are masked to be logical."""
    value = (value ^ (value >> 30 & 2**34 - 1)) * _FIRST
    value = (value ^ (value >> 27 & 2**37 - 1)) * _SECOND
    return value ^ (value >> 31 & 2**33 - 1)


def seed_dropouts(model: nn.Module) -> tuple[str, ...]:
    """Have the dropout layers of a module draw their masks from a buffer; return its names.

    Only layers of PyTorch itself are changed. A layer that is used several times in one pass draws
    another mask each time.
    """
    names: list[str] = []
    layers: list[Any] = []
    for name, module in model.named_modules():
        if type(module) in CHANNEL_DIMENSIONS:
            if not hasattr(module, SEED):
                module.register_buffer(SEED, torch.zeros((), dtype=torch.int64), persistent=False)
                module.forward = MethodType(_forward, module)
            module._place = len(layers)
            layers.append(module)
            names.append(f"{name}.{SEED}" if name else SEED)
    if layers:

        def begin(*_: object) -> None:
            for layer in layers:
                layer._uses = 0

        model.register_forward_pre_hook(begin)
    return tuple(names)


def _forward(self: Any, values: Tensor) -> Tensor:
    if not self.training or self.p == 0:
        return values
    shared = CHANNEL_DIMENSIONS[type(self)]
    shape = values.shape[: values.dim() - shared]
    # Another stream for each layer, and each use of it, of one seed.
    seed = getattr(self, SEED).to(values.device)
    stream = seed + (self._place * 65_536 + self._uses) * 7_919
    self._uses += 1
    kept = hashed_uniforms(stream, shape.numel()).reshape(*shape, *(1,) * shared) >= self.p
    # With a probability of one nothing is kept, and nothing is scaled.
    dropped: Tensor = values * (kept / max(1 - self.p, 1e-12)).to(values.dtype)
    return dropped

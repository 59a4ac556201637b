"""A model's parameters as one flat vector, as they are sent, averaged and stored."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError


@dataclass(frozen=True)
class ParameterSchema:
    """Names and shapes of a model's parameters, in their order in the vector.

    Examples
    --------
    >>> schema = ParameterSchema.of(nn.Linear(2, 1))
    >>> schema.size, schema.names
    (3, ('weight', 'bias'))
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, model: nn.Module) -> "ParameterSchema":
        """Return the schema of a module."""
        named = dict(model.named_parameters())
        return cls(tuple(named), tuple(tuple(p.shape) for p in named.values()))

    @cached_property
    def size(self) -> int:
        """The length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return named parameters as one vector."""
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the named parameters as views into a vector, or into each row of a matrix."""
        if vector.shape[-1] != self.size:
            raise SettingsError(f"{vector.shape[-1]} parameters where {self.size} are expected")
        views = {}
        start = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + math.prod(shape)
            views[name] = vector[..., start:stop].reshape(*vector.shape[:-1], *shape)
            start = stop
        return views

    def drawn(self, seed: int) -> Tensor:
        """Return random initial parameters like PyTorch's, from names and shapes alone.

        With them a server without the model can choose where training starts. Matrices, kernels
        and their biases are uniform within ±1/√inputs; vectors called ``weight`` scale a
        normalisation and are one.
        """
        generator = torch.Generator().manual_seed(seed)
        shapes = dict(zip(self.names, self.shapes, strict=True))
        parts = []
        for name, shape in shapes.items():
            owner, _, kind = name.rpartition(".")
            weight = shapes.get(f"{owner}.weight" if owner else "weight", ())
            if kind == "weight" and len(shape) == 1:
                part = torch.ones(shape)
            elif kind == "weight" or (kind == "bias" and len(weight) > 1):
                bound = math.prod(weight[1:]) ** -0.5
                part = torch.empty(shape).uniform_(-bound, bound, generator=generator)
            elif kind == "bias":
                part = torch.zeros(shape)
            else:
                part = 0.02 * torch.randn(shape, generator=generator)
            parts.append(part.reshape(-1))
        return torch.cat(parts)

    def mask(self, prefixes: Iterable[str]) -> Tensor:
        """Return a mask of the vector's entries whose parameter names start with a prefix."""
        prefixes = tuple(prefixes)
        for prefix in prefixes:
            if not any(name.startswith(prefix) for name in self.names):
                raise SettingsError(
                    f"no parameter starts with {prefix!r}; parameters are {', '.join(self.names)}"
                )
        return torch.cat(
            [
                torch.full((math.prod(shape),), bool(prefixes) and name.startswith(prefixes))
                for name, shape in zip(self.names, self.shapes, strict=True)
            ]
        )

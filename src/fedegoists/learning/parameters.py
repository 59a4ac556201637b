"""A model's trainable parameters as one flat vector, as they are sent, averaged and stored."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from fedegoists.errors import SettingsError

VARIANCE = "running_var"
"""The name of variances among batch statistics, as PyTorch has it."""


@dataclass(frozen=True)
class ParameterSchema:
    """Names and shapes of a model's trainable parameters, in their order in the vector.

    Frozen parameters (``requires_grad=False``) are not in the vector: they never change and never
    travel. A parameter that has several names, as tied layers have, is in it once, by its first.

    Attributes
    ----------
    names : tuple of str
        The names of the parameters.
    shapes : tuple of tuple of int
        Their shapes.
    constants : str
        A hash of the frozen parameters, without which the others mean something else; empty if
        there are none.
    frozen : int
        How many numbers the frozen parameters are.
    statistics : tuple of str
        The names of batch statistics in the vector, at its end. They have no gradient: a silo sets
        them from its own samples after training. None where they stay at home.
    start : function, optional
        Returns the initial tensors for a seed, where the model sets them itself.

    Examples
    --------
    >>> model = nn.Linear(2, 1)
    >>> schema = ParameterSchema.of(model)
    >>> schema.size, schema.names
    (3, ('weight', 'bias'))
    >>> _ = model.bias.requires_grad_(False)
    >>> ParameterSchema.of(model).names
    ('weight',)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    constants: str = ""
    frozen: int = 0
    statistics: tuple[str, ...] = ()
    start: Callable[[int], Mapping[str, Tensor]] | None = field(
        default=None, compare=False, repr=False
    )

    @classmethod
    def of(
        cls,
        model: nn.Module,
        *,
        statistics: Iterable[str] = (),
        start: Callable[[int], Mapping[str, Tensor]] | None = None,
    ) -> "ParameterSchema":
        """Return the schema of a module, with some of its batch statistics if they travel.

        Raises
        ------
        SettingsError
            If the module has nothing to train.
        """
        named = dict(model.named_parameters())
        trained = {name: own for name, own in named.items() if own.requires_grad}
        if not trained:
            raise SettingsError(
                "the model has nothing to train: it has no parameter with requires_grad=True"
            )
        frozen = {name: own for name, own in named.items() if not own.requires_grad}
        travelling = {name: model.get_buffer(name) for name in statistics}
        return cls(
            (*trained, *travelling),
            tuple(tuple(own.shape) for own in (*trained.values(), *travelling.values())),
            digest_of(frozen) if frozen else "",
            sum(own.numel() for own in frozen.values()),
            tuple(travelling),
            start,
        )

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
        """Return initial parameters: the model's own, or random ones like PyTorch's.

        The random ones need names and shapes alone, so that a server without the model can choose
        where training starts. Matrices, kernels and their biases are uniform within ±1/√inputs;
        vectors called ``weight`` scale a normalisation and are one.
        """
        if self.start is not None:
            return self.flatten(self.start(seed)).cpu()
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
            elif kind == "bias" or name in self.statistics:
                part = torch.full(shape, float(kind == VARIANCE))
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


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of named tensors."""
    content = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        content.update(f"{name}\0{tuple(value.shape)}\0{value.dtype}\0".encode())
        content.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return content.hexdigest()

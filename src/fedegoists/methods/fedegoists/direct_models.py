"""Personal models as they are, in the place of hypernetworks that generate them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DirectModels:
    """One model for each participant, moved by the gradient itself.

    A replacement for `fedegoists.learning.hypernetwork.Hypernetworks` in FedEgoists, to measure
    what these are worth.

    Examples
    --------
    >>> models = DirectModels({"model": torch.tensor([[1.0, 2.0]])})
    >>> preferences, gradients = torch.ones(1, 1, 3), torch.tensor([[[1.0, 0.0]]])
    >>> models.descend(preferences, gradients, models.at_rest(), rate=0.5, momentum=0.9)
    >>> models.generate(preferences)
    tensor([[[0.5000, 2.0000]]])
    """

    tensors: dict[str, Tensor]

    def copy(self) -> "DirectModels":
        """Return models that can be changed in place without changing these."""
        return DirectModels({name: value.clone() for name, value in self.tensors.items()})

    def generate(self, inputs: Tensor) -> Tensor:
        """Return (models, rows, parameters), whatever the inputs (models, rows, entries)."""
        return self.tensors["model"][:, None].expand(-1, inputs.shape[1], -1)

    def gain(self, inputs: Tensor) -> Tensor:
        """Return one for each model: a step moves it as far as the rate says."""
        return torch.ones(len(inputs), device=inputs.device)

    def at_rest(self) -> dict[str, Tensor]:
        """Return momenta of zero."""
        return {name: torch.zeros_like(value) for name, value in self.tensors.items()}

    def descend(
        self,
        inputs: Tensor,
        gradients: Tensor,
        momenta: Mapping[str, Tensor],
        *,
        rate: Tensor | float,
        momentum: float,
    ) -> None:
        """Take one step of descent in place."""
        rates = torch.as_tensor(rate, device=inputs.device).reshape(-1, 1)
        momenta["model"].mul_(momentum).add_(gradients.sum(1))
        self.tensors["model"].sub_(rates * momenta["model"])

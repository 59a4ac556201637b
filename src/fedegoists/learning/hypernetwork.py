"""Hypernetworks: networks that generate the parameters of other networks, stacked.

A stack is a dictionary of tensors whose first axis counts the networks. The forward and backward
passes are written out, because the gradient of the last layer is as large as that layer, which for
a convolutional target has millions of entries: it is added to the momentum without being stored.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedegoists.learning.models import SLOPE


@dataclass(frozen=True)
class Hypernetworks:
    """Stacked perceptrons from a few inputs to all parameters of a target network.

    Attributes
    ----------
    tensors : dict of str to Tensor
        ``weight0``, ``bias0``, … of the hidden layers, and ``head``, ``start`` (weight and bias) of
        the last one; the axes are networks, inputs and outputs of a layer.
    """

    tensors: dict[str, Tensor]

    @classmethod
    def drawn(
        cls,
        inputs: Sequence[int],
        starts: Tensor,
        seeds: Sequence[int],
        *,
        hidden: int,
        layers: int,
    ) -> "Hypernetworks":
        """Return networks that generate `starts` (one row each) for every input.

        Hidden layers are initialised like PyTorch's linear layers, each network from its own seed.
        Networks with fewer inputs than others are padded with zeros.
        """
        width = max(inputs)
        tensors: dict[str, list[Tensor]] = {}
        for own, seed in zip(inputs, seeds, strict=True):
            generator = torch.Generator().manual_seed(seed)
            for layer in range(layers):
                size = own if layer == 0 else hidden
                bound = size**-0.5
                weight = torch.empty(size, hidden).uniform_(-bound, bound, generator=generator)
                if layer == 0:
                    weight = F.pad(weight, (0, 0, 0, width - own))
                bias = torch.empty(1, hidden).uniform_(-bound, bound, generator=generator)
                tensors.setdefault(f"weight{layer}", []).append(weight)
                tensors.setdefault(f"bias{layer}", []).append(bias)
        stacked = {name: torch.stack(parts).to(starts.device) for name, parts in tensors.items()}
        stacked["head"] = starts.new_zeros(len(starts), hidden, starts.shape[1])
        stacked["start"] = starts.clone()[:, None]
        return cls(stacked)

    @property
    def layers(self) -> int:
        """The number of hidden layers."""
        return (len(self.tensors) - 2) // 2

    def copy(self) -> "Hypernetworks":
        """Return a deep copy, to be changed in place."""
        return Hypernetworks({name: value.clone() for name, value in self.tensors.items()})

    def generate(self, inputs: Tensor) -> Tensor:
        """Return (networks, rows, parameters) for inputs (networks, rows, entries)."""
        return torch.baddbmm(self.tensors["start"], self._hidden(inputs)[-1], self.tensors["head"])

    def _hidden(self, inputs: Tensor) -> list[Tensor]:
        """Return the inputs and the activations of every hidden layer."""
        values = [inputs]
        for layer in range(self.layers):
            weight, bias = self.tensors[f"weight{layer}"], self.tensors[f"bias{layer}"]
            values.append(F.leaky_relu(torch.baddbmm(bias, values[-1], weight), SLOPE))
        return values

    def _backwards(
        self, inputs: Tensor, gradients: Tensor
    ) -> tuple[dict[str, tuple[Tensor, Tensor]], Tensor]:
        """Return each layer's input and output gradient, and the gradient of the inputs."""
        values = self._hidden(inputs)
        flows = {"head": (values[-1], gradients)}
        back = gradients @ self.tensors["head"].mT
        for layer in reversed(range(self.layers)):
            back = torch.where(values[layer + 1] > 0, back, SLOPE * back)
            flows[f"weight{layer}"] = (values[layer], back)
            back = back @ self.tensors[f"weight{layer}"].mT
        return flows, back

    def input_gradient(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """Return the gradient of the inputs from the gradient of the generated parameters."""
        return self._backwards(inputs, gradients)[1]

    def gradient(self, inputs: Tensor, gradients: Tensor) -> dict[str, Tensor]:
        """Return the gradient of all tensors from the gradient of the generated parameters."""
        flows, _ = self._backwards(inputs, gradients)
        result = {}
        for name, (value, back) in flows.items():
            result[name] = value.mT @ back
            result[_bias_of(name)] = back.sum(1, keepdim=True)
        return result

    def descend(
        self,
        inputs: Tensor,
        gradients: Tensor,
        momenta: Mapping[str, Tensor],
        *,
        rate: Tensor | float,
        momentum: float,
        clip: float = math.inf,
    ) -> Tensor:
        """Take one gradient step with momentum in place; return the gradient of the inputs.

        Parameters
        ----------
        rate : Tensor or float
            The learning rate, or one for each network.
        clip : float
            The largest norm of a network's gradient.
        """
        flows, back = self._backwards(inputs, gradients)
        if clip < math.inf:
            scale = _clipping(flows, clip)
            flows = {name: (value, scale * returned) for name, (value, returned) in flows.items()}
            back = scale * back
        rates = torch.as_tensor(rate, device=inputs.device).reshape(-1, 1, 1)
        for name, (value, returned) in flows.items():
            bias = _bias_of(name)
            momenta[name].baddbmm_(value.mT, returned, beta=momentum)
            momenta[bias].mul_(momentum).add_(returned.sum(1, keepdim=True))
            for part in (name, bias):
                self.tensors[part].addcmul_(momenta[part], -rates)
        return back

    def gain(self, inputs: Tensor) -> Tensor:
        """Return how many times `rate` a step of the last layer moves the generated parameters."""
        return 1 + self._hidden(inputs)[-1].square().sum((1, 2))

    def at_rest(self) -> dict[str, Tensor]:
        """Return momenta of zero."""
        return {name: torch.zeros_like(value) for name, value in self.tensors.items()}


def _clipping(flows: Mapping[str, tuple[Tensor, Tensor]], clip: float) -> Tensor:
    """Return the factor for each network that clips its gradient to a norm.

    The gradient of a layer is a product G = VᵀB of its inputs V and its output gradients B. So
    ‖G‖² is the sum over the entries of (VVᵀ) ∘ (BBᵀ), and G itself need not be computed.
    """
    squares = sum(
        ((value @ value.mT) * (back @ back.mT)).sum((1, 2)) + back.sum(1).square().sum(1)
        for value, back in flows.values()
    )
    assert isinstance(squares, Tensor)
    return (clip / squares.clamp_min(1e-24).sqrt()).clamp_max(1.0)[:, None, None]


def _bias_of(name: str) -> str:
    return "start" if name == "head" else name.replace("weight", "bias")

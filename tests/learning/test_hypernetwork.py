"""Stacked hypernetworks against modules and automatic differentiation."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from fedegoists.learning.hypernetwork import Hypernetworks

INPUTS = (3, 2)
"""The second network has one input fewer: its inputs end with a zero."""


def as_module(networks: Hypernetworks, k: int) -> nn.Sequential:
    """Network k of a stack as anybody would write it."""
    tensors = networks.tensors
    sizes = [INPUTS[k], *(tensors[f"weight{n}"].shape[2] for n in range(networks.layers))]
    parts: list[nn.Module] = []
    for one, other in pairwise(sizes):
        parts += [nn.Linear(one, other), nn.LeakyReLU(0.2)]
    module = nn.Sequential(*parts, nn.Linear(sizes[-1], tensors["head"].shape[2]))
    with torch.no_grad():
        for mine, theirs in paired(networks, k, module):
            theirs.copy_(mine)
    return module


def paired(networks: Hypernetworks | dict[str, Tensor], k: int, module: nn.Sequential):
    """The tensors of network k beside the parameters of its module."""
    tensors = networks if isinstance(networks, dict) else networks.tensors
    linear = [part for part in module if isinstance(part, nn.Linear)]
    for n, part in enumerate(linear):
        last = n == len(linear) - 1
        weight, bias = ("head", "start") if last else (f"weight{n}", f"bias{n}")
        yield tensors[weight][k, : part.in_features].T, part.weight
        yield tensors[bias][k, 0], part.bias


def trained_networks(layers: int) -> Hypernetworks:
    """Networks as they are after a while: the last layer is no longer zero."""
    starts = torch.randn(2, 7, generator=torch.Generator().manual_seed(0))
    networks = Hypernetworks.drawn(INPUTS, starts, [1, 2], hidden=5, layers=layers)
    networks.tensors["head"].normal_(generator=torch.Generator().manual_seed(3))
    return networks


def batch(rows: int = 4) -> tuple[Tensor, Tensor]:
    """Inputs, and the gradients of what is generated from them."""
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(2, rows, 3, generator=generator)
    inputs[1, :, 2] = 0
    return inputs, torch.randn(2, rows, 7, generator=generator)


@pytest.mark.parametrize("layers", [1, 3])
def test_forward_and_backward_are_those_of_modules(layers):
    networks = trained_networks(layers)
    inputs, gradients = batch()
    generated = networks.generate(inputs)
    computed = networks.gradient(inputs, gradients)
    back = networks.input_gradient(inputs, gradients)
    for k in range(2):
        module = as_module(networks, k)
        own = inputs[k, :, : INPUTS[k]].clone().requires_grad_()
        output = module(own)
        torch.testing.assert_close(generated[k], output.detach())
        output.backward(gradients[k])
        torch.testing.assert_close(back[k, :, : INPUTS[k]], own.grad)
        for mine, theirs in paired(computed, k, module):
            torch.testing.assert_close(mine, theirs.grad)
    assert (computed["weight0"][1, 2] == 0).all()  # the input that the second does not have


@pytest.mark.parametrize("clip", [math.inf, 2.0, 1e6])
def test_descent_is_that_of_torch_optim_and_clip_grad_norm(clip):
    """Three steps with momentum, each network with a learning rate of its own."""
    networks = trained_networks(2)
    inputs, gradients = batch()
    rates = [0.1, 0.02]
    modules = [as_module(networks, k) for k in range(2)]
    optimizers = [
        torch.optim.SGD(module.parameters(), lr=rate, momentum=0.7)
        for module, rate in zip(modules, rates, strict=True)
    ]
    momenta = networks.at_rest()
    for step in range(3):
        back = networks.descend(
            inputs,
            (step + 1) * gradients,
            momenta,
            rate=torch.tensor(rates),
            momentum=0.7,
            clip=clip,
        )
        for k, (module, optimizer) in enumerate(zip(modules, optimizers, strict=True)):
            own = inputs[k, :, : INPUTS[k]].clone().requires_grad_()
            optimizer.zero_grad()
            module(own).backward((step + 1) * gradients[k])
            norm = nn.utils.clip_grad_norm_(module.parameters(), clip)
            assert 2.0 < norm < 1e6  # one limit is reached and the other is not
            factor = min(clip / norm.item(), 1.0)
            torch.testing.assert_close(back[k, :, : INPUTS[k]], factor * own.grad)
            optimizer.step()
            for mine, theirs in paired(networks, k, module):
                torch.testing.assert_close(mine, theirs.detach())


def test_drawn_networks_generate_their_start_and_move_by_the_gradient_divided_by_their_gain():
    """The last layer starts at zero: h = start, and a step of rate/gain moves h by −rate · g."""
    starts = torch.randn(2, 7, generator=torch.Generator().manual_seed(0))
    networks = Hypernetworks.drawn(INPUTS, starts, [1, 2], hidden=5, layers=2)
    inputs, gradients = batch(rows=1)
    assert torch.equal(networks.generate(inputs), starts[:, None])
    rate = 0.3 / networks.gain(inputs)
    copied = networks.copy()
    copied.descend(inputs, gradients, networks.at_rest(), rate=rate, momentum=0.0)
    torch.testing.assert_close(copied.generate(inputs), starts[:, None] - 0.3 * gradients)
    assert torch.equal(networks.generate(inputs), starts[:, None])  # a copy does not share


def test_a_network_does_not_depend_on_those_beside_it():
    starts = torch.zeros(2, 7)
    both = Hypernetworks.drawn(INPUTS, starts, [1, 2], hidden=5, layers=2).tensors
    alone = Hypernetworks.drawn(INPUTS[1:], starts[1:], [2], hidden=5, layers=2).tensors
    assert torch.equal(both["weight0"][1, :2], alone["weight0"][0])
    assert (both["weight0"][1, 2] == 0).all()
    for name in ("bias0", "weight1", "bias1"):
        assert torch.equal(both[name][1], alone[name][0])
    # As PyTorch's linear layers: uniform up to one over the root of the number of inputs.
    assert 0.8 * 3**-0.5 < both["weight0"][0].abs().max() <= 3**-0.5

"""pFedHN by hand, and against automatic differentiation through a module."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from fedegoists.federation import TrainSettings
from fedegoists.methods import Local, PFedHN, State
from tests.methods.hand import START, assert_close, descended, lines, played

SETTINGS = TrainSettings(steps=2, batch_size=64, learning_rate=0.1, momentum=0.5)
METHOD = PFedHN(SETTINGS, hidden=4, layers=2, outer_rate=0.05, outer_momentum=0.6)
GROUPS = [["a", "b"], ["c"]]


def leaky(values):
    return np.where(values > 0, values, 0.2 * values)


def test_the_first_round_by_hand():
    """The last layer starts at zero, so only it has a gradient.

    With z_i the last hidden values of member i and Δ_i = before − after, a step of rate η moves the
    bias by −η Σ_j Δ_j and the weights by −η Σ_j z_j Δ_jᵀ: h_i ← h_i − η Σ_j (1 + z_i·z_j) Δ_j.
    """
    silos = lines((6, 3, 4))
    before_after = [
        START - descended(lambda w, k=k: silos.gradient(k, w), START, [0.1] * 2, 0.5)
        for k in range(3)
    ]
    for federation in silos.federations():
        (start, after), (report,) = played(METHOD, federation, GROUPS, 1)
        assert_close(start.parameters, [START] * 3)
        drawn = {name: value.double().numpy() for name, value in start.tensors.items()}
        z = drawn["embeddings"][0]
        assert z.shape == (2, 1)  # 1 + 2/4 entries, rounded down
        for layer in ("0", "1"):
            weight, bias = drawn[f"network.weight{layer}"][0], drawn[f"network.bias{layer}"][0]
            z = leaky(z @ weight + bias)
        a, b = (
            START - 0.05 * sum((1 + z[i] @ z[j]) * before_after[j] for j in range(2))
            for i in range(2)
        )
        # c is alone: it keeps what it has trained.
        assert_close(after.parameters, [a, b, START - before_after[2]])
        assert torch.equal(after.tensors["embeddings"], start.tensors["embeddings"])
        assert report.sample_passes == {"a": 12, "b": 6, "c": 8}
        assert report.bytes_sent == report.bytes_received == {"a": 12, "b": 12}


def as_module(state: State, layers: int) -> tuple[nn.Sequential, nn.Parameter]:
    """The first coalition's hypernetwork and embeddings, as anybody would write them."""
    tensors = {name.removeprefix("network."): value[0] for name, value in state.tensors.items()}
    names = [f"{n}" for n in range(layers)]
    sizes = [tensors["weight0"].shape[0], *(tensors[f"weight{n}"].shape[1] for n in names)]
    parts: list[nn.Module] = []
    for one, other in pairwise(sizes):
        parts += [nn.Linear(one, other), nn.LeakyReLU(0.2)]
    module = nn.Sequential(*parts, nn.Linear(sizes[-1], tensors["head"].shape[1]))
    pairs = [*((f"weight{n}", f"bias{n}") for n in names), ("head", "start")]
    linear = (part for part in module if isinstance(part, nn.Linear))
    with torch.no_grad():
        for (weight, bias), part in zip(pairs, linear, strict=True):
            part.weight.copy_(tensors[weight].T)
            part.bias.copy_(tensors[bias][0])
    return module, nn.Parameter(tensors["embeddings"].clone())


@pytest.mark.parametrize("clip", [math.inf, 50.0, 0.3])
def test_four_rounds_by_automatic_differentiation(clip):
    """Silos train in numpy; Σ_i Δ_i · h_i is differentiated by torch, then SGD with clipping.

    Public code draws one participant for each step of the hypernetwork, clips the gradients of
    silos, too, and has a weight decay; here all members take part in each step.
    """
    silos = lines((6, 3, 4, 5))
    # So fast that embeddings, far behind a last layer that starts at zero, move noticeably.
    method = PFedHN(SETTINGS, hidden=4, layers=3, outer_rate=1.0, outer_momentum=0.6, clip=clip)
    group = [["a", "b", "c", "d"]]
    for federation in silos.federations():
        states, _ = played(method, federation, group, 4)
        module, embeddings = as_module(states[0], 3)
        assert embeddings.shape == (4, 2)
        begin = embeddings.detach().clone()
        optimizer = torch.optim.SGD([*module.parameters(), embeddings], lr=1.0, momentum=0.6)
        for state in states[1:]:
            models = module(embeddings)
            changes = [
                w - descended(lambda v, k=k: silos.gradient(k, v), w, [0.1] * 2, 0.5)
                for k, w in enumerate(models.detach().double().numpy())
            ]
            optimizer.zero_grad()
            (models * torch.tensor(np.array(changes)).float()).sum().backward()
            norm = nn.utils.clip_grad_norm_(module.parameters(), clip).item()
            embeddings.grad *= min(clip / norm, 1.0)
            optimizer.step()
            assert_close(state.parameters, module(embeddings).detach())
            assert_close(state.tensors["embeddings"][0] - begin, embeddings.detach() - begin)
        assert (embeddings - begin).abs().max() > 1e-4


def test_coalitions_of_different_sizes_do_not_share_anything():
    """Entries that the smaller coalition's embeddings do not have stay zero."""
    silos = lines((6, 3, 4, 5, 6, 3))
    groups = [["a", "b", "c", "d"], ["e", "f"]]
    for federation in silos.federations():
        together, _ = played(METHOD, federation, groups, 3)
        apart, _ = played(METHOD, federation, [["a"], ["b"], ["c"], ["d"], ["e", "f"]], 3)
        assert_close(together[3].parameters[4:], apart[3].parameters[4:])
        padding = together[3].tensors["embeddings"][1]
        assert (padding[2:] == 0).all()
        assert (padding[:, 1] == 0).all()
        alone, _ = played(Local(SETTINGS), federation, groups, 3)
        assert_close(apart[3].parameters[:4], alone[3].parameters[:4])

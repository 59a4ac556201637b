"""Threads follow from a network's work, not from its speed today, and are given back."""

import numpy as np
import torch
from torch import nn

from fedegoists.federation import SimulatedFederation
from fedegoists.federation.execution import THREADS_FLOPS, limited_threads
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import Evaluate
from fedegoists.learning.data import Samples, SiloedData, SiloIndices


class Counting(nn.Module):
    """Two linear layers, of which the first decides about the work; remembers the threads."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(100, width), nn.Linear(width, 1)
        self.threads = []

    def forward(self, x):
        self.threads.append(torch.get_num_threads())
        return self.second(self.first(x))


def data():
    x = np.random.default_rng(0).normal(size=(20, 100)).astype(np.float32)
    parts = np.arange(10), np.arange(10, 15), np.arange(15, 20)
    silo = SiloIndices("North", *parts)
    return SiloedData("x", "binary", Samples((x,), np.arange(20) % 2), (silo,), 2, "", ())


def test_only_large_networks_are_computed_by_several_threads():
    width = THREADS_FLOPS // (2 * 101)  # 2 · 100 · width operations, and 2 · width
    with limited_threads(3):
        for size, expected in ((width - 10, 1), (width + 10, 3)):
            network = Counting(size)
            federation = SimulatedFederation(data(), network, execution="looped")
            north = Participant("North")
            vector = federation.schema.flatten(network.state_dict())
            network.threads.clear()
            reply = federation.call({north: Evaluate(parameters=vector, split="test")})[north]
            assert np.isfinite(reply.losses).all()
            assert set(network.threads) == {expected}
            assert torch.get_num_threads() == 3

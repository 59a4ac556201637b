"""A small transformer over the words of a note: frozen, with low-rank adapters that are trained.

`fedegoists init --example text` copies this file as ``model.py`` beside its ``consortium.toml``.
It needs PyTorch only. The transformer's own weights are in ``weights.safetensors``; they are frozen
and never travel. Trained, sent and averaged are the adapters and the output layer: LoRA, Hu et al.,
"Low-rank adaptation of large language models", 2022.
"""

import torch
from torch import Tensor, nn

WORDS, LENGTH, WIDTH, HEADS, LAYERS, RANK = 96, 9, 32, 4, 2, 4
"""Size of the vocabulary, words of a note, and the size of the network and of its adapters."""


class AdaptedLinear(nn.Linear):
    """A frozen linear layer W x + b with a trained update U D x of low rank, which starts at 0."""

    def __init__(self, inputs: int, outputs: int, rank: int = RANK) -> None:
        super().__init__(inputs, outputs)
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs, the adapter's included."""
        return super().forward(x) + (x @ self.down.T) @ self.up.T


class Attention(nn.Module):
    """Self-attention with adapters in its queries and values, where padding is not looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = AdaptedLinear(WIDTH, WIDTH), AdaptedLinear(WIDTH, WIDTH)
        self.key, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        """Return (batch, words, width)."""
        query, key, value = (
            layer(x).unflatten(-1, (HEADS, -1)).transpose(-3, -2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        scores = scores.masked_fill(absent[..., None, None, :], -1e4)
        mixed: Tensor = self.out((scores.softmax(-1) @ value).transpose(-3, -2).flatten(-2))
        return mixed


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.forward_in, self.forward_out = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        """Return (batch, words, width)."""
        x = x + self.attention(self.first(x), absent)
        out: Tensor = x + self.forward_out(torch.relu(self.forward_in(self.second(x))))
        return out


class NoteTransformer(nn.Module):
    """Words of a note, each as its number in the vocabulary (0: no word), and one output."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.endswith((".down", ".up")))
        self.output = nn.Linear(WIDTH, 1)

    def read(self, tokens: Tensor) -> Tensor:
        """Return (batch, words, width) for numbers of words."""
        tokens = tokens.long()
        absent = tokens == 0
        x = self.words(tokens) + self.places.weight
        for layer in self.layers:
            x = layer(x, absent)
        out: Tensor = self.norm(x)
        return out

    def forward(self, tokens: Tensor) -> Tensor:
        """Return one output for each note: from the mean over its words."""
        present = (tokens > 0)[..., None].float()
        mean = (self.read(tokens) * present).sum(-2) / present.sum(-2).clamp_min(1.0)
        out: Tensor = self.output(mean)
        return out


def build() -> dict[str, object]:
    """Return the network, the file of its frozen weights, and how it is trained."""
    return {
        "model": NoteTransformer(),
        "weights": "weights.safetensors",
        "optimiser": {"optimiser": "adamw", "learning_rate": 0.003, "weight_decay": 0.1},
    }

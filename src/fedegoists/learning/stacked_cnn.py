"""Many small convolutional networks at once on a GPU, each with its own weights and images."""

import importlib.util

import torch
from torch import Tensor, nn

from fedegoists.learning.models import SLOPE, CifarCNN, PFLlibCNN
from fedegoists.learning.parameters import ParameterSchema

SIDE = 32
BLOCK = 1024
"""Numbers that one program of a kernel copies."""
PROGRAMS = 1000
"""Enough programs to keep a GPU busy."""

ACCUMULATORS = 16_384
"""Sums that one program of `convolution_weights` has in its registers at most."""

Shape = tuple[torch.dtype, int, int]
"""Type of the numbers, and how many of them a pixel has before and after a convolution."""
Tuning = tuple[int, dict[str, int]]
"""Pixels that a program computes at once, and options of its compilation."""
# The fastest of the tunings that `benchmarks.bench_kernels --sweep` tried on an H200 (16 bits).
FORWARD: dict[Shape, Tuning] = {
    (torch.bfloat16, 4, 16): (128, {"num_warps": 2}),
    (torch.bfloat16, 16, 32): (64, {"num_warps": 4}),
    (torch.float32, 4, 16): (64, {"num_warps": 2}),
    (torch.float32, 16, 32): (64, {"num_warps": 2}),
    (torch.bfloat16, 4, 32): (128, {"num_warps": 4, "num_stages": 1}),
    (torch.bfloat16, 32, 64): (64, {"num_warps": 4}),
    (torch.float32, 4, 32): (32, {"num_warps": 2}),
    (torch.float32, 32, 64): (32, {"num_warps": 4}),
}
# A WIDTH is the numbers of a patch in one part of the work; see `_Convolution`.
WEIGHTS: dict[Shape, Tuning] = {
    (torch.bfloat16, 4, 16): (128, {"num_warps": 2, "num_stages": 2}),
    (torch.bfloat16, 16, 32): (32, {"num_warps": 4, "num_stages": 3}),
    (torch.float32, 4, 16): (32, {"num_warps": 2, "num_stages": 2}),
    (torch.float32, 16, 32): (16, {"num_warps": 2, "num_stages": 2}),
    (torch.bfloat16, 4, 32): (128, {"num_warps": 8, "num_stages": 2, "WIDTH": 128}),
    (torch.bfloat16, 32, 64): (128, {"num_warps": 4, "num_stages": 2, "WIDTH": 64}),
    (torch.float32, 4, 32): (32, {"num_warps": 4, "num_stages": 2}),
    (torch.float32, 32, 64): (16, {"num_warps": 4, "num_stages": 2}),
}
INPUTS: dict[Shape, Tuning] = {
    (torch.bfloat16, 16, 32): (256, {"num_warps": 4}),
    (torch.float32, 16, 32): (128, {"num_warps": 4}),
    (torch.bfloat16, 32, 64): (128, {"num_warps": 4}),
    (torch.float32, 32, 64): (64, {"num_warps": 4}),
}


class StackedCNN:
    """Outputs and gradients of many networks with two 5×5 convolutions and some linear layers.

    It replaces `torch.func.vmap` with grouped convolutions by kernels made for such networks: the
    forward pass fuses convolution, bias, rectifier and pooling; gradients are written out by hand.

    Parameters
    ----------
    bf16 : bool
        Whether images, activations and convolution weights have 16 bits instead of 32. With 32,
        products are rounded by tensor cores, as in PyTorch's own convolutions on a GPU.
    """

    MODELS = (CifarCNN, PFLlibCNN)
    """The networks that these kernels can compute."""

    def __init__(
        self, model: CifarCNN | PFLlibCNN, schema: ParameterSchema, *, bf16: bool = False
    ) -> None:
        self._schema = schema
        self._rectified = model.rectified
        self.channels = model.conv1.out_channels
        linear = [name for name, part in model.named_children() if isinstance(part, nn.Linear)]
        self._hidden = [name for name in linear if name != "output"]
        self._number = torch.bfloat16 if bf16 else torch.float32

    @staticmethod
    def suits(pool: Tensor) -> bool:
        """Return whether these kernels can be used for a pool of samples."""
        there = importlib.util.find_spec("triton") is not None
        images = pool.dtype == torch.uint8 and pool.shape[1:] == (SIDE, SIDE, 3)
        return there and pool.device.type == "cuda" and images and pool.is_contiguous()

    def images(self, pool: Tensor, positions: Tensor, draws: Tensor | None = None) -> Tensor:
        """Return images of a pool of bytes as (network, image, row, column, four colours).

        Parameters
        ----------
        positions : Tensor
            One row of positions in the pool for each network.
        draws : Tensor, optional
            A flip and two shifts for each image.
        """
        from fedegoists.learning.cnn_kernels import pick_images

        shape = (*positions.shape, SIDE, SIDE, 4)
        images = torch.empty(shape, dtype=self._number, device=pool.device)
        given = positions if draws is None else draws.contiguous()
        pick_images[(positions.numel(), 4 * SIDE**2 // BLOCK)](
            pool, positions.contiguous(), given, images,
            SIDE=SIDE, AUGMENT=draws is not None, BLOCK=BLOCK,
        )  # fmt: skip
        return images

    def outputs(self, parameters: Tensor, images: Tensor) -> Tensor:
        """Return (network, image, class) for each network's parameters (a row) and images."""
        parts = self._schema.unflatten(parameters)
        first = _Convolution(parts, "conv1", SIDE, self._rectified, self._number)
        second = _Convolution(parts, "conv2", SIDE // 2 - 2, self._rectified, self._number)
        pooled, _ = first.forward(images)
        hidden, _ = second.forward(pooled, flat=True)
        for name in self._hidden:
            hidden = self._activated(_linear(parts, name, hidden))
        return _linear(parts, "output", hidden)

    def gradients(
        self, parameters: Tensor, images: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return gradients and losses: mean cross-entropy, or a sum with weights of images."""
        parts = self._schema.unflatten(parameters)
        first = _Convolution(parts, "conv1", SIDE, self._rectified, self._number)
        second = _Convolution(parts, "conv2", SIDE // 2 - 2, self._rectified, self._number)
        pooled, winner1 = first.forward(images)
        flat, winner2 = second.forward(pooled, flat=True)
        given = [flat]  # what goes into each linear layer
        for name in self._hidden:
            given.append(self._activated(_linear(parts, name, given[-1])))
        logs = _linear(parts, "output", given[-1]).log_softmax(-1)
        if weights is None:
            weights = logs.new_full(targets.shape, 1 / targets.shape[1])
        wanted = targets[..., None]
        losses = -(logs.gather(-1, wanted)[..., 0] * weights).sum(1)
        # The gradient of the cross-entropy with respect to the logits is softmax − one-hot.
        slope = logs.exp_().mul_(weights[..., None])
        slope.scatter_add_(-1, wanted, -weights[..., None])
        # Backwards through the linear layers: ∂W = slopeᵀ · inputs, ∂inputs = slope · W.
        found: dict[str, Tensor] = {}
        names = (*self._hidden, "output")
        for name, inputs in zip(reversed(names), reversed(given), strict=True):
            found[f"{name}.weight"] = slope.mT @ inputs
            found[f"{name}.bias"] = slope.sum(1)
            slope = slope @ parts[f"{name}.weight"]
            if inputs is not flat:
                slope = slope * torch.where(inputs > 0, 1.0, 0.0 if self._rectified else SLOPE)
        # Backwards through pooling and convolution, the second layer first.
        full = second.unpooled(slope, winner2, flat, flat=True)
        found["conv2.weight"], found["conv2.bias"] = second.backward(pooled, full)
        full = first.unpooled(second.back_to_inputs(full), winner1, pooled)
        found["conv1.weight"], found["conv1.bias"] = first.backward(images, full)
        return torch.cat([found[name].flatten(1) for name in self._schema.names], 1), losses

    def _activated(self, values: Tensor) -> Tensor:
        return values.relu_() if self._rectified else nn.functional.leaky_relu_(values, SLOPE)


def _linear(parts: dict[str, Tensor], name: str, inputs: Tensor) -> Tensor:
    return torch.baddbmm(parts[f"{name}.bias"][:, None], inputs, parts[f"{name}.weight"].mT)


class _Convolution:
    """One layer of all networks: a 5×5 convolution, a rectifier and 2×2 pooling."""

    def __init__(
        self, parts: dict[str, Tensor], name: str, side: int, rectified: bool, number: torch.dtype
    ) -> None:
        weight = parts[f"{name}.weight"]
        self.count, self.outputs, self.colours = weight.shape[:3]
        # A pixel is padded to a power of two of numbers, so that it can be read as a whole.
        self.inputs = _power(self.colours)
        self.side, self.half, self.rectified, self.number = side, side // 2 - 2, rectified, number
        self.bias = parts[f"{name}.bias"].contiguous()
        # Each of the five rows of a patch is padded to whole chunks for tensor cores.
        self.chunk = 32 if 5 * self.inputs < 32 or 5 * self.inputs % 32 == 0 else 16
        self.row = -(-5 * self.inputs // self.chunk) * self.chunk
        pixels = weight.permute(0, 3, 4, 2, 1).to(number)
        padding = (0, 0, 0, self.inputs - self.colours, 0, self.row // self.inputs - 5)
        if any(padding):
            pixels = nn.functional.pad(pixels, padding)
        self.weight = pixels.contiguous()
        self.shape = (number, self.inputs, self.outputs)

    def _strides(self, flat: bool) -> dict[str, int]:
        """Return the memory order of results: pixels of channels, or PyTorch's flat order."""
        pixels = self.half**2
        pixel, channel = (1, pixels) if flat else (self.outputs, 1)
        return {"PIXEL_STRIDE": pixel, "CHANNEL_STRIDE": channel, "RECTIFIED": self.rectified}

    def forward(self, x: Tensor, *, flat: bool = False) -> tuple[Tensor, Tensor]:
        """Return pooled results, flat with 32 bits or as pixels, and the winning pixels."""
        from fedegoists.learning.cnn_kernels import pooled_convolution

        batch, size = x.shape[1], self.half**2 * self.outputs
        shape = (self.count, batch, self.half, self.half, self.outputs)
        number = torch.float32 if flat else self.number
        out = x.new_empty((self.count, batch, size) if flat else shape, dtype=number)
        winner = x.new_empty(shape, dtype=torch.uint8)
        tile, tuning = FORWARD[self.shape]
        grid = (-(-batch * self.half**2 // tile), self.count)
        pooled_convolution[grid](
            x, self.weight, self.bias, out, winner, batch,
            SIDE=self.side, INPUTS=self.inputs, OUTPUTS=self.outputs, ROW=self.row,
            CHUNK=self.chunk, TILE=tile, **self._strides(flat), **tuning,
        )  # fmt: skip
        return out, winner

    def unpooled(
        self, gradient: Tensor, winner: Tensor, pooled: Tensor, *, flat: bool = False
    ) -> Tensor:
        """Return the gradient before pooling."""
        from fedegoists.learning.cnn_kernels import unpool

        count, batch = gradient.shape[:2]
        side = 2 * self.half
        full = gradient.new_empty((count, batch, side, side, self.outputs), dtype=self.number)
        block = 1024
        grid = (count * batch, -(-(self.half**2) * self.outputs // block))
        unpool[grid](
            gradient, winner, pooled, full,
            HALF=self.half, OUTPUTS=self.outputs, BLOCK=block, **self._strides(flat),
        )  # fmt: skip
        return full

    def backward(self, x: Tensor, full: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the weights, in PyTorch's order, and of the biases."""
        from fedegoists.learning.cnn_kernels import convolution_weights

        batch = x.shape[1]
        tile, tuning = WEIGHTS[self.shape]
        numbers = 25 * self.inputs
        width = tuning.get("WIDTH", min(_power(numbers), ACCUMULATORS // self.outputs))
        parts = -(-numbers // width)
        pixels = batch * (2 * self.half) ** 2
        splits = max(1, min(PROGRAMS // (self.count * parts), pixels // (16 * tile)))
        tiles = -(-pixels // (splits * tile))
        weights = x.new_empty(self.count, splits, parts * width, self.outputs, dtype=torch.float32)
        bias = x.new_empty(self.count, splits, self.outputs, dtype=torch.float32)
        convolution_weights[(parts * splits, self.count)](
            x, full, weights, bias, batch,
            SIDE=self.side, INPUTS=self.inputs, OUTPUTS=self.outputs,
            PARTS=parts, TILE=tile, TILES=tiles, **{**tuning, "WIDTH": width},
        )  # fmt: skip
        # The programs' partial sums are added, and the padding is cut off.
        rows = (weights[:, 0] if splits == 1 else weights.sum(1))[:, :numbers]
        rows = rows.reshape(self.count, 5, 5, self.inputs, self.outputs)[:, :, :, : self.colours]
        return rows.permute(0, 4, 3, 1, 2), bias.sum(1)

    def back_to_inputs(self, full: Tensor) -> Tensor:
        """Return the gradient of the convolution's inputs."""
        from fedegoists.learning.cnn_kernels import convolution_inputs

        batch = full.shape[1]
        tile, tuning = INPUTS[self.shape]
        gradient = full.new_empty(self.count, batch, self.side, self.side, self.inputs)
        grid = (-(-batch * self.side**2 // tile), self.count)
        convolution_inputs[grid](
            full, self.weight, gradient, batch,
            SIDE=self.side, INPUTS=self.inputs, OUTPUTS=self.outputs, ROW=self.row,
            TILE=tile, **tuning,
        )  # fmt: skip
        return gradient


def _power(number: int) -> int:
    """Return the smallest power of two that is at least as large."""
    return 1 << (number - 1).bit_length()

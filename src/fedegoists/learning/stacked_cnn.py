"""Many small convolutional networks at once on a GPU, each with its own weights and images."""

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fedegoists.learning.models import SLOPE, CifarCNN, PFLlibCNN
from fedegoists.learning.network import VECTORS
from fedegoists.learning.parameters import ParameterSchema

_LOG = logging.getLogger("fedegoists.kernels")

SIDE = 32
BLOCK = 1024
"""Numbers that one program of a kernel copies."""
STAGES = 3
"""Parts of a kernel's loop that are read ahead, unless its tuning says so."""
CHUNK = 32
"""Numbers of a patch that are multiplied at once."""
PROGRAMS = 1000
"""Enough programs to keep a GPU busy."""
BF16 = (8, 0)
"""The first compute capability of NVIDIA's GPUs with tensor cores for bf16."""

Shape = tuple[torch.dtype, int, int]
"""Type of the numbers, and how many of them a pixel has before and after a convolution."""
Tuning = tuple[int, dict[str, int]]
"""Windows that a program computes at once, and options of its compilation."""
# Of the tunings that `benchmarks.bench_kernels --sweep` tried on an H200, those near the fastest
# that need less than 80 KB of shared memory. Some that need twice as much are up to 15 % faster
# alone; with these, PFLlib's network was an order of magnitude slower beside 13 other processes,
# probably because a kernel has to wait until so much is free in one multiprocessor.
FORWARD: dict[Shape, Tuning] = {
    (torch.bfloat16, 4, 16): (256, {"num_warps": 4}),
    (torch.bfloat16, 16, 32): (128, {"num_warps": 4}),
    (torch.float32, 4, 16): (128, {"num_warps": 2}),
    (torch.float32, 16, 32): (64, {"num_warps": 2}),
    (torch.bfloat16, 4, 32): (128, {"num_warps": 4}),
    (torch.bfloat16, 32, 64): (64, {"num_warps": 4}),
    (torch.float32, 4, 32): (64, {"num_warps": 2}),
    (torch.float32, 32, 64): (32, {"num_warps": 2}),
}
# A WIDTH is the numbers of a patch in one part of the work of `convolution_weights`.
WEIGHTS: dict[Shape, Tuning] = {
    (torch.bfloat16, 4, 16): (64, {"num_warps": 4, "WIDTH": 64}),
    (torch.bfloat16, 16, 32): (64, {"num_warps": 4, "WIDTH": 64}),
    (torch.float32, 4, 16): (32, {"num_warps": 2, "WIDTH": 64}),
    (torch.float32, 16, 32): (32, {"num_warps": 2, "WIDTH": 64}),
    (torch.bfloat16, 4, 32): (128, {"num_warps": 4, "num_stages": 2, "WIDTH": 64}),
    (torch.bfloat16, 32, 64): (64, {"num_warps": 4, "WIDTH": 64}),
    (torch.float32, 4, 32): (32, {"num_warps": 2, "WIDTH": 64}),
    (torch.float32, 32, 64): (32, {"num_warps": 2, "WIDTH": 32}),
}
INPUTS: dict[Shape, Tuning] = {
    (torch.bfloat16, 16, 32): (128, {"num_warps": 4}),
    (torch.float32, 16, 32): (64, {"num_warps": 4, "num_stages": 2}),
    (torch.bfloat16, 32, 64): (128, {"num_warps": 8, "num_stages": 1}),
    (torch.float32, 32, 64): (64, {"num_warps": 8, "num_stages": 1}),
}


@cache
def kernels_work(device: torch.device) -> bool:
    """Return whether kernels can be compiled and run on a device: a GPU, with Triton.

    Triton needs a C compiler, and a GPU that is not too old. If it fails, or computes wrong
    numbers, a warning says so once, and PyTorch's own operations are used.
    """
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    try:
        from fedegoists.learning.cnn_kernels import descend

        with torch.cuda.device(device):
            numbers = torch.ones(4, 8, device=device)
            descend[(1,)](*numbers, 8, 0.5, 0.5, BLOCK=8)
            # 1 − 1 · (0.5 + 1 + 0.5)
            right = bool((numbers[0] == -1).all())
    except torch.cuda.OutOfMemoryError:
        raise  # which says nothing about Triton; `cache` keeps no errors, so it is tried again
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        _warn(f"Triton fails ({reason})")
        return False
    if not right:
        _warn("Triton computes wrong numbers")
    return right


@cache
def multiplies_bf16(device: torch.device) -> bool:
    """Return whether a GPU has tensor cores for bf16; if not, a warning says so once."""
    major, minor = torch.cuda.get_device_capability(device)
    known = (major, minor) >= BF16
    if not known:
        _warn(
            f"bf16 needs a GPU of compute capability {BF16[0]}.{BF16[1]}, and this one has "
            f"{major}.{minor}"
        )
    return known


def _warn(reason: str) -> None:
    _LOG.warning("kernels for GPUs are not used, which is slower: %s", reason)


class StackedCNN:
    """Outputs and gradients of many networks with two 5×5 convolutions and some linear layers.

    It replaces `torch.func.vmap` with grouped convolutions by kernels made for such networks: the
    forward pass fuses convolution, bias, rectifier and pooling; gradients are written out by hand.

    Parameters
    ----------
    bf16 : bool
        Whether images, activations and convolution weights have 16 bits instead of 32, and tensor
        cores round the products of linear layers. With 32, they round those of convolutions, as in
        PyTorch's own on a GPU.
    mean_strength : float
        How strongly means of representations are held, where vectors about these are parameters.
    """

    MODELS = (CifarCNN, PFLlibCNN)
    """The networks that these kernels can compute."""

    def __init__(
        self,
        model: CifarCNN | PFLlibCNN,
        schema: ParameterSchema,
        *,
        bf16: bool = False,
        mean_strength: float = 0.0,
    ) -> None:
        self._schema, self._mean_strength = schema, mean_strength
        self._rectified = model.rectified
        self.channels = model.conv1.out_channels
        linear = [name for name, part in model.named_children() if isinstance(part, nn.Linear)]
        self._hidden = [name for name in linear if name != "output"]
        self._number = torch.bfloat16 if bf16 else torch.float32
        self._about_representations = any(name.startswith(VECTORS) for name in schema.names)

    @staticmethod
    def suits(pool: Tensor, *, bf16: bool) -> bool:
        """Return whether these kernels can be used for a pool of samples, with 16 or 32 bits."""
        images = pool.dtype == torch.uint8 and pool.shape[1:] == (SIDE, SIDE, 3)
        if not (images and pool.is_contiguous() and kernels_work(pool.device)):
            return False
        return not bf16 or multiplies_bf16(pool.device)

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
        parts = self._schema.unflatten(parameters.contiguous())
        first, second = self._convolutions(parts)
        with _tensor_cores(self._number):
            hidden, _ = second.forward(first.forward(images)[0], flat=True)
            for name in self._hidden:
                hidden = self._activated(_linear(parts, name, hidden))
            return _linear(parts, "output", _shifted(parts, hidden))

    def gradients(
        self,
        parameters: Tensor,
        images: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        plain: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return gradients and losses: mean cross-entropy, or a sum with weights of images.

        Vectors about representations have no gradients, but for a shift.

        Parameters
        ----------
        plain : Tensor, optional
            The weights without those of classes, by which representations have a mean.
        """
        with _tensor_cores(self._number):
            return self._gradients(parameters.contiguous(), images, targets, weights, plain)

    def _gradients(
        self,
        parameters: Tensor,
        images: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        plain: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        parts = self._schema.unflatten(parameters)
        first, second = self._convolutions(parts)
        pooled, winner1 = first.forward(images)
        flat, winner2 = second.forward(pooled, flat=True)
        given = [flat]  # what goes into each linear layer
        for name in self._hidden:
            given.append(self._activated(_linear(parts, name, given[-1])))
        values, given[-1] = given[-1], _shifted(parts, given[-1])
        logs = _linear(parts, "output", given[-1]).log_softmax(-1)
        if weights is None:
            weights = logs.new_full(targets.shape, 1 / targets.shape[1])
        wanted = targets[..., None]
        losses = -(logs.gather(-1, wanted)[..., 0] * weights).sum(1)
        # The gradient of the cross-entropy with respect to the logits is softmax − one-hot.
        slope = logs.exp_().mul_(weights[..., None])
        slope.scatter_add_(-1, wanted, -weights[..., None])
        # Backwards through the linear layers: ∂W = slopeᵀ · inputs, ∂inputs = slope · W.
        # Of vectors about representations, a shift alone has a gradient.
        made = torch.zeros_like if self._about_representations else torch.empty_like
        gradients = made(parameters)
        found = self._schema.unflatten(gradients)
        names = (*self._hidden, "output")
        for name, inputs in zip(reversed(names), reversed(given), strict=True):
            torch.bmm(slope.mT, inputs, out=found[f"{name}.weight"])
            torch.sum(slope, 1, out=found[f"{name}.bias"])
            slope = slope @ parts[f"{name}.weight"]
            if name == "output" and f"{VECTORS}shift" in parts:
                torch.sum(slope, 1, out=found[f"{VECTORS}shift"])
            if name == "output" and self._about_representations:
                more, pulled = self._held(parts, values, targets, weights, plain)
                losses, slope = losses + more, slope + pulled
                inputs = values
            if inputs is not flat:
                slope = slope * torch.where(inputs > 0, 1.0, 0.0 if self._rectified else SLOPE)
        # Backwards through pooling and convolution, the second layer first.
        slope = second.laid_out(slope, flat)
        second.backward(pooled, slope, winner2, found)
        slope = second.back_to_inputs(slope, winner2, pooled)
        first.backward(images, slope, winner1, found)
        return gradients, losses

    def _held(
        self,
        parts: dict[str, Tensor],
        values: Tensor,
        targets: Tensor,
        weights: Tensor,
        plain: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return what terms about representations add to the losses, and to their slope."""
        width = values.shape[2]
        losses, slope = values.new_zeros(len(values)), torch.zeros_like(values)
        mean, centres = (parts.get(f"{VECTORS}{name}") for name in ("mean", "centres"))
        if mean is not None:
            shares = torch.full_like(weights, 1 / weights.shape[1])
            if plain is not None:
                shares = plain / plain.sum(1, keepdim=True)
            gap = (shares[..., None] * values).sum(1) - mean
            losses = losses + 0.5 * self._mean_strength * (gap**2).mean(1)
            slope = slope + self._mean_strength / width * shares[..., None] * gap[:, None]
        if centres is not None:
            own = targets[..., None].expand(-1, -1, width)
            away = values - centres.gather(1, own)
            pull = weights * parts[f"{VECTORS}pulls"].gather(1, targets)
            losses = losses + (pull * (away**2).mean(2)).sum(1)
            slope = slope + 2 / width * pull[..., None] * away
        return losses, slope

    def _convolutions(self, parts: dict[str, Tensor]) -> tuple["_Convolution", "_Convolution"]:
        return (
            _Convolution(parts, "conv1", SIDE, self._rectified, self._number),
            _Convolution(parts, "conv2", SIDE // 2 - 2, self._rectified, self._number),
        )

    def _activated(self, values: Tensor) -> Tensor:
        return values.relu_() if self._rectified else nn.functional.leaky_relu_(values, SLOPE)


@contextmanager
def _tensor_cores(number: torch.dtype) -> Iterator[None]:
    """Let tensor cores round the products of linear layers where activations have 16 bits."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or number == torch.bfloat16
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _shifted(parts: dict[str, Tensor], values: Tensor) -> Tensor:
    shift = parts.get(f"{VECTORS}shift")
    return values if shift is None else values + shift[:, None]


def _linear(parts: dict[str, Tensor], name: str, inputs: Tensor) -> Tensor:
    return torch.baddbmm(parts[f"{name}.bias"][:, None], inputs, parts[f"{name}.weight"].mT)


class _Convolution:
    """One layer of all networks: a 5×5 convolution, a rectifier and 2×2 pooling.

    See `fedegoists.learning.cnn_kernels` for windows and wide weights.
    """

    def __init__(
        self, parts: dict[str, Tensor], name: str, side: int, rectified: bool, number: torch.dtype
    ) -> None:
        from fedegoists.learning.cnn_kernels import widen

        weight, self.name = parts[f"{name}.weight"], name
        self.bias = parts[f"{name}.bias"]
        self.count, self.outputs, self.colours = weight.shape[:3]
        # A pixel is padded to a power of two of numbers, so that it can be read as a whole.
        self.inputs = _power(self.colours)
        self.side, self.half, self.rectified, self.number = side, side // 2 - 2, rectified, number
        # A patch is padded to whole chunks for tensor cores.
        self.numbers = -(-36 * self.inputs // CHUNK) * CHUNK
        self.wide = weight.new_empty((self.count, self.numbers, 4, self.outputs), dtype=number)
        self.shape = (number, self.inputs, self.outputs)
        grid = (-(-self.numbers * 4 * self.outputs // BLOCK), self.count)
        widen[grid](
            weight, self.wide, weight.stride(0), COLOURS=self.colours, INPUTS=self.inputs,
            OUTPUTS=self.outputs, NUMBERS=self.numbers, BLOCK=BLOCK,
        )  # fmt: skip

    def forward(self, x: Tensor, *, flat: bool = False) -> tuple[Tensor, Tensor]:
        """Return pooled results, flat with 32 bits or as pixels, and the winning pixels."""
        from fedegoists.learning.cnn_kernels import pooled_convolution

        batch, pixels = x.shape[1], self.half**2
        shape = (self.count, batch, self.half, self.half, self.outputs)
        number = torch.float32 if flat else self.number
        out = x.new_empty((*shape[:2], pixels * self.outputs) if flat else shape, dtype=number)
        winner = x.new_empty(shape, dtype=torch.uint8)
        # The memory order of results: pixels of channels, or PyTorch's flat order.
        pixel, channel = (1, pixels) if flat else (self.outputs, 1)
        tile, tuning = FORWARD[self.shape]
        grid = (-(-batch * pixels // tile), self.count)
        _launch(
            pooled_convolution, grid, tuning,
            x, self.wide, self.bias, out, winner, batch, self.bias.stride(0),
            SIDE=self.side, INPUTS=self.inputs, OUTPUTS=self.outputs, NUMBERS=self.numbers,
            CHUNK=CHUNK, TILE=tile, PIXEL_STRIDE=pixel, CHANNEL_STRIDE=channel,
            RECTIFIED=self.rectified,
        )  # fmt: skip
        return out, winner

    def laid_out(self, gradient: Tensor, pooled: Tensor) -> Tensor:
        """Return a flat gradient of pooled results as pixels of channels, through the rectifier."""
        from fedegoists.learning.cnn_kernels import lay_out

        pixels, images = self.half**2, gradient.shape[:2]
        found = gradient.new_empty((*images, pixels, self.outputs), dtype=self.number)
        lay_out[(images.numel(), -(-pixels * self.outputs // BLOCK))](
            gradient, pooled, found,
            PIXELS=pixels, OUTPUTS=self.outputs, RECTIFIED=self.rectified, BLOCK=BLOCK,
        )  # fmt: skip
        return found

    def backward(
        self, x: Tensor, gradient: Tensor, winner: Tensor, found: dict[str, Tensor]
    ) -> None:
        """Write the gradients of the weights and the biases."""
        from fedegoists.learning.cnn_kernels import convolution_weights, narrow

        batch = x.shape[1]
        tile, tuning = WEIGHTS[self.shape]
        width = tuning["WIDTH"]
        parts = -(-self.numbers // width)
        windows = batch * self.half**2
        most = max(1, min(PROGRAMS // (self.count * parts), windows // (16 * tile)))
        # A power of two, so that few programs are compiled for all numbers of networks.
        splits = 1 << (most.bit_length() - 1)
        tiles = -(-windows // (splits * tile))
        wide = x.new_empty(self.count, splits, parts * width, 4, self.outputs, dtype=torch.float32)
        bias = x.new_empty(self.count, splits, self.outputs, dtype=torch.float32)
        _launch(
            convolution_weights, (parts * splits, self.count), tuning,
            x, gradient, winner, wide, bias, batch,
            SIDE=self.side, INPUTS=self.inputs, OUTPUTS=self.outputs,
            PARTS=parts, TILE=tile, TILES=tiles,
        )  # fmt: skip
        weight = found[f"{self.name}.weight"]
        narrow[(-(-25 * self.colours * self.outputs // BLOCK), self.count)](
            wide, bias, weight, found[f"{self.name}.bias"], weight.stride(0),
            COLOURS=self.colours, INPUTS=self.inputs, OUTPUTS=self.outputs,
            NUMBERS=parts * width, SPLITS=splits, BLOCK=BLOCK,
        )  # fmt: skip

    def back_to_inputs(self, gradient: Tensor, winner: Tensor, x: Tensor) -> Tensor:
        """Return the gradient of the convolution's inputs, through the rectifier before them."""
        from fedegoists.learning.cnn_kernels import convolution_inputs

        batch = x.shape[1]
        tile, tuning = INPUTS[self.shape]
        found = torch.empty_like(x)
        grid = (-(-batch * (self.side // 2) ** 2 // tile), self.count)
        _launch(
            convolution_inputs, grid, tuning,
            gradient, winner, self.wide, x, found, batch,
            SIDE=self.side, INPUTS=self.inputs, OUTPUTS=self.outputs, NUMBERS=self.numbers,
            RECTIFIED=self.rectified, TILE=tile,
        )  # fmt: skip
        return found


def _launch(
    kernel: Any, grid: tuple[int, int], tuning: dict[str, int], *given: object, **constants: object
) -> None:
    """Run a kernel; with fewer stages where the GPU has too little memory for its tuning."""
    from triton.runtime.errors import OutOfResources

    for stages in range(tuning.get("num_stages", STAGES), 0, -1):
        try:
            kernel[grid](*given, **constants, **{**tuning, "num_stages": stages})
            return
        except OutOfResources:
            if stages == 1:
                raise


def _power(number: int) -> int:
    """Return the smallest power of two that is at least as large."""
    return 1 << (number - 1).bit_length()

"""GPU kernels for many small convolutional networks, each with its own weights and images.

Libraries are made for one network on many images; with a few channels and hundreds of networks they
use a tenth of a GPU. Here a program works on one network's images with tensor cores. Images and
activations are stored pixel by pixel with the channels of one pixel next to each other, so that a
row of a 5×5 patch is contiguous.

Every kernel is plain Triton and also runs in Triton's interpreter, in which it is tested.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: N803 - constants of a compiled kernel are written in capitals

import triton
import triton.language as tl


@triton.jit
def pick_images(
    pool, positions, draws, images, SIDE: tl.constexpr, AUGMENT: tl.constexpr, BLOCK: tl.constexpr
):
    """Copy images from a pool of bytes as numbers around zero, flipped and shifted to augment them.

    Three colours become four, the last one zero, so that a pixel can be read as a whole.
    """
    image = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    colour, x, y = k % 4, k // 4 % SIDE, k // (4 * SIDE)
    there = colour < 3
    if AUGMENT:
        flip = tl.load(draws + 3 * image).to(tl.int32)
        y = y + tl.load(draws + 3 * image + 1).to(tl.int32) - 4
        x = x + tl.load(draws + 3 * image + 2).to(tl.int32) - 4
        there = there & (y >= 0) & (y < SIDE) & (x >= 0) & (x < SIDE)
        x = tl.where(flip > 0, SIDE - 1 - x, x)
    source = tl.load(positions + image).to(tl.int64) * (SIDE * SIDE * 3)
    value = tl.load(pool + source + (y * SIDE + x) * 3 + colour, mask=there, other=0)
    number = tl.where(there, value.to(tl.float32) / 127.5 - 1.0, 0.0)
    tl.store(images + image * (SIDE * SIDE * 4) + k, number)


@triton.jit
def pooled_convolution(
    x,
    weights,
    bias,
    out,
    winner,
    batch,
    SIDE: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROW: tl.constexpr,
    CHUNK: tl.constexpr,
    PIXEL_STRIDE: tl.constexpr,
    CHANNEL_STRIDE: tl.constexpr,
    RECTIFIED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Convolve with 5×5, take the maximum of each 2×2, add the bias; store which one it was."""
    half: tl.constexpr = (SIDE - 4) // 2
    network = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = m < batch * half * half
    image, pixel = m // (half * half), m % (half * half)
    row = (network * batch + image) * SIDE + pixel // half * 2
    corner = x + (row * SIDE + pixel % half * 2)[:, None] * INPUTS
    channel = tl.arange(0, OUTPUTS)
    own = weights + network * (5 * ROW * OUTPUTS)
    # The four convolutions of a 2×2 pooling window are computed side by side.
    here = tl.zeros((TILE, OUTPUTS), tl.float32)
    right = tl.zeros((TILE, OUTPUTS), tl.float32)
    below = tl.zeros((TILE, OUTPUTS), tl.float32)
    across = tl.zeros((TILE, OUTPUTS), tl.float32)
    for ky in range(5):
        for chunk in range(ROW // CHUNK):
            k = chunk * CHUNK + tl.arange(0, CHUNK)
            used = valid[:, None] & (k < 5 * INPUTS)[None, :]
            at = corner + ky * SIDE * INPUTS + k[None, :]
            w = tl.load(own + ((ky * ROW + k) * OUTPUTS)[:, None] + channel[None, :])
            here = tl.dot(tl.load(at, mask=used, other=0.0), w, here)
            right = tl.dot(tl.load(at + INPUTS, mask=used, other=0.0), w, right)
            at += SIDE * INPUTS
            below = tl.dot(tl.load(at, mask=used, other=0.0), w, below)
            across = tl.dot(tl.load(at + INPUTS, mask=used, other=0.0), w, across)
    best = here
    which = tl.zeros((TILE, OUTPUTS), tl.int32)
    which = tl.where(right > best, 1, which)
    best = tl.maximum(right, best)
    which = tl.where(below > best, 2, which)
    best = tl.maximum(below, best)
    which = tl.where(across > best, 3, which)
    best = tl.maximum(across, best)
    best += tl.load(bias + network * OUTPUTS + channel)[None, :]
    if RECTIFIED:
        best = tl.maximum(best, 0.0)
    size: tl.constexpr = half * half * OUTPUTS
    start = (network * batch + image) * size
    place = (start + pixel * PIXEL_STRIDE)[:, None] + channel[None, :] * CHANNEL_STRIDE
    tl.store(out + place, best, mask=valid[:, None])
    place = (start + pixel * OUTPUTS)[:, None] + channel[None, :]
    tl.store(winner + place, which.to(tl.uint8), mask=valid[:, None])


@triton.jit
def unpool(
    gradient,
    winner,
    pooled,
    full,
    HALF: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PIXEL_STRIDE: tl.constexpr,
    CHANNEL_STRIDE: tl.constexpr,
    RECTIFIED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Put every gradient at the pixel that won its 2×2 pooling, and zeros at the others."""
    size: tl.constexpr = HALF * HALF * OUTPUTS
    image = tl.program_id(0).to(tl.int64)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = e < size
    channel, pixel = e % OUTPUTS, e // OUTPUTS
    place = image * size + pixel * PIXEL_STRIDE + channel * CHANNEL_STRIDE
    value = tl.load(gradient + place, mask=inside, other=0.0)
    if RECTIFIED:
        value = tl.where(tl.load(pooled + place, mask=inside, other=0.0) > 0, value, 0.0)
    which = tl.load(winner + image * size + e, mask=inside, other=0).to(tl.int32)
    for window in tl.static_range(4):
        y = pixel // HALF * 2 + window // 2
        x = pixel % HALF * 2 + window % 2
        at = ((image * 2 * HALF + y) * 2 * HALF + x) * OUTPUTS + channel
        tl.store(full + at, tl.where(which == window, value, 0.0), mask=inside)


@triton.jit
def convolution_weights(
    x,
    full,
    weights,
    bias,
    batch,
    SIDE: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
):
    """Sum the gradients of the 5×5 weights and the bias over one share of the pixels.

    A program has a part of the numbers of a patch: all of them would not fit into its registers.
    """
    side: tl.constexpr = SIDE - 4
    # The parts of one share of the pixels run side by side, and find these in the cache.
    part = 0 if PARTS == 1 else tl.program_id(0) % PARTS
    split = tl.program_id(0) // PARTS
    network = tl.program_id(1).to(tl.int64)
    k, channel = part * WIDTH + tl.arange(0, WIDTH), tl.arange(0, OUTPUTS)
    # The offset of each number of a patch from the patch's corner.
    place = k // (5 * INPUTS) * SIDE * INPUTS + k % (5 * INPUTS)
    total = tl.zeros((WIDTH, OUTPUTS), tl.float32)
    sums = tl.zeros((OUTPUTS,), tl.float32)
    for tile in range(TILES):
        m = (split * TILES + tile) * TILE + tl.arange(0, TILE)
        valid = m < batch * side * side
        image, pixel = m // (side * side), m % (side * side)
        row = (network * batch + image) * SIDE + pixel // side
        corner = (row * SIDE + pixel % side) * INPUTS
        used = (k < 25 * INPUTS)[:, None] & valid[None, :]
        patch = tl.load(x + corner[None, :] + place[:, None], mask=used, other=0.0)
        at = (network * batch * side * side + m) * OUTPUTS
        g = tl.load(full + at[:, None] + channel[None, :], mask=valid[:, None], other=0.0)
        total = tl.dot(patch, g, total)
        if part == 0:
            sums += tl.sum(g.to(tl.float32), 0)
    share = network * (tl.num_programs(0) // PARTS) + split
    at = (share * (PARTS * WIDTH) + k) * OUTPUTS
    tl.store(weights + at[:, None] + channel[None, :], total)
    if part == 0:
        tl.store(bias + share * OUTPUTS + channel, sums)


@triton.jit
def convolution_inputs(
    full,
    weights,
    gradient,
    batch,
    SIDE: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROW: tl.constexpr,
    TILE: tl.constexpr,
):
    """Compute the gradients of the convolution's inputs."""
    side: tl.constexpr = SIDE - 4
    network = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = m < batch * SIDE * SIDE
    image, pixel = m // (SIDE * SIDE), m % (SIDE * SIDE)
    y, x = pixel // SIDE, pixel % SIDE
    channel, source = tl.arange(0, OUTPUTS), tl.arange(0, INPUTS)
    own = weights + network * (5 * ROW * OUTPUTS)
    total = tl.zeros((TILE, INPUTS), tl.float32)
    for ky in range(5):
        for kx in range(5):
            v, u = y - ky, x - kx
            used = valid & (v >= 0) & (v < side) & (u >= 0) & (u < side)
            at = (((network * batch + image) * side + v) * side + u) * OUTPUTS
            g = tl.load(full + at[:, None] + channel[None, :], mask=used[:, None], other=0.0)
            k = ky * ROW + kx * INPUTS + source
            w = tl.load(own + (k * OUTPUTS)[None, :] + channel[:, None])
            total = tl.dot(g, w, total)
    at = (network * batch * SIDE * SIDE + m) * INPUTS
    tl.store(gradient + at[:, None] + source[None, :], total, mask=valid[:, None])

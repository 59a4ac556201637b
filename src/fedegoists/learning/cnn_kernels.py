"""GPU kernels for many small convolutional networks, each with its own weights and images.

Libraries are made for one network on many images; with a few channels and hundreds of networks they
use a tenth of a GPU. Here a program works on one network's images with tensor cores. Images and
activations are stored pixel by pixel with the channels of one pixel next to each other.

The unit of all convolutions is the *window*: the 2×2 pixels of which pooling keeps the largest. Its
four 5×5 patches lie in one patch of 6×6, which is read once and multiplied by *wide* weights: those
of the 5×5 kernel at the four places inside 6×6, with zeros elsewhere. That is as many products and
a quarter of the reads. Backwards, only the pixel that won a window has a gradient, so the gradient
is kept as it is after pooling, together with the number of the winner.

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
def widen(
    weights,
    wide,
    network_stride,
    COLOURS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NUMBERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write PyTorch's 5×5 weights as wide ones: (number of a 6×6 patch, pixel of a window, output).

    Numbers of a patch beyond 6 · 6 · INPUTS are padding.
    """
    network = tl.program_id(1).to(tl.int64)
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    output, window, k = e % OUTPUTS, e // OUTPUTS % 4, e // (4 * OUTPUTS)
    colour = k % INPUTS
    y = k // (6 * INPUTS) - window // 2
    x = k // INPUTS % 6 - window % 2
    there = (y >= 0) & (y < 5) & (x >= 0) & (x < 5) & (colour < COLOURS)
    source = weights + network * network_stride + ((output * COLOURS + colour) * 5 + y) * 5 + x
    value = tl.load(source, mask=there, other=0.0)
    inside = e < NUMBERS * 4 * OUTPUTS
    tl.store(wide + network * (NUMBERS * 4 * OUTPUTS) + e, value, mask=inside)


@triton.jit
def pooled_convolution(
    x,
    wide,
    bias,
    out,
    winner,
    batch,
    bias_stride,
    SIDE: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NUMBERS: tl.constexpr,
    CHUNK: tl.constexpr,
    PIXEL_STRIDE: tl.constexpr,
    CHANNEL_STRIDE: tl.constexpr,
    RECTIFIED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Convolve with 5×5, take the maximum of each window, add the bias; store which pixel won."""
    half: tl.constexpr = (SIDE - 4) // 2
    network = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = m < batch * half * half
    image, pixel = m // (half * half), m % (half * half)
    row = (network * batch + image) * SIDE + pixel // half * 2
    corner = x + (row * SIDE + pixel % half * 2)[:, None] * INPUTS
    channel = tl.arange(0, OUTPUTS)
    own = wide + network * (NUMBERS * 4 * OUTPUTS)
    # The four convolutions of a window are computed side by side.
    here = tl.zeros((TILE, OUTPUTS), tl.float32)
    right = tl.zeros((TILE, OUTPUTS), tl.float32)
    below = tl.zeros((TILE, OUTPUTS), tl.float32)
    across = tl.zeros((TILE, OUTPUTS), tl.float32)
    for chunk in range(NUMBERS // CHUNK):
        k = chunk * CHUNK + tl.arange(0, CHUNK)
        place = k // (6 * INPUTS) * (SIDE * INPUTS) + k % (6 * INPUTS)
        used = valid[:, None] & (k < 36 * INPUTS)[None, :]
        patch = tl.load(corner + place[None, :], mask=used, other=0.0)
        w = own + (k * (4 * OUTPUTS))[:, None] + channel[None, :]
        here = tl.dot(patch, tl.load(w), here)
        right = tl.dot(patch, tl.load(w + OUTPUTS), right)
        below = tl.dot(patch, tl.load(w + 2 * OUTPUTS), below)
        across = tl.dot(patch, tl.load(w + 3 * OUTPUTS), across)
    best = here
    which = tl.zeros((TILE, OUTPUTS), tl.int32)
    which = tl.where(right > best, 1, which)
    best = tl.maximum(right, best)
    which = tl.where(below > best, 2, which)
    best = tl.maximum(below, best)
    which = tl.where(across > best, 3, which)
    best = tl.maximum(across, best)
    best += tl.load(bias + network * bias_stride + channel)[None, :]
    if RECTIFIED:
        best = tl.maximum(best, 0.0)
    size: tl.constexpr = half * half * OUTPUTS
    start = (network * batch + image) * size
    place = (start + pixel * PIXEL_STRIDE)[:, None] + channel[None, :] * CHANNEL_STRIDE
    tl.store(out + place, best, mask=valid[:, None])
    place = (start + pixel * OUTPUTS)[:, None] + channel[None, :]
    tl.store(winner + place, which.to(tl.uint8), mask=valid[:, None])


@triton.jit
def lay_out(
    gradient,
    pooled,
    found,
    PIXELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    RECTIFIED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy a gradient from PyTorch's flat order to pixels of channels, through the rectifier."""
    image = tl.program_id(0).to(tl.int64)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = e < PIXELS * OUTPUTS
    place = image * (PIXELS * OUTPUTS) + e % OUTPUTS * PIXELS + e // OUTPUTS
    value = tl.load(gradient + place, mask=inside, other=0.0)
    if RECTIFIED:
        value = tl.where(tl.load(pooled + place, mask=inside, other=0.0) > 0, value, 0.0)
    tl.store(found + image * (PIXELS * OUTPUTS) + e, value, mask=inside)


@triton.jit
def convolution_weights(
    x,
    gradient,
    winner,
    wide,
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
    """Sum the gradients of the wide weights and the bias over one share of the windows.

    A program has a part of the numbers of a patch: all of them would not fit into its registers.
    """
    half: tl.constexpr = (SIDE - 4) // 2
    # The parts of one share of the windows run side by side, and find these in the cache.
    part = 0 if PARTS == 1 else tl.program_id(0) % PARTS
    split = tl.program_id(0) // PARTS
    network = tl.program_id(1).to(tl.int64)
    k, channel = part * WIDTH + tl.arange(0, WIDTH), tl.arange(0, OUTPUTS)
    # The offset of each number of a patch from the patch's corner.
    place = k // (6 * INPUTS) * (SIDE * INPUTS) + k % (6 * INPUTS)
    here = tl.zeros((WIDTH, OUTPUTS), tl.float32)
    right = tl.zeros((WIDTH, OUTPUTS), tl.float32)
    below = tl.zeros((WIDTH, OUTPUTS), tl.float32)
    across = tl.zeros((WIDTH, OUTPUTS), tl.float32)
    sums = tl.zeros((OUTPUTS,), tl.float32)
    for tile in range(TILES):
        m = (split * TILES + tile) * TILE + tl.arange(0, TILE)
        valid = m < batch * half * half
        image, pixel = m // (half * half), m % (half * half)
        row = (network * batch + image) * SIDE + pixel // half * 2
        corner = (row * SIDE + pixel % half * 2) * INPUTS
        used = (k < 36 * INPUTS)[:, None] & valid[None, :]
        patch = tl.load(x + corner[None, :] + place[:, None], mask=used, other=0.0)
        at = ((network * batch * half * half + m) * OUTPUTS)[:, None] + channel[None, :]
        g = tl.load(gradient + at, mask=valid[:, None], other=0.0)
        which = tl.load(winner + at, mask=valid[:, None], other=0)
        nothing = tl.zeros_like(g)
        here = tl.dot(patch, tl.where(which == 0, g, nothing), here)
        right = tl.dot(patch, tl.where(which == 1, g, nothing), right)
        below = tl.dot(patch, tl.where(which == 2, g, nothing), below)
        across = tl.dot(patch, tl.where(which == 3, g, nothing), across)
        if part == 0:
            sums += tl.sum(g.to(tl.float32), 0)
    share = network * (tl.num_programs(0) // PARTS) + split
    at = ((share * (PARTS * WIDTH) + k) * (4 * OUTPUTS))[:, None] + channel[None, :]
    tl.store(wide + at, here)
    tl.store(wide + at + OUTPUTS, right)
    tl.store(wide + at + 2 * OUTPUTS, below)
    tl.store(wide + at + 3 * OUTPUTS, across)
    if part == 0:
        tl.store(bias + share * OUTPUTS + channel, sums)


@triton.jit
def narrow(
    wide,
    bias,
    weight_gradient,
    bias_gradient,
    network_stride,
    COLOURS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NUMBERS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up the gradients of wide weights, and the shares of the windows, in PyTorch's order."""
    network = tl.program_id(1).to(tl.int64)
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    output, colour, tap = e % OUTPUTS, e // OUTPUTS % COLOURS, e // (OUTPUTS * COLOURS)
    inside = tap < 25
    y, x = tap // 5, tap % 5
    total = tl.zeros((BLOCK,), tl.float32)
    added = tl.zeros((BLOCK,), tl.float32)
    one = tl.program_id(0) == 0
    for split in range(SPLITS):
        share = network * SPLITS + split
        for window in tl.static_range(4):
            k = ((y + window // 2) * 6 + x + window % 2) * INPUTS + colour
            at = ((share * NUMBERS + k) * 4 + window) * OUTPUTS + output
            total += tl.load(wide + at, mask=inside, other=0.0)
        if one:
            added += tl.load(bias + share * OUTPUTS + e, mask=e < OUTPUTS, other=0.0)
    place = network * network_stride + (output * COLOURS + colour) * 25 + tap
    tl.store(weight_gradient + place, total, mask=inside)
    if one:
        tl.store(bias_gradient + network * network_stride + e, added, mask=e < OUTPUTS)


@triton.jit
def convolution_inputs(
    gradient,
    winner,
    wide,
    x,
    found,
    batch,
    SIDE: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NUMBERS: tl.constexpr,
    RECTIFIED: tl.constexpr,
    TILE: tl.constexpr,
):
    """Compute the gradients of the convolution's inputs, through the rectifier before these.

    A program computes blocks of 2×2 inputs; each lies in the patches of 3×3 windows.
    """
    half: tl.constexpr = (SIDE - 4) // 2
    blocks: tl.constexpr = SIDE // 2
    network = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    valid = m < batch * blocks * blocks
    image, block = m // (blocks * blocks), m % (blocks * blocks)
    y, x_block = block // blocks, block % blocks
    channel, n = tl.arange(0, OUTPUTS), tl.arange(0, 4 * INPUTS)
    below, right, colour = n // (2 * INPUTS), n // INPUTS % 2, n % INPUTS
    own = wide + network * (NUMBERS * 4 * OUTPUTS)
    total = tl.zeros((TILE, 4 * INPUTS), tl.float32)
    for neighbour in range(9):
        up, left = neighbour // 3, neighbour % 3
        v, u = y - up, x_block - left
        used = valid & (v >= 0) & (v < half) & (u >= 0) & (u < half)
        at = (((network * batch + image) * half + v) * half + u) * OUTPUTS
        at = at[:, None] + channel[None, :]
        g = tl.load(gradient + at, mask=used[:, None], other=0.0)
        which = tl.load(winner + at, mask=used[:, None], other=0)
        nothing = tl.zeros_like(g)
        k = ((2 * up + below) * 6 + 2 * left + right) * INPUTS + colour
        for window in tl.static_range(4):
            w = tl.load(own + ((k * 4 + window) * OUTPUTS)[None, :] + channel[:, None])
            total = tl.dot(tl.where(which == window, g, nothing), w, total)
    row = (network * batch + image) * SIDE + 2 * y
    corner = (row * SIDE + 2 * x_block) * INPUTS
    place = corner[:, None] + (below * (SIDE * INPUTS) + n % (2 * INPUTS))[None, :]
    if RECTIFIED:
        before = tl.load(x + place, mask=valid[:, None], other=0.0)
        total = tl.where(before > 0, total, 0.0)
    tl.store(found + place, total, mask=valid[:, None])


@triton.jit
def descend(
    parameters,
    momentum,
    gradients,
    rate,
    size,
    keep,
    decay,
    BLOCK: tl.constexpr,
):
    """Take a step of gradient descent with momentum and weight decay, in place."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    before = tl.load(parameters + at, mask=inside)
    slope = tl.load(gradients + at, mask=inside) + decay * before
    speed = tl.load(momentum + at, mask=inside) * keep + slope
    tl.store(momentum + at, speed, mask=inside)
    tl.store(parameters + at, before - tl.load(rate) * speed, mask=inside)

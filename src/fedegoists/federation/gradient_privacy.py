"""Differentially private answers: single samples are bounded, and Gaussian noise is added.

With gradients clipped to the norm C, adding or removing one of B changes the mean by at most C/B.
Gaussian noise with standard deviation z·C/B in every coordinate makes one such answer the Gaussian
mechanism with noise multiplier z (Abadi et al., Deep learning with differential privacy, 2016). The
same holds for the mean of bounded losses, and for counts.

Answers with noise are about a Poisson sample: every sample is in the batch with the same
probability, independently of the others and of all other answers. This is what
`fedegoists.federation.privacy_loss` assumes when it accounts for them.
"""

import hmac
import math
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from fedegoists.errors import MissingDependencyError, SettingsError
from fedegoists.federation.batches import SecretSeed, stream_seed
from fedegoists.install_hints import install_command
from fedegoists.learning.parameters import ParameterSchema

SHORTEST = 1e-12
"""Gradients of zero stay as they are."""


def check_privacy(clip: float | None, noise: float) -> None:
    """Refuse noise without clipping, by whose norm it is measured."""
    if clip is not None and not 0 < clip < math.inf:
        raise SettingsError(f"clip is {clip}; expected a norm above 0")
    if not 0 <= noise < math.inf:
        raise SettingsError(f"noise is {noise}; expected a multiple of the norm, 0 or more")
    if noise > 0 and clip is None:
        raise SettingsError("noise hides a sample only beside a limit on its gradient: set clip")


AT_ONCE = 7_000_000
"""Numbers in gradients of single samples that a CPU computes at once. These are 28 MB; the C
library requests blocks of 32 MB and more from the system every time, which costs more than the
work."""


def samples_at_once(schema: ParameterSchema, device: torch.device) -> int:
    """Return the number of samples whose gradients may be computed at once."""
    return max(1, AT_ONCE // schema.size) if device.type == "cpu" else sys.maxsize


def clipped_gradient(
    loss: Callable[..., Tensor], schema: ParameterSchema, clip: float
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function like `grad_and_value` of a loss that clips every sample's gradient.

    The loss is one of named parameters: slices of a vector would each leave a gradient as long as
    the vector. The value is zero: the loss of a batch would reveal something of its samples, too.

    The function takes weights of samples twice. The `weights` are those of a mean, such as one over
    the size of a batch, and multiply what was clipped. The `factors`, such as the weight of a
    class, are a part of the gradient that is clipped: whoever asks chooses them, and could make a
    clipped gradient as long as they like.
    """

    def of_one(values: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        return loss(values, tuple(part.unsqueeze(0) for part in inputs), target.unsqueeze(0))

    of_each = vmap(grad(of_one), in_dims=(None, 0, 0))

    def clipped(
        vector: Tensor,
        inputs: tuple[Tensor, ...],
        targets: Tensor,
        weights: Tensor | None = None,
        factors: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        values, total = schema.unflatten(vector), torch.zeros_like(vector)
        count = len(targets)
        step = samples_at_once(schema, vector.device)
        for some in (slice(start, start + step) for start in range(0, count, step)):
            named = of_each(values, tuple(part[some] for part in inputs), targets[some])
            gradients = [named[name].flatten(1) for name in schema.names]
            norms = torch.stack([part.norm(dim=1) for part in gradients]).norm(dim=0)
            counted = torch.ones_like(norms) if factors is None else factors[some]
            norms = norms * counted.abs()
            # A sample without a finite gradient counts as zero: if the whole answer failed, the
            # failure would tell that such a sample is there.
            usable = norms.isfinite()
            scale = (clip / norms.clamp_min(SHORTEST)).clamp_max(1.0).where(usable, 0.0) * counted
            shares = scale / count if weights is None else scale * weights[some]
            total = total + torch.cat(
                [shares @ part.where(usable[:, None], 0.0) for part in gradients]
            )
        return total, torch.zeros((), device=vector.device)

    return clipped


def gaussian_noise(
    shape: torch.Size, deviation: float, seed: int, step: int, device: torch.device | str = "cpu"
) -> Tensor:
    """Return the Gaussian noise of one answer.

    A simulated silo draws it from the seed of the request, so that runs can be repeated. Known
    noise can be subtracted, so a deployed silo draws it from a `SecretSeed` by a cipher: PyTorch's
    generators have only 2³² starts on a CPU, and one number of the noise that an attacker knows
    would be enough to try them all.
    """
    if isinstance(seed, SecretSeed):
        key = hmac.digest(seed.to_bytes(32, "big"), f"noise {step}".encode(), "sha256")
        return (deviation * cipher_normals(key, math.prod(shape))).reshape(shape).to(device)
    generator = torch.Generator(device).manual_seed(stream_seed(seed, step, "noise"))
    return deviation * torch.randn(shape, generator=generator, device=device)


def cipher_normals(key: bytes, count: int) -> Tensor:
    """Return standard normal numbers from the key stream of ChaCha20, by Box and Muller.

    Each is the sum of four, halved, so that its last digits do not tell the uniform numbers that it
    was made from (Holohan and Braghin, Secure random sampling in differential privacy, 2021).
    """
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    except ImportError:
        raise MissingDependencyError(
            f"noise from a secret needs cryptography: {install_command('flare')}"
        ) from None
    pairs = -(-count // 2)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    total = np.zeros(2 * pairs)
    for _ in range(SUMMED):
        words = np.frombuffer(stream.update(bytes(16 * pairs)), dtype="<u8")
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
        radius = np.sqrt(-2.0 * np.log(uniform[:pairs]))
        angle = 2.0 * np.pi * uniform[pairs:]
        total[:pairs] += radius * np.cos(angle)
        total[pairs:] += radius * np.sin(angle)
    return torch.from_numpy((total[:count] / math.sqrt(SUMMED)).astype(np.float32))


SUMMED = 4
"""Normal numbers in each number of the noise."""


AUC_EDGES = torch.sinh(torch.linspace(-2.5, 2.5, 15))
"""The edges of 16 intervals of outputs in which the samples of each class are counted."""


def noisy_score(
    task: str, outputs: Tensor, targets: Tensor, multiplier: float, noise: Tensor
) -> float:
    """Return the metric of a classification, of which one sample changes no more than the noise.

    The accuracy is a mean. The area under the ROC curve of few positives depends on each of them;
    it is computed from noisy counts of each class in intervals of the output.

    Parameters
    ----------
    multiplier : float
        Noise in multiples of what one sample can change.
    noise : Tensor
        Standard normal numbers, at least `SCORE_NOISE`.
    """
    if task == "classification":
        right = (outputs.argmax(-1) == targets).double().mean().item()
        return min(max(right + multiplier * noise[0].item() / len(targets), 0.0), 1.0)
    values = outputs.squeeze(-1).nan_to_num()
    places = torch.bucketize(values, AUC_EDGES.to(values.device)) + 16 * (targets > 0.5).long()
    counts = torch.bincount(places, minlength=32).double().cpu()
    counts = (counts + multiplier * noise[:32].double()).clamp_min(0.0).reshape(2, 16)
    pairs = counts[0].sum() * counts[1].sum()
    below = counts[0].cumsum(0) - 0.5 * counts[0]
    return ((counts[1] * below).sum() / pairs).item() if pairs > 0 else math.nan


SCORE_NOISE = 32
"""Numbers of noise in one score."""

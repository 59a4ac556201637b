"""Batches: the samples of each step as a function of a seed, wherever a silo is.

In a simulation the seed follows from the request, so that runs can be repeated by anybody. A
deployed silo mixes its own secret into it: the coordinator chooses the seed of a request, and with
batches that it can compute it could solve for the samples.
"""

import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@lru_cache(maxsize=4096, typed=True)
def stream_seed(*parts: Hashable) -> int:
    """Return a seed made from words and numbers; the same in every process, unlike `hash`."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


class SecretSeed(int):
    """A seed of 256 bits that follows from a silo's secret; never told to others.

    Examples
    --------
    >>> SecretSeed.of(b"a silo's secret", "0/validation", 3) == SecretSeed.of(b"another", 0, 3)
    False
    """

    @classmethod
    def of(cls, secret: bytes, *parts: Hashable) -> "SecretSeed":
        """Return the seed for words and numbers; the same whenever the silo is asked."""
        text = "\0".join(map(str, parts))
        return cls.from_bytes(hmac.digest(secret, text.encode(), "sha256"), "big")


def batch_plan(
    size: int, batch_size: int, steps: int, seed: int, repeat: int = 1
) -> npt.NDArray[np.int64]:
    """Return the samples of each step: passes over all `size` samples, each in a new order.

    With `repeat`, this number of consecutive steps uses the same batch.

    Examples
    --------
    >>> batch_plan(5, 2, 3, seed=0).shape
    (3, 2)
    """
    batch = min(batch_size, size)
    batches = -(-steps // repeat)
    rng = np.random.default_rng(seed)
    passes = -(-batch * batches // size)
    orders = [rng.permutation(size) for _ in range(passes)]
    order = orders[0] if passes == 1 else np.concatenate(orders)
    plan = order[: batches * batch].reshape(batches, batch)
    return plan if repeat == 1 else np.repeat(plan, repeat, axis=0)[:steps]


def poisson_plan(
    size: int, batch_size: int, steps: int, seed: int, repeat: int = 1
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return samples of each step that are drawn independently, each with the same probability.

    Returns
    -------
    plan, weights
        Of shape (steps, width). Batches differ in size; the weights are one over `batch_size`, the
        mean size of a batch, and 0 for padding.

    Examples
    --------
    >>> plan, weights = poisson_plan(100, 10, 500, seed=0)
    >>> round(float(weights.sum(1).mean()), 1)  # in the mean, the batch size
    1.0
    """
    batch = min(batch_size, size)
    batches = -(-steps // repeat)
    drawn = np.random.default_rng(seed).random((batches, size)) < batch / size
    # Widths that rarely differ, so that what is captured for one can be replayed for another.
    usual = min(size, batch + 5 * int(np.ceil(np.sqrt(batch))))
    width = max(int(drawn.sum(1).max()), usual)
    # Stable: those drawn come first, in their order.
    plan = np.argsort(~drawn, axis=1, kind="stable")[:, :width]
    weights = np.take_along_axis(drawn, plan, 1).astype(np.float32) / np.float32(batch)
    if repeat == 1:
        return plan, weights
    return np.repeat(plan, repeat, axis=0)[:steps], np.repeat(weights, repeat, axis=0)[:steps]


def batch_at(size: int, batch_size: int | None, step: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the batch of one step of many; without a batch size, all samples.

    Every pass has a new order; an incomplete batch at its end is dropped.
    """
    if batch_size is None or batch_size >= size:
        return np.arange(size)
    number, place = divmod(step, size // batch_size)
    return _order(size, seed, number)[place * batch_size : (place + 1) * batch_size]


def share_of(size: int, share: float | None, batch_size: int | None) -> int | None:
    """Return the number of samples in a batch: a share of `size`, where one is given.

    Rounded down, so that two halves of an odd number have no sample in common.
    """
    return batch_size if share is None else max(1, int(share * size))


class Orders:
    """A cache of the random orders in which passes go through the samples.

    Parameters
    ----------
    most_bytes : int
        The size of the cache; a larger order is drawn again at every step.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self.bytes = most_bytes, 0
        self._known: OrderedDict[tuple[int, int, int], npt.NDArray[np.int64]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, size: int, seed: int, number: int) -> npt.NDArray[np.int64]:
        """Return the order of one pass over `size` samples."""
        key = (size, seed, number)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            order = np.random.default_rng([seed, number]).permutation(size)
            self._known[key] = order
            self.bytes += order.nbytes
            while self.bytes > self._most:
                self.bytes -= self._known.popitem(last=False)[1].nbytes
            return order


_order = Orders(64 * 1024 * 1024)


def augmentation_draws(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return a flip (0 or 1) and two shifts (0 to 8) for each image, as bytes."""
    rng = np.random.default_rng(stream_seed(seed, "augment"))
    draws = np.empty((*shape, 3), dtype=np.uint8)
    draws[..., 0] = rng.integers(0, 2, shape)
    draws[..., 1:] = rng.integers(0, 9, (*shape, 2))
    return torch.from_numpy(draws)

"""One function of many models at once, where `torch.func.vmap` is slow or cannot work.

On a GPU the models run on several streams, so that small kernels of different models share the
device; captured in a CUDA graph, that is faster than `vmap` for convolutions, whose weights would
differ within a batch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

STREAMS = 10
"""Models that run at the same time."""


def side_by_side(function: Callable[..., Any], *given: Any) -> Any:
    """Apply a function to each row of its arguments; return the results as rows.

    Parameters
    ----------
    function : callable
        Takes and returns tensors, tuples and dictionaries of them.
    given
        One row for each call, or None; the first is a tensor.
    """
    count, device = len(given[0]), given[0].device
    if device.type != "cuda":
        return _together([function(*(_row(one, k) for one in given)) for k in range(count)])
    here = torch.cuda.current_stream(device)
    streams = _streams(device)[:count]
    results = []
    for stream in streams:
        stream.wait_stream(here)
    for k in range(count):
        with torch.cuda.stream(streams[k % len(streams)]):
            results.append(function(*(_row(one, k) for one in given)))
    # Memory is used again only after this: the next call waits for the present stream.
    for stream in streams:
        here.wait_stream(stream)
    return _together(results)


def _streams(device: torch.device) -> list[torch.cuda.Stream]:
    if device not in _KNOWN:
        _KNOWN[device] = [
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for _ in range(STREAMS)
        ]
    return _KNOWN[device]


_KNOWN: dict[torch.device, list[torch.cuda.Stream]] = {}


def _row(value: Any, k: int) -> Any:
    if isinstance(value, Tensor):
        return value[k]
    if isinstance(value, dict):
        return {name: _row(own, k) for name, own in value.items()}
    if isinstance(value, tuple):
        return tuple(_row(own, k) for own in value)
    return value


def _together(results: list[Any]) -> Any:
    first = results[0]
    if isinstance(first, Tensor):
        return torch.stack(results)
    if isinstance(first, dict):
        return {name: _together([one[name] for one in results]) for name in first}
    return tuple(_together(list(own)) for own in zip(*results, strict=True))

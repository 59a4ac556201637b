"""The silos of a simulation: rows of one pool of samples on one device."""

import warnings
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant, Repetition
from fedegoists.federation.silo_operations import Silo
from fedegoists.learning.data import SiloedData


def checked_device(device: str) -> torch.device:
    """Return a device by its name, checked to be available."""
    try:
        found = torch.device(device)
    except RuntimeError:
        raise SettingsError(f"unknown device {device!r}; use cpu, cuda or cuda:1") from None
    if found.type not in ("cpu", "cuda"):
        raise SettingsError(f"device {device!r} is not supported; use cpu, cuda or cuda:1")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError("there is no usable GPU here; use the device cpu")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise SettingsError(f"there are {torch.cuda.device_count()} GPUs here, none is {device!r}")
    return found


def pooled_silos(
    repetitions: Mapping[Repetition | None, SiloedData], device: torch.device
) -> dict[Participant, Silo]:
    """Return all silos over one pool; samples that several repetitions share are kept once."""
    pools: dict[tuple[object, ...], int] = {}
    parts: list[SiloedData] = []
    offsets: list[int] = []
    total = 0
    for data in repetitions.values():
        # Repetitions made from the same arrays have samples of their own around them.
        key: tuple[object, ...] = tuple(
            array.__array_interface__["data"][0] for array in data.samples.arrays
        )
        if data.samples.weights is not None:  # they are relative to those of their split
            key += tuple(positions.tobytes() for one in data.silos for positions in one.parts)
        if key not in pools:
            pools[key] = total
            total += len(data.samples.targets)
            parts.append(data)
        offsets.append(pools[key])
    count = len(parts[0].samples.inputs)
    inputs = tuple(
        _joined([part.samples.inputs[k] for part in parts]).to(device) for k in range(count)
    )
    targets = _joined([part.samples.targets for part in parts])
    classes = parts[0].task == "classification"
    targets = (targets.long() if classes else targets.float()).to(device)
    weights, groups = _relative_weights(parts), _groups(parts)
    silos = {}

    def placed(rows: npt.NDArray[np.int64], offset: int) -> Tensor:
        return torch.from_numpy(np.array(rows) + offset).to(device)

    for (repetition, data), offset in zip(repetitions.items(), offsets, strict=True):
        for k, silo in enumerate(data.silos):
            silos[Participant(silo.name, repetition)] = Silo(
                inputs,
                targets,
                {
                    "train": placed(silo.train, offset),
                    "validation": placed(silo.validation, offset),
                    "test": placed(silo.test, offset),
                },
                data.classes,
                data.target_scales[k].spread if data.target_scales else 1.0,
                None if weights is None else weights.to(device),
                groups,
            )
    return silos


def _groups(parts: list[SiloedData]) -> npt.NDArray[np.int64] | None:
    """Return the groups of all samples of the pool; None where every sample is one by itself."""
    if all(part.samples.groups is None for part in parts):
        return None
    found, start = [], 0
    for part in parts:
        own = part.samples.groups
        own = np.arange(len(part.samples)) if own is None else own
        found.append(own + start)
        start += int(own.max(initial=-1)) + 1
    return np.concatenate(found)


def _relative_weights(parts: list[SiloedData]) -> Tensor | None:
    """Return the weights of all samples, with mean 1 over each split of a silo; None without."""
    if all(part.samples.weights is None for part in parts):
        return None
    found = []
    for part in parts:
        own = np.ones(len(part.samples), dtype=np.float32)
        if part.samples.weights is not None:
            own[:] = part.samples.weights
            for positions in (split for silo in part.silos for split in silo.parts if len(split)):
                given = part.samples.weights[positions].astype(np.float64)
                own[positions] = given / given.mean()
        found.append(own)
    return torch.from_numpy(np.concatenate(found))


def _joined(arrays: list[npt.NDArray[np.generic]]) -> Tensor:
    """Return arrays one after the other as a tensor; a single one without a copy."""
    array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    with warnings.catch_warnings():
        # Tensors cannot be read-only, as the samples are; nothing here writes to them.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)

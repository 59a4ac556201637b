"""Models as files: the weights, and what one must know to use them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedegoists.files import file_name, name_digest, private_folder, write_bytes
from fedegoists.learning.data_description import DataFacts

__all__ = ["MODELS", "keep_model", "model_about", "model_bytes"]

MODELS = "models"
"""The folder of a silo's kit, as of a run, in which models are."""

MOST_MODELS = 20
"""Runs of which a silo keeps its model; those of older runs are removed."""


def model_about(
    data: DataFacts,
    participant: str,
    *,
    method: str,
    seed: int,
    chosen_round: int,
    model: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what a model's file says of it, as values for JSON.

    Parameters
    ----------
    data : DataFacts
        The data it was trained on: it needs its inputs prepared in the same way.
    model, options : str and mapping
        The network, and what it had to know of the data.
    """
    return {
        "participant": participant,
        "method": method,
        "seed": seed,
        "round": chosen_round,
        "model": model,
        "options": dict(options),
        "task": data.task,
        "description": data.description,
        "inputs": [one.of(data.participants.index(participant)) for one in data.preparation],
        "classes": list(data.class_names),
    }


def model_bytes(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """Return a model as a safetensors file."""
    from safetensors.torch import save

    metadata = {"fedegoists": json.dumps(dict(about), sort_keys=True)}
    own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content: bytes = save(own, metadata)
    return content


def keep_model(
    folder: Path, run: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]
) -> Path:
    """Write the model that a run gave an organisation; only its owner can read it."""
    private_folder(folder)
    plain = file_name(run)
    path = folder / f"{plain if plain == run else f'{plain}-{name_digest(run)}'}.safetensors"
    write_bytes(path, model_bytes(tensors, about), private=True)
    known = sorted(folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    for file in known[:-MOST_MODELS]:
        file.unlink()
    return path

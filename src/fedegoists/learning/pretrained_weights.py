"""Pre-trained weights of a user's own model: a safetensors file beside its code.

Its hash is part of the model's options, so that it is on every card, changes every cached stage,
and is what a deployed silo approves. Pickled files (``.pt``) are refused: reading them runs code.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedegoists.errors import SettingsError, shown

if TYPE_CHECKING:
    from torch import Tensor, nn

SUFFIX = ".safetensors"
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
MOST_NAMED = 6
"""Keys that a message names."""

CONVERT = (
    'python -c "import torch; from safetensors.torch import save_file; '
    "save_file({{k: v.contiguous().clone() for k, v in torch.load('{name}', weights_only=True)"
    ".items()}}, '{plain}')\""
)


def weights_digest(path: Path) -> str:
    """Return the hash of a file of weights.

    It is read each time: times and sizes of files do not prove that their content is the same.

    Raises
    ------
    SettingsError
        If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SettingsError(
            f"{path.name}: the weights cannot be read ({error.strerror}); the file belongs beside "
            "the model's code"
        ) from None


def checked_name(given: object, where: str) -> str:
    """Return the name of a file of weights.

    Raises
    ------
    SettingsError
        If it is no name of a safetensors file beside the code; for a pickled file with the command
        that converts it.
    """
    if not isinstance(given, str) or not given:
        raise SettingsError(
            f"{where}: weights is {shown(given)}; expected the name of a file beside it, such as "
            f"weights{SUFFIX}"
        )
    name = Path(given)
    if name.suffix in PICKLED:
        command = CONVERT.format(name=given, plain=name.with_suffix(SUFFIX).name)
        raise SettingsError(
            f"{where}: {given} may hold code that runs when it is read; convert it once, and name "
            f"{name.with_suffix(SUFFIX).name} instead: {command}"
        )
    if name.suffix != SUFFIX or name.name != given:
        raise SettingsError(
            f"{where}: weights is {shown(given)}; expected a file beside it that ends in {SUFFIX}, "
            "without a folder"
        )
    return given


def load_weights(module: "nn.Module", path: Path) -> None:
    """Put the tensors of a file into a module.

    Every tensor of the file must have its place. Trainable parameters that the file does not have,
    as those of adapters and of a new output layer, keep their initial values; frozen ones must be
    in it.

    Raises
    ------
    SettingsError
        If keys are missing or unexpected, or shapes differ; with their names.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    weights_digest(path)  # reports a file that is not there
    try:
        found = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise SettingsError(
            f"{path.name}: not a safetensors file that can be read ({error})"
        ) from None
    places = module.state_dict(keep_vars=True)
    unexpected = [name for name in found if name not in places]
    if unexpected:
        raise SettingsError(
            f"{path.name} has tensors that the model does not: {_named(unexpected)}; give layers "
            "the same names, or leave these out of the file"
        )
    misfits = [
        f"{name} {tuple(own.shape)} instead of {tuple(places[name].shape)}"
        for name, own in found.items()
        if own.shape != places[name].shape
    ]
    if misfits:
        raise SettingsError(
            f"{path.name} has tensors of another shape than the model: {_named(misfits)}; leave "
            "them out of the file if these layers are new"
        )
    missing = [name for name in _needed(module, places) if name not in found]
    present = {id(places[name]) for name in found}
    missing = [name for name in missing if id(places[name]) not in present]  # tied: one is enough
    if missing:
        raise SettingsError(
            f"{path.name} lacks frozen parts of the model: {_named(missing)}; they would stay "
            "random: add them to the file, or let them be trained (requires_grad=True)"
        )
    with torch.no_grad():
        for name, own in found.items():
            places[name].copy_(own)


def _needed(module: "nn.Module", places: Mapping[str, "Tensor"]) -> list[str]:
    """Return the names of what is never trained: frozen parameters, and statistics beside them."""
    from torch import nn

    frozen = set()
    for prefix, layer in module.named_modules():
        own = list(layer.parameters(recurse=False))
        if own and not any(one.requires_grad for one in own):
            frozen |= {
                f"{prefix}.{name}" if prefix else name
                for name, buffer in layer.named_buffers(recurse=False)
                if buffer.is_floating_point()
            }
    return [
        name
        for name, own in places.items()
        if name in frozen or (isinstance(own, nn.Parameter) and not own.requires_grad)
    ]


def _named(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
    return f"{', '.join(every[:MOST_NAMED])}{more}"


def tensors_in(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of the tensors in a file of weights, without reading them.

    Raises
    ------
    SettingsError
        If it is no safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            names: Any = file.keys()
            return [(name, tuple(file.get_slice(name).get_shape())) for name in names]
    except (SafetensorError, OSError) as error:
        raise SettingsError(
            f"{path.name}: not a safetensors file that can be read ({error})"
        ) from None

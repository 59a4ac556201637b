"""Files of tensors with a text about them: safetensors, sealed where they are checkpoints."""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from fedegoists.errors import FileError
from fedegoists.files import write_bytes
from fedegoists.sealed_files import BLANK, Seal, SealError

TEXT_KEY = "fedegoists"
"""The key of the text in the metadata of a file."""

_LOG = logging.getLogger("fedegoists.checkpoints")


def tensors_and_text(content: bytes) -> tuple[dict[str, Tensor], str]:
    """Return the tensors and the text of a file.

    Raises
    ------
    ValueError
        If it is not such a file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return tensors, str(header["__metadata__"][TEXT_KEY])
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from None


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], text: str) -> None:
    """Write a sealed file that only its owner can read; the one before is kept beside it."""
    from safetensors.torch import save

    seal = Seal.of_folder(path.parent)
    content = seal.stamped(save(dict(tensors), {TEXT_KEY: text, "seal": BLANK}), path.name)
    if path.exists():
        _keep_beside(path)
    write_bytes(path, content, private=True)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors and the text of a file that `write_checkpoint` wrote.

    If the file is damaged, or was not written here, it is moved aside, which is logged, and the
    one before takes its place.

    Raises
    ------
    FileError
        If none of both can be used.
    """
    seal, earlier = Seal.of_folder(path.parent), previous(path)
    try:
        return _opened(path, seal, path.name)
    except ValueError as error:
        problem = error
    if earlier.exists():
        try:
            found = _opened(earlier, seal, path.name)
        except ValueError:
            pass
        else:
            _LOG.warning("%s: %s; going on from the checkpoint before it", path, problem)
            path.replace(path.with_suffix(".damaged"))
            earlier.replace(path)
            return found
    raise FileError(
        f"{path}: not a checkpoint of this folder ({problem}); remove it to start again"
    )


def previous(path: Path) -> Path:
    """Return the path of the checkpoint before the one in `path`."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _opened(path: Path, seal: Seal, place: str) -> tuple[dict[str, Tensor], str]:
    try:
        content = path.read_bytes()
        seal.check(content, place)
        return tensors_and_text(content)
    except (SealError, OSError) as error:
        raise ValueError(str(error)) from None


def _keep_beside(path: Path) -> None:
    """Give the present file a second name, so that there is never a moment without one."""
    earlier = previous(path)
    try:
        earlier.unlink(missing_ok=True)
        os.link(path, earlier)
    except OSError:  # not every file system has links
        write_bytes(earlier, path.read_bytes(), private=True)

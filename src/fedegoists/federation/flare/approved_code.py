"""A silo's approval of code: nothing runs here that its operator has not read and approved.

Code never arrives over the wire. A call names a function of a file in the kit and the file's hash;
the silo runs it only if the file is there, has this hash, and this hash was approved. The same
holds for the function that loads the silo's data, which its own silo.toml names.
"""

import json
import re
from pathlib import Path

from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare.silo_secret import STATE_FOLDER
from fedegoists.files import private_folder, read_text, write_bytes
from fedegoists.learning.own_models import file_digest, is_own
from fedegoists.learning.pretrained_weights import weights_digest

APPROVED_FILE = "approved-code.json"
CODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}\.py")
WEIGHTS_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}\.safetensors")
"""Files directly in the kit: no path can lead out of it."""
PLAIN_NAME = re.compile(CODE_NAME.pattern + r":[A-Za-z_][A-Za-z0-9_]{0,79}")
"""A function of a file in the kit."""


def approved(kit: Path) -> dict[str, str]:
    """Return the approved hash of each file."""
    path = kit / STATE_FOLDER / APPROVED_FILE
    if not path.exists():
        return {}
    try:
        content = json.loads(read_text(path))
        return {str(name): str(digest) for name, digest in content.items()}
    except (ValueError, AttributeError):
        raise FileError(f"{path}: damaged; remove it and approve again") from None


def approve(kit: Path, file: str, digest: str) -> None:
    """Approve a file of the kit with the content that its operator has read.

    Raises
    ------
    SettingsError
        If the file is not the one that was read.
    """
    if not (CODE_NAME.fullmatch(file) or WEIGHTS_NAME.fullmatch(file)):
        raise SettingsError(
            f"{file!r}: give the name of a Python file in the kit, as model.py, or of one with "
            "weights, as weights.safetensors"
        )
    if file_digest(kit / file) != digest:
        raise SettingsError(f"{file} has changed while it was read; read it again")
    private_folder(kit / STATE_FOLDER)
    content = json.dumps({**approved(kit), file: digest}, indent=2) + "\n"
    write_bytes(kit / STATE_FOLDER / APPROVED_FILE, content.encode(), private=True)


def model_here(kit: Path, model: str, code: str) -> str:
    """Return the model that a call names, as it is named on this machine.

    Parameters
    ----------
    model : str
        A network's name, or a function of a file as the coordinator names it.
    code : str
        The hash of the coordinator's file.

    Raises
    ------
    SettingsError
        If the file is missing, is another one than the coordinator's, or was not approved.
    """
    if not is_own(model):
        return model
    if not PLAIN_NAME.fullmatch(model):
        raise SettingsError("the model is no function of a file in this kit")
    file, _, function = model.partition(":")
    _check_agreed(file, approved_digest(kit, file), code)
    return f"{(kit / file).resolve()}:{function}"


def check_weights(kit: Path, weights: tuple[str, str] | None, wanted: str) -> None:
    """Refuse pre-trained weights that were not approved, or are not the coordinator's.

    Parameters
    ----------
    weights : tuple of str, optional
        The file that the model's code names, and its hash.
    wanted : str
        The hash of the coordinator's file; empty if it has none.

    Raises
    ------
    SettingsError
        If the file is missing, is another one than the coordinator's, or was not approved.
    """
    if weights is not None:
        _check_agreed(weights[0], approved_digest(kit, weights[0]), wanted)
    elif wanted:
        raise SettingsError("the coordinator's model has pre-trained weights, the one here none")


def _check_agreed(file: str, digest: str, wanted: str) -> None:
    if digest != wanted:
        raise SettingsError(
            f"{file} of the coordinator is not the one that was approved here (SHA-256 {digest}); "
            "agree on one file"
        )


def approved_digest(kit: Path, file: str) -> str:
    """Return the hash of a file of the kit, if its operator has approved this hash.

    Raises
    ------
    SettingsError
        If the file is missing, or has not been approved as it is.
    """
    how = f"read it and run `fedegoists deploy approve KIT {file}`"
    if not (kit / file).is_file():
        raise SettingsError(f"{file} is not in this kit; get it from the coordinator, {how}")
    digest = weights_digest(kit / file) if WEIGHTS_NAME.fullmatch(file) else file_digest(kit / file)
    known = approved(kit).get(file)
    if digest != known:
        state = "not been approved" if known is None else "changed since it was approved"
        raise SettingsError(f"{file} has {state} at this silo; {how}")
    return digest

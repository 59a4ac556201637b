"""Folders of models whose files are checked before they are handed to anybody."""

from pathlib import Path

from fedegoists.errors import FileError
from fedegoists.sealed_files import KEY_FILE, LEDGER_FILE, Seal, SealedFolder

MODELS_FOLDER = "models"
"""The folder of models, in a run and in a silo's kit."""


def run_models(run: Path) -> SealedFolder:
    """Return the folder of a run's models, sealed with the key in the run's folder."""
    return SealedFolder(run / MODELS_FOLDER, Seal.of_folder(run), run / LEDGER_FILE)


def check_run_model(run: Path, name: str) -> None:
    """Refuse a model that is not the one the run wrote under this name.

    Raises
    ------
    FileError
        If the file is damaged, older than it must be, or another participant's or run's.
    """
    # A run of an earlier version has no key; its models cannot be checked.
    if (run / KEY_FILE).exists():
        check_model(run_models(run), run / MODELS_FOLDER / name)


def check_model(sealed: SealedFolder, path: Path) -> None:
    """Refuse a model that is not the one that was written in a sealed folder; see above."""
    try:
        sealed.read(path.name)
    except FileError as error:
        raise FileError(
            f"{path}: not the model that was written here ({error}); do not use it, and take it "
            "from a copy, or from another run"
        ) from None

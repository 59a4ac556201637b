"""The secret of a silo, and the folders that are sealed with it."""

from pathlib import Path

from fedegoists.learning.sealed_models import MODELS_FOLDER
from fedegoists.sealed_files import Seal, SealedFolder, derived_key, owner_secret

STATE_FOLDER = "state"
"""The folder in a silo's kit for what the silo keeps between calls."""

SECRET_FILE = "secret"  # noqa: S105 - the name of the file


def silo_key(kit: Path, purpose: str) -> bytes:
    """Return a key for one purpose from the silo's secret, which never leaves its kit."""
    return derived_key(owner_secret(kit / STATE_FOLDER / SECRET_FILE), purpose)


def sealed_state(kit: Path) -> SealedFolder:
    """Return the silo's state, of which damaged and older files are refused."""
    return SealedFolder(kit / STATE_FOLDER, Seal(silo_key(kit, "state")))


def sealed_models(kit: Path) -> SealedFolder:
    """Return the folder of the models that runs delivered to the silo."""
    ledger = kit / STATE_FOLDER / "models.json"
    return SealedFolder(kit / MODELS_FOLDER, Seal(silo_key(kit, "models")), ledger)

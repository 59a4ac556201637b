"""Where the files of real data sets are on this computer."""

import os
from pathlib import Path

from fedegoists.learning.data import DataError

DATA_VARIABLE = "FEDEGOISTS_DATA"
"""The environment variable with the folder of all data sets."""


def dataset_folder(dataset: str, data_dir: str | os.PathLike[str] | None, needs: str) -> Path:
    """Return a data set's folder inside `data_dir`, or inside that of the environment variable.

    If there is none, the error says which files to put where: those that it `needs`.
    """
    given = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE, "")
    put = f"put into its sub-folder '{dataset}' {needs}"
    if not os.fspath(given):
        raise DataError(
            f"{dataset}: no folder with data was given; make one, {put}, and give it as --data-dir "
            f"(in Python, data_dir) or in the environment variable {DATA_VARIABLE}"
        )
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise DataError(f"{dataset}: the folder {folder} does not exist; make it, and {put}")
    return folder / dataset


def missing_files(dataset: str, folder: Path, found: str, needs: str) -> DataError:
    """Return the error for a folder that lacks files."""
    return DataError(f"{dataset}: {found} in {folder}; put there {needs}")

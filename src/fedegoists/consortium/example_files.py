"""Commented consortium files to start from."""

import os
from pathlib import Path
from typing import Literal, get_args

from fedegoists.consortium.example_banks import BANKS, SCHEMA, customers_csv
from fedegoists.consortium.example_clinics import CLINIC_SCHEMA, CLINICS, patients_csv
from fedegoists.consortium.toml_text import commented_toml
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import write_all
from fedegoists.learning.model_registry import MODELS

Example = Literal["synthetic", "banks", "hospitals", "own", "trees"]
EXAMPLES: tuple[Example, ...] = get_args(Example)

GIVEN: dict[Example, dict[str, object]] = {
    "synthetic": {
        "name": "synthetic",
        "data": {"source": "synthetic-weak"},
        "competition": {"published": True},
        "benefit": {"threshold": 0.1},
        "training": {"methods": ["local", "fedavg", "fedegoists", "egomix"], "steps": 1000},
    },
    "banks": {
        "name": "banks",
        "data": {"source": "banks"},
        "competition": {"pairs": [["Alder", "Birch"], ["Cedar", "Elm"]]},
        "training": {"methods": ["local", "fedavg+ft", "fedegoists", "egomix"]},
    },
    "hospitals": {
        "name": "hospitals",
        "data": {"source": "heart"},
        "competition": {"pairs": [["cleveland", "va"]]},
    },
    "own": {
        "name": "my-consortium",
        "data": {"source": "my-data"},
        "competition": {"pairs": []},
        "training": {"methods": ["local", "fedavg+ft", "fedegoists", "egomix"]},
    },
    "trees": {
        "name": "clinics",
        "data": {"source": "clinics"},
        "competition": {"pairs": [["Aspen", "Beech"]]},
        "training": {
            "model": "trees",
            "model_settings": {"depth": 3},
            "methods": ["local", "bagging"],
        },
    },
}
"""The settings of each example; all others are written as comments."""

NOTES: dict[Example, dict[str, str]] = {
    "synthetic": {
        "data.source": "Eight participants, four with many samples and four with few.",
        "competition.published": "The eight pairs that the paper gives for this data.",
        "benefit.threshold": "A benefit counts where it saves more than a tenth of the loss. Ten "
        "validation samples, as four\nof the participants have here, are too few to be sure of "
        "anything.",
        "training.steps": "Half of the default, for a quick example.",
    },
    "banks": {
        "data.source": "One file for each bank; schema.toml describes them. Replace them by your "
        "own.",
    },
    "hospitals": {
        "data.source": "Four hospitals with patients who may have a heart disease. The files are "
        "not part of this package:\n`fedegoists data show heart` says where to get them and where "
        "to put them.",
    },
    "own": {
        "data.source": "A folder with one file for each organisation, and a schema.toml that "
        "describes them.",
    },
    "trees": {
        "data.source": "One file for each clinic; schema.toml describes them. Replace them by your "
        "own.",
    },
}


def init(folder: str | os.PathLike[str], example: Example = "synthetic") -> list[Path]:
    """Write a consortium.toml, and the files of the example banks; return the paths.

    Raises
    ------
    FileError
        If a file exists already; nothing is overwritten.
    """
    if example not in EXAMPLES:
        raise SettingsError(f"unknown example {example!r}; examples are {', '.join(EXAMPLES)}")
    folder = Path(folder)
    networks = {"training.model": f"Networks: {', '.join(MODELS)}."}
    text = commented_toml(GIVEN[example], NOTES[example] | networks)
    contents = [(folder / "consortium.toml", text.encode())]
    if example == "banks":
        contents.append((folder / "banks" / "schema.toml", SCHEMA.encode()))
        contents += [
            (folder / "banks" / f"{name}.csv", customers_csv(name).encode()) for name in BANKS
        ]
    if example == "trees":
        contents.append((folder / "clinics" / "schema.toml", CLINIC_SCHEMA.encode()))
        contents += [
            (folder / "clinics" / f"{name}.csv", patients_csv(name).encode()) for name in CLINICS
        ]
    for path, _ in contents:
        if path.exists():
            raise FileError(f"{path} is there already; nothing was written")
    write_all(contents, private=True)  # it names the competitors
    return [path for path, _ in contents]

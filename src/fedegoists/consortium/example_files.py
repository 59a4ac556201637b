"""Commented consortium files to start from."""

import os
from pathlib import Path
from typing import Literal, get_args

from fedegoists.consortium.example_banks import BANKS, SCHEMA, customers_csv
from fedegoists.consortium.example_notes import example_files
from fedegoists.consortium.toml_text import commented_toml
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import write_all
from fedegoists.learning.model_registry import MODELS

Example = Literal["synthetic", "banks", "hospitals", "text", "own"]
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
    "text": {
        "name": "text",
        "data": {"source": "notes"},
        "competition": {"pairs": [["Downtown", "Fairfield"]]},
        "benefit": {"repeats": 3, "threshold": 0.1, "steps": 150},
        "training": {
            "methods": ["local", "fedavg+ft", "egomix"],
            "model": "model.py:build",
            "seeds": 2,
            "steps": 200,
        },
    },
    "own": {
        "name": "my-consortium",
        "data": {"source": "my-data"},
        "competition": {"pairs": []},
        "training": {"methods": ["local", "fedavg+ft", "fedegoists", "egomix"]},
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
    "text": {
        "data.source": "One file for each emergency department, with the words of its notes as "
        "numbers; schema.toml\nand vocabulary.txt say which.",
        "training.model": "A small transformer that is frozen, with adapters that are trained and "
        "travel. Its weights were made\nby `fedegoists init`.",
        "benefit.threshold": "A benefit counts where it saves more than a tenth of the loss: 30 "
        "notes for validation are\ntoo few to be sure of anything.",
        "training.steps": "Few, for a quick example.",
    },
    "own": {
        "data.source": "A folder with one file for each organisation, and a schema.toml that "
        "describes them.",
    },
}


def init(folder: str | os.PathLike[str], example: Example = "synthetic") -> list[Path]:
    """Write a consortium.toml, and the files that belong to the example; return the paths.

    Raises
    ------
    FileError
        If a file exists already; nothing is overwritten.
    """
    if example not in EXAMPLES:
        raise SettingsError(f"unknown example {example!r}; examples are {', '.join(EXAMPLES)}")
    folder = Path(folder)
    notes = dict(NOTES[example])
    networks = f"Networks: {', '.join(MODELS)}."
    notes["training.model"] = "\n".join(filter(None, (notes.get("training.model"), networks)))
    text = commented_toml(GIVEN[example], notes)
    contents = [(folder / "consortium.toml", text.encode())]
    if example == "banks":
        contents.append((folder / "banks" / "schema.toml", SCHEMA.encode()))
        contents += [
            (folder / "banks" / f"{name}.csv", customers_csv(name).encode()) for name in BANKS
        ]
    if example == "text" and not contents[0][0].exists():
        contents += [(folder / name, own) for name, own in example_files().items()]
    for path, _ in contents:
        if path.exists():
            raise FileError(f"{path} is there already; nothing was written")
    write_all(contents, private=True)  # it names the competitors
    return [path for path, _ in contents]

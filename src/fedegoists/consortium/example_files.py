"""Commented consortium files to start from."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args

from fedegoists.consortium.example_banks import BANKS, SCHEMA, customers_csv
from fedegoists.consortium.example_clinics import clinic_files
from fedegoists.consortium.example_notes import note_files
from fedegoists.consortium.example_rare_disease import RIVALS, rare_disease_files
from fedegoists.consortium.example_registries import registry_files
from fedegoists.consortium.example_scans import scan_files
from fedegoists.consortium.toml_text import commented_toml
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import write_all
from fedegoists.learning.model_registry import MODELS

Example = Literal[
    "registries", "synthetic", "banks", "hospitals", "images", "survival", "text", "trees", "own"
]
EXAMPLES: tuple[Example, ...] = get_args(Example)

GIVEN: dict[Example, dict[str, object]] = {
    "registries": {
        "name": "registries",
        "data": {"source": "registries"},
        "competition": {"pairs": [list(RIVALS)]},
        "training": {"methods": ["local", "fedavg"], "everybody": True},
    },
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
    "images": {
        "name": "images",
        "data": {"source": "scans"},
        "competition": {"pairs": [["Harbour", "Ridge"]]},
        "benefit": {"estimator": "transfer", "repeats": 5, "steps": 300, "confidence": 0.7},
        "training": {
            "methods": ["local", "fedavg+ft", "egomix"],
            "model": "cnn",
            "model_settings": {"width": 8},
            "seeds": 2,
            "steps": 300,
        },
    },
    "survival": {
        "name": "survival",
        "data": {"source": "registries"},
        "competition": {"pairs": [["Coast", "Delta"]]},
        "training": {"methods": ["local", "fedavg+ft", "egomix"]},
    },
    "text": {
        "name": "text",
        "data": {"source": "notes"},
        "competition": {"pairs": [["Downtown", "Fairfield"]]},
        "benefit": {"repeats": 3, "threshold": 0.1},
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
    "registries": {
        "data.source": "Eight registries of a rare disease, one file each; schema.toml describes "
        "them. Replace them by your own.",
        "competition.pairs": "They compete for the same sponsors.",
        "training.everybody": "The usual federated learning, to compare with.",
    },
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
    "images": {
        "data.source": "One folder for each hospital, with one folder for each class; schema.toml "
        "describes them. Replace them\nby your own.",
        "benefit.estimator": "Faster than curves, which auto takes without benefit.confidence.",
        "benefit.confidence": "There are too few validation images to be as sure as usual. A "
        "threshold would not do here: networks\nthat know their few images by heart save loss by "
        "any mixture, also with a model that is of no use.",
        "benefit.steps": "Of local training, as long as in the comparison below.",
        "training.model_settings": "A small network, for a quick example.",
        "training.steps": "For a quick example.",
    },
    "survival": {
        "data.source": "One file for each registry, with times to death or to the last news; "
        "schema.toml describes them.\nReplace them by your own. The model auto is then cox, a Cox "
        "regression.",
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
    "trees": {
        "data.source": "One file for each clinic; schema.toml describes them. Replace them by your "
        "own.",
    },
}


def _bank_files() -> dict[str, bytes]:
    tables = {f"banks/{name}.csv": customers_csv(name).encode() for name in BANKS}
    return {"banks/schema.toml": SCHEMA.encode(), **tables}


FILES: dict[Example, Callable[[], Mapping[str, bytes]]] = {
    "registries": rare_disease_files,
    "banks": _bank_files,
    "images": scan_files,
    "survival": registry_files,
    "text": note_files,
    "trees": clinic_files,
}
"""For examples with made-up data: a function that returns its files, by path."""


def init(folder: str | os.PathLike[str], example: Example = "registries") -> list[Path]:
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
    if example in FILES and not contents[0][0].exists():
        contents += [(folder / path, content) for path, content in FILES[example]().items()]
    for path, _ in contents:
        if path.exists():
            raise FileError(f"{path} is there already; nothing was written")
    write_all(contents, private=True)  # it names the competitors
    return [path for path, _ in contents]

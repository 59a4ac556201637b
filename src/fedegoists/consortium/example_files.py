"""Commented consortium files to start from."""

import os
from pathlib import Path
from typing import Literal, get_args

from fedegoists.consortium.example_banks import BANKS, SCHEMA, customers_csv
from fedegoists.errors import FileError, SettingsError
from fedegoists.files import write_all
from fedegoists.learning.model_registry import MODELS

__all__ = ["EXAMPLES", "Example", "init"]

Example = Literal["synthetic", "banks", "hospitals", "own"]
EXAMPLES: tuple[Example, ...] = get_args(Example)

HEADS: dict[Example, str] = {
    "synthetic": """\
name = "synthetic" # results go to runs/synthetic

[data]
# A data set (`fedegoists data list`), or a folder with one file per organisation and a schema.toml.
source = "synthetic-weak" # eight participants, four with much data and four with little
seed = 0                  # divides everybody's samples into training, validation and test

[competition]
# Who competes with whom, as reported in confidence. Nothing of one ever reaches the other.
published = true           # the eight pairs that the paper gives for this data
# pairs = [["v1", "v5"]]   # instead: pairs of your own
# file = "competition.csv" # instead: a CSV with a,b
""",
    "banks": """\
name = "banks" # results go to runs/banks

[data]
# One file for each bank; schema.toml says what is in them. Replace them by your own.
source = "banks"
seed = 0 # divides everybody's rows into training, validation and test

[competition]
# Who competes with whom, as reported in confidence. Nothing of one ever reaches the other.
pairs = [["Alder", "Birch"], ["Cedar", "Elm"]]
# file = "competition.csv" # instead: a CSV with a,b
""",
    "own": """\
name = "my-consortium" # results go to runs/my-consortium

[data]
# A folder with one file for each organisation, and a schema.toml that says what is in them.
source = "my-data"
seed = 0 # divides everybody's rows into training, validation and test

[competition]
# Who competes with whom, as reported in confidence. Nothing of one ever reaches the other.
pairs = []                 # such as [["North", "West"], ["North", "East"]]
# file = "competition.csv" # instead: a CSV with a,b
""",
    "hospitals": """\
name = "hospitals" # results go to runs/hospitals

[data]
# Four hospitals with patients who may have a heart disease. The files are not part of this package:
# `fedegoists data show heart` says where to get them and where to put them.
source = "heart"
seed = 0 # divides everybody's patients into training, validation and test
# folder = "data" # where real data is; or set FEDEGOISTS_DATA

[competition]
# Who competes with whom, as reported in confidence. Nothing of one ever reaches the other.
pairs = [["cleveland", "va"]]
# file = "competition.csv" # instead: a CSV with a,b
""",
}

TAIL = """\

[benefit]
# Who benefits whom is learned from models, losses and gradients; no data leaves a silo.
estimator = "auto" # or transfer, hypernetwork, pairs, alignment; or file, with file = "benefit.csv"
# estimator = "everybody" # instead: nothing is learned, and only competition keeps them apart
{rule}
# repeats = 5      # independent runs, which show how sure a weight is
# clip = 1.0       # for hypernetwork: shorten every sample's gradient before it leaves …
# noise = 1.0      # … and add noise: differential privacy

[formation]
method = "best" # the highest total benefit; or stable, published, cliques
# time_limit = 1.0 # seconds

[training]
# `fedegoists methods` lists all; +ft tunes models on own data; local is the yardstick.
methods = {methods}
# model = "auto" # the network; auto suits the data, or {models}
seeds = 3       # trials with other initial models and batches
{steps}
# personal = ["output."] # parameters that never leave a silo
device = "cpu"  # or cuda

# [training.settings.fedprox] # settings of a method
# mu = 0.1

[output]
folder = "runs"

# [deploy]                 # only for silos at their organisations: fedegoists deploy init
# host = "localhost"       # the coordinator's name in the network
# port = 8002
# participants = []        # the organisations, where no data of theirs is here
# schema_file = "schema.toml"
# days = 365               # how long certificates are valid
# deadline = 600           # seconds a silo has for an answer
# wait = 60                # seconds to wait for silos at the start
"""

CONFIDENCE = """\
confidence = 0.95  # an edge counts where the benefit is above zero with this confidence
# threshold = 0.1  # instead: an edge counts where its weight is above this"""
THRESHOLD = """\
# An edge counts where somebody saves more than a tenth of its loss. Ten validation samples, as four
# of the participants have here, are too few to be sure of anything.
threshold = 0.1
# confidence = 0.95 # instead: where the benefit is above zero with this confidence"""
RULES: dict[Example, str] = {
    "synthetic": THRESHOLD,
    "banks": CONFIDENCE,
    "hospitals": CONFIDENCE,
    "own": CONFIDENCE,
}
"""When a benefit counts, by example."""

STEPS = "# steps = 2000  # training steps; a default that suits the data"
FEWER_STEPS = "steps = 1000    # training steps; half as many as by default, for a quick example"
METHODS: dict[Example, str] = {
    "synthetic": '["local", "fedavg", "fedegoists", "egomix"]',
    "banks": '["local", "fedavg+ft", "fedegoists", "egomix"]',
    "hospitals": '["local", "fedavg+ft", "fedegoists"]',
    "own": '["local", "fedavg+ft", "fedegoists", "egomix"]',
}


def init(folder: str | os.PathLike[str], example: Example = "synthetic") -> list[Path]:
    """Write a consortium.toml, and data of one's own for the banks; return what was written.

    Raises
    ------
    FileError
        If there is a file already; nothing is overwritten.
    """
    if example not in EXAMPLES:
        raise SettingsError(f"unknown example {example!r}; examples are {', '.join(EXAMPLES)}")
    folder = Path(folder)
    text = HEADS[example] + TAIL.format(
        rule=RULES[example],
        methods=METHODS[example],
        models=", ".join(MODELS),
        steps=FEWER_STEPS if example == "synthetic" else STEPS,
    )
    contents = [(folder / "consortium.toml", text.encode())]
    if example == "banks":
        contents.append((folder / "banks" / "schema.toml", SCHEMA.encode()))
        contents += [
            (folder / "banks" / f"{name}.csv", customers_csv(name).encode()) for name in BANKS
        ]
    for path, _ in contents:
        if path.exists():
            raise FileError(f"{path} is there already; nothing was written")
    write_all(contents, private=True)  # who competes is nobody else's business
    return [path for path, _ in contents]

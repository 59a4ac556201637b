"""The matrix of models, methods and engines: its rows, and the silos that they are trained on.

To add a kind of model, add a `MatrixRow`; `tests/flare/test_model_matrix.py` then trains it with
every method, one silo at a time, at once, and over signed calls to silos with kits of their own.
"""

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets.dataset_registry import DatasetEntry, DatasetOptions
from tests.own_modules import own_silos

METHODS_IN_MATRIX = ("local", "fedavg", "scaffold", "egomix", "fedegoists")

CODE = """\
from tests.own_modules import MODULES

def mlp():
    return MODULES["batch norm"]()

def residual():
    return MODULES["residual"]()

def averaged():
    return {"model": MODULES["residual"](), "statistics": "averaged"}

def lstm():
    return MODULES["lstm"]()

def two_inputs():
    return MODULES["two inputs"]()

def adapter():
    return MODULES["adapter"]()
"""
"""The file of own models, in the kits and beside the coordinator's consortium.toml."""
FILE = "models.py"


@dataclass(frozen=True)
class MatrixRow:
    """A kind of model.

    Attributes
    ----------
    name : str
        What it is.
    data : str
        The data set it is trained on, a key of `DATA`.
    model : str
        As in a consortium.toml: a name, or a function of `FILE`.
    not_stacked : str
        Words of the reason why silos cannot be stacked; empty if they can.
    refused : dict of str to str
        Methods that cannot train it, with words of the reason.
    """

    name: str
    data: str
    model: str
    not_stacked: str = ""
    refused: dict[str, str] = field(default_factory=dict)

    def model_in(self, folder: Path) -> str:
        """Return the model's name where `FILE` is in a folder."""
        return f"{folder / FILE}{self.model}" if self.model.startswith(":") else self.model


GRADIENTS = "statistics have no gradient"

ROWS = (
    MatrixRow("logistic regression", "table", "logistic"),
    MatrixRow("Cox regression", "survival", "cox"),
    MatrixRow("MLP with dropout and batch norm", "table", ":mlp"),
    MatrixRow("residual network with batch norm", "images", ":residual"),
    MatrixRow("averaged batch statistics", "images", ":averaged",
              refused={"fedegoists": GRADIENTS}),
    MatrixRow("CNN with group norm", "images", "cnn(layers=2, width=4)"),
    MatrixRow("LSTM", "steps", ":lstm", not_stacked="random numbers"),
    MatrixRow("two inputs", "steps", ":two_inputs"),
    MatrixRow("frozen backbone with adapter", "table", ":adapter"),
)  # fmt: skip


class MatrixOptions(DatasetOptions):
    """None."""


@functools.cache
def _load(kind: str) -> SiloedData:
    data = own_silos({"images": "residual", "steps": "lstm"}.get(kind, "linear"), (70, 50, 90))
    if kind != "survival":
        return data
    rng = np.random.default_rng(1)
    risk = data.samples.inputs[0][:, 0]
    times = rng.exponential(np.exp(-0.5 * risk)).astype(np.float32) + 0.01
    targets = np.where(rng.random(len(times)) < 0.7, times, -times)
    samples = replace(data.samples, targets=targets)
    return replace(data, task="survival", samples=samples, classes=None)


def load_table(options, *, data_dir, seed):
    return _load("table")


def load_survival(options, *, data_dir, seed):
    return _load("survival")


def load_images(options, *, data_dir, seed):
    return _load("images")


def load_steps(options, *, data_dir, seed):
    return _load("steps")


DATA = {
    kind: DatasetEntry(
        f"matrix-{kind}", "for a test", task, "", "", __name__, "MatrixOptions", f"load_{kind}"
    )
    for kind, task in (
        ("table", "classification"),
        ("survival", "survival"),
        ("images", "classification"),
        ("steps", "classification"),
    )
}

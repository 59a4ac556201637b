"""The matrix of models, methods and engines: its rows, and the silos that they are trained on.

To add a kind of model, add a `MatrixRow`; `tests/flare/test_model_matrix.py` then trains it with
every method, one silo at a time, at once, and over signed calls to silos with kits of their own.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets.dataset_registry import DatasetEntry, DatasetOptions
from tests.docs.pages import HowTo
from tests.own_modules import own_silos

METHODS_IN_MATRIX = ("local", "fedavg", "scaffold", "egomix", "fedegoists", "bagging")

FILE, CLASSIFIER = "models.py", "classifier.py"
CODE = {
    FILE: """\
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
""",
    CLASSIFIER: HowTo("how-to-own-model").block_with("SGDClassifier"),
}
"""The files of own models, in the kits and beside the coordinator's consortium.toml."""


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
        As in a consortium.toml: a name, or a function of a file, which is `FILE` if left out.
    not_stacked : str
        Words of the reason why silos cannot be stacked; empty if they can.
    refused : dict of str to str
        Methods that cannot train it, with words of the reason.
    needs : str
        The package without which it cannot be trained.
    """

    name: str
    data: str
    model: str
    not_stacked: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    needs: str = "torch"

    def model_in(self, folder: Path) -> str:
        """Return the model's name where the files are in a folder."""
        file, colon, function = self.model.partition(":")
        return f"{folder / (file or FILE)}:{function}" if colon else self.model


GRADIENTS = "statistics have no gradient"
OWN_FIT = "trained by its own function fit"
NO_MEANS = "it averages parameters or follows gradients, and boosted trees have neither"
NO_TREES = "bagging joins boosted trees, and this model is another"


def _refused(reason: str, *methods: str) -> dict[str, str]:
    return dict.fromkeys(methods, reason)


NETWORKS = (
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
    MatrixRow("scikit-learn", "yes or no", f"{CLASSIFIER}:build", "only PyTorch modules",
              _refused(OWN_FIT, "scaffold", "fedegoists"), "sklearn"),
)  # fmt: skip
TREES = MatrixRow(
    "boosted trees",
    "yes or no",
    "trees(members=3, trees=8, depth=2)",
    "only PyTorch modules",
    _refused(NO_MEANS, "fedavg", "scaffold", "egomix", "fedegoists"),
    "lightgbm",
)
ROWS: Sequence[MatrixRow] = (
    *(replace(row, refused={**row.refused, "bagging": NO_TREES}) for row in NETWORKS),
    TREES,
)


class MatrixOptions(DatasetOptions):
    """None."""


@functools.cache
def _load(kind: str) -> SiloedData:
    data = own_silos({"images": "residual", "steps": "lstm"}.get(kind, "linear"), (70, 50, 90))
    if kind == "yes or no":
        first, second, *_ = data.samples.inputs[0].T
        targets = (first > second).astype(np.int64)
        samples = replace(data.samples, targets=targets)
        return replace(data, task="binary", samples=samples, classes=2)
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


def load_yes_or_no(options, *, data_dir, seed):
    return _load("yes or no")


def load_survival(options, *, data_dir, seed):
    return _load("survival")


def load_images(options, *, data_dir, seed):
    return _load("images")


def load_steps(options, *, data_dir, seed):
    return _load("steps")


DATA = {
    kind: DatasetEntry(
        f"matrix-{kind.replace(' ', '-')}",
        "for a test",
        task,
        "",
        "",
        __name__,
        "MatrixOptions",
        f"load_{kind.replace(' ', '_')}",
    )
    for kind, task in (
        ("table", "classification"),
        ("yes or no", "binary"),
        ("survival", "survival"),
        ("images", "classification"),
        ("steps", "classification"),
    )
}

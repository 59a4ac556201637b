"""Registry of the networks: which data each one suits, and where its code is. Needs no PyTorch.

To add a network, write a module with a `torch.nn.Module` whose only state is its parameters, and
add one `ModelEntry` to `MODELS`. Its name can then be used in a ``consortium.toml`` and a
``silo.toml``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Literal, Protocol

from fedegoists.errors import SettingsError
from fedegoists.learning.data import TaskName

if TYPE_CHECKING:
    from torch import nn

AUTO = "auto"
"""Stands for the first network of the registry that suits the data."""
OUTPUT_LAYER = "output."
"""Prefix of the names of the output layer's parameters, unless an entry says otherwise."""

InputKind = Literal["table", "hourly", "images"]
INPUT_SHAPES: dict[InputKind, tuple[tuple[int | None, ...], ...]] = {
    "table": ((None,),),
    "hourly": ((None, None), (None,)),
    "images": ((32, 32, 3),),
}
"""The shape of one sample in each input array: features; hours × features, and static features;
rows × columns × colours. None stands for any number."""
Shapes = Sequence[Sequence[int | None]] | Sequence[Sequence[int]]


class DataShape(Protocol):
    """The facts about a data set that decide which network suits it."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def task(self) -> TaskName: ...  # noqa: D102
    @property
    def classes(self) -> int | None: ...  # noqa: D102
    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        """The shape of one sample in each input array."""


def _table_options(data: DataShape) -> dict[str, int]:
    outputs = data.classes if data.task == "classification" else None
    return {"features": data.shapes[0][0], "outputs": outputs or 1}


def _hourly_options(data: DataShape) -> dict[str, int]:
    (hours, features), (static,) = data.shapes
    outputs = {"outputs": data.classes or 1} if data.task == "classification" else {}
    return {"hourly": features, "static": static, "hours": hours, **outputs}


@dataclass(frozen=True)
class ModelEntry:
    """A network with the facts that a user can know without PyTorch.

    Attributes
    ----------
    name, summary : str
        Its name in a ``consortium.toml``, and one line about it.
    inputs : {"table", "hourly", "images"}
        The kind of inputs it takes, see `INPUT_SHAPES`.
    network : str
        Import path of its class or function, ``module:name``; imported when a network is built.
    options : function
        Returns the arguments of `network` that follow from the data.
    most_classes : int, optional
        Its number of outputs where that is fixed: it then suits only classifications with at most
        as many classes.
    output_layer : str
        Prefix of the names of the output layer's parameters.
    """

    name: str
    summary: str
    inputs: InputKind
    network: str
    options: Callable[[DataShape], dict[str, int]] = lambda _: {}
    most_classes: int | None = None
    output_layer: str = OUTPUT_LAYER

    def misfit(self, data: DataShape) -> str:
        """Return why this network cannot be trained on some data; empty if it can."""
        if not _alike(INPUT_SHAPES[self.inputs], data.shapes):
            return f"it takes {_shown(INPUT_SHAPES[self.inputs])}, not {_shown(data.shapes)}"
        if self.most_classes is not None and data.task != "classification":
            return f"it is for classifications, not for a task of the kind {data.task}"
        if self.most_classes is not None and (data.classes or 0) > self.most_classes:
            return f"it has {self.most_classes} outputs for {data.classes} classes"
        return ""

    def build(self, **options: int) -> "nn.Module":
        """Return a new network; its parameters are drawn from PyTorch's global generator."""
        module, _, name = self.network.partition(":")
        network: nn.Module = getattr(import_module(module), name)(**options)
        return network


_HERE = "fedegoists.learning.models"
MODELS: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry(
            "mlp", "one hidden layer of 100 units", "table", f"{_HERE}:TabularMLP", _table_options
        ),
        ModelEntry(
            "cifar10-cnn",
            "the paper's convolutional network for CIFAR-10",
            "images",
            f"{_HERE}:cifar10_cnn",
            most_classes=10,
        ),
        ModelEntry(
            "cifar100-cnn",
            "the paper's convolutional network for CIFAR-100, with rectifiers",
            "images",
            f"{_HERE}:cifar100_cnn",
            most_classes=100,
        ),
        ModelEntry(
            "icu-transformer",
            "a two-layer transformer over hourly measurements",
            "hourly",
            f"{_HERE}:IcuTransformer",
            _hourly_options,
        ),
    )
}
"""All networks by name; `AUTO` takes the first that suits the data."""


def model_named(name: str) -> ModelEntry:
    """Return the entry of a network."""
    if name not in MODELS:
        raise SettingsError(f"unknown model {name!r}; models are {', '.join(MODELS)}")
    return MODELS[name]


def model_for(data: DataShape, name: str = AUTO) -> ModelEntry:
    """Return the network to train on some data: the one named, or the first that suits the data.

    Raises
    ------
    SettingsError
        If there is no such network, or it does not suit the data.
    """
    entries = tuple(MODELS.values()) if name == AUTO else (model_named(name),)
    misfits = {entry.name: entry.misfit(data) for entry in entries}
    for entry in entries:
        if not misfits[entry.name]:
            return entry
    subject = "no model suits" if name == AUTO else f"the model {name!r} does not suit"
    reasons = "; ".join(f"{model}: {reason}" for model, reason in misfits.items())
    fitting = [entry.name for entry in MODELS.values() if not entry.misfit(data)]
    raise SettingsError(
        f"{subject} the data set {data.name!r} ({reasons}); models that do: "
        f"{', '.join(fitting) or 'none'}"
    )


def model_options(data: DataShape, name: str = AUTO) -> dict[str, int]:
    """Return the arguments of a network that follow from the data.

    Examples
    --------
    >>> from fedegoists.learning.datasets import load
    >>> model_options(load("synthetic-weak"))
    {'features': 20, 'outputs': 1}
    """
    return model_for(data, name).options(data)


def _alike(expected: Shapes, shapes: Shapes) -> bool:
    """Return whether shapes agree; None in an expected one stands for any number."""
    return list(map(len, expected)) == list(map(len, shapes)) and all(
        wanted in (None, given)
        for wanted, given in zip(chain(*expected), chain(*shapes), strict=True)
    )


def _shown(shapes: Shapes) -> str:
    texts = [f"({', '.join('…' if n is None else str(n) for n in shape)})" for shape in shapes]
    return f"samples of the shape {' and '.join(texts)}"

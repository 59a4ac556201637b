"""Registry of the networks: which data each one suits, and where its code is. Needs no PyTorch.

To add a network, write a `torch.nn.Module` and add one `ModelEntry` to `MODELS`. Its name can then
be used in a ``consortium.toml`` and a ``silo.toml``. Settings of a network are part of the text
that names it, as in ``mlp(hidden=200)``.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from fedegoists.errors import SettingsError, shown
from fedegoists.learning.data import SplitSizes, TaskName

if TYPE_CHECKING:
    from torch import nn

AUTO = "auto"
"""Stands for the first network of the registry that suits the data."""
OUTPUT_LAYER = "output."
"""Prefix of the names of the output layer's parameters, unless an entry says otherwise."""
OUTPUT_BIAS = f"{OUTPUT_LAYER}bias"
"""Name of the output layer's bias."""

InputKind = Literal["table", "hourly", "images"]
INPUT_SHAPES: dict[InputKind, tuple[tuple[int | None, ...], ...]] = {
    "table": ((None,),),
    "hourly": ((None, None), (None,)),
    "images": ((32, 32, 3),),
}
"""The shape of one sample in each input array: features; hours × features, and static features;
rows × columns × colours. None stands for any number."""
ANY_IMAGES: tuple[tuple[int | None, ...], ...] = ((None, None, None),)
Recipe = Literal["table", "linear", "trees", "hourly", "images"]
"""The kinds of training settings, see `fedegoists.training.defaults.SCHEDULES`."""
ModelKind = Literal["network", "arrays", "trees"]
"""A PyTorch module; a model on NumPy arrays, trained by a function of its own; boosted trees."""
Value = str | int | float | bool
SPEC = re.compile(r"([A-Za-z0-9_.-]+)\((.*)\)")
"""A network with settings: ``mlp(hidden=200)``."""
OWN = re.compile(r".+\.py:.*")
"""A function in a file: ``model.py:build``."""
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


class SizedData(DataShape, Protocol):
    """The same, with the participants' numbers of samples."""

    @property
    def sizes(self) -> Mapping[str, SplitSizes]: ...  # noqa: D102


def _table_options(data: DataShape) -> dict[str, Value]:
    outputs = data.classes if data.task == "classification" else None
    return {"features": data.shapes[0][0], "outputs": outputs or 1}


def _cox_options(data: DataShape) -> dict[str, Value]:
    return {"features": data.shapes[0][0]}


def _image_options(data: DataShape) -> dict[str, Value]:
    outputs = data.classes if data.task == "classification" else None
    return {"channels": data.shapes[0][-1], "outputs": outputs or 1}


def _class_options(data: DataShape) -> dict[str, Value]:
    return {"outputs": data.classes or 1}


def _hourly_options(data: DataShape) -> dict[str, Value]:
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
        Prefix of the names of the output layer's parameters; empty if there is nothing but it.
    tasks : tuple of str
        The kinds of tasks it is for; all if left out.
    shapes : tuple, optional
        The shapes of its inputs, where they are not those of `inputs`.
    recipe : str, optional
        The kind of training settings that suits it, where it is not that of `inputs`.
    tunable : mapping of str to number
        The settings that a user can change, with their defaults.
    given : mapping of str to number
        The settings that a user has changed.
    kind : {"network", "arrays", "trees"}
        How it is trained, which decides about the methods that suit it.
    """

    name: str
    summary: str
    inputs: InputKind
    network: str
    options: Callable[[DataShape], dict[str, Value]] = lambda _: {}
    most_classes: int | None = None
    output_layer: str = OUTPUT_LAYER
    tasks: tuple[TaskName, ...] = ()
    shapes: tuple[tuple[int | None, ...], ...] | None = None
    recipe: Recipe | None = None
    tunable: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    given: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    kind: ModelKind = "network"

    @property
    def base(self) -> str:
        """The name without settings."""
        return self.name.partition("(")[0]

    def set_to(self, given: Mapping[str, Value]) -> "ModelEntry":
        """Return the network with some settings, which are then part of its name.

        Examples
        --------
        >>> MODELS["mlp"].set_to({"hidden": 200}).name
        'mlp(hidden=200)'

        Raises
        ------
        SettingsError
            If it has no such setting, or the value does not fit.
        """
        if not given:
            return self
        for key, value in given.items():
            if key not in self.tunable:
                known = ", ".join(self.tunable) or "none"
                raise SettingsError(f"{self.base} has no setting {shown(key)}; it has {known}")
            kind = type(self.tunable[key])
            fits = isinstance(value, (int, float) if kind is float else kind)
            if not fits or isinstance(value, bool) != (kind is bool):
                kinds = {int: "a whole number", float: "a number", bool: "true or false"}
                raise SettingsError(
                    f"{self.base}: {key} is {shown(value)}; expected {kinds.get(kind, 'a text')}"
                )
            least = 0 if kind is float else 1
            if kind in (int, float) and not least <= float(value) <= 100_000:
                raise SettingsError(f"{self.base}: {key} is {value}; expected {least} to 100000")
        changed = {**self.given, **given}
        text = ", ".join(f"{key}={changed[key]!r}" for key in sorted(changed))
        return replace(self, name=f"{self.base}({text})", given=MappingProxyType(changed))

    def misfit(self, data: DataShape) -> str:
        """Return why this network cannot be trained on some data; empty if it can."""
        expected = INPUT_SHAPES[self.inputs] if self.shapes is None else self.shapes
        if not _alike(expected, data.shapes):
            return f"it takes {_shown(expected)}, not {_shown(data.shapes)}"
        if self.tasks and data.task not in self.tasks:
            return f"it is for tasks of the kind {' or '.join(self.tasks)}, not {data.task}"
        if self.most_classes is not None and data.task != "classification":
            return f"it is for classifications, not for a task of the kind {data.task}"
        if self.most_classes is not None and (data.classes or 0) > self.most_classes:
            return f"it has {self.most_classes} outputs for {data.classes} classes"
        return ""

    def build(self, **options: Value) -> "nn.Module":
        """Return a new network; its parameters are drawn from PyTorch's global generator."""
        module, _, name = self.network.partition(":")
        network: nn.Module = getattr(import_module(module), name)(**options)
        return network


_HERE = "fedegoists.learning.models"
_MORE = "fedegoists.learning.named_networks"
MODELS: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry(
            "mlp",
            "one hidden layer of 100 units",
            "table",
            f"{_HERE}:TabularMLP",
            _table_options,
            tunable={"hidden": 100},
        ),
        ModelEntry(
            "logistic",
            "logistic regression with weight decay",
            "table",
            f"{_MORE}:LinearModel",
            _table_options,
            output_layer="",
            tasks=("binary", "classification"),
            recipe="linear",
        ),
        ModelEntry(
            "linear",
            "linear regression with weight decay",
            "table",
            f"{_MORE}:LinearModel",
            _table_options,
            output_layer="",
            tasks=("regression",),
            recipe="linear",
        ),
        ModelEntry(
            "cox",
            "Cox regression with weight decay: a linear model of the logarithm of the risk",
            "table",
            f"{_MORE}:CoxModel",
            _cox_options,
            output_layer="",
            tasks=("survival",),
            recipe="linear",
        ),
        ModelEntry(
            "trees",
            "boosted trees (LightGBM), for the methods local and bagging",
            "table",
            "fedegoists.learning.forest:Forest",
            _table_options,
            output_layer="",
            recipe="trees",
            tunable={"members": 8, "trees": 200, "depth": 3, "caution": 1.0, "least": 10},
            kind="trees",
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
            "pfllib-cnn",
            "the convolutional network of PFLlib's benchmark for CIFAR",
            "images",
            f"{_HERE}:PFLlibCNN",
            _class_options,
            tasks=("classification",),
        ),
        ModelEntry(
            "icu-transformer",
            "a two-layer transformer over hourly measurements",
            "hourly",
            f"{_HERE}:IcuTransformer",
            _hourly_options,
        ),
        ModelEntry(
            "transformer",
            "a transformer over time steps, with one more token for static features",
            "hourly",
            f"{_HERE}:IcuTransformer",
            _hourly_options,
            tunable={"width": 128, "heads": 8, "layers": 2},
        ),
        ModelEntry(
            "lstm",
            "a long short-term memory over time steps, beside static features",
            "hourly",
            f"{_MORE}:SequenceLSTM",
            _hourly_options,
            tunable={"width": 64, "layers": 1, "dropout": 0.0},
        ),
        ModelEntry(
            "cnn",
            "convolutions with group normalisation, for images of any size",
            "images",
            f"{_MORE}:ImageCNN",
            _image_options,
            shapes=ANY_IMAGES,
            tunable={"width": 16, "layers": 3},
        ),
        ModelEntry(
            "resnet",
            "a small residual network with batch normalisation, for images of any size",
            "images",
            f"{_MORE}:SmallResNet",
            _image_options,
            shapes=ANY_IMAGES,
            tunable={"width": 16, "blocks": 1},
        ),
    )
}
"""All networks by name; `AUTO` takes the first that suits the data."""


def model_named(name: str) -> ModelEntry:
    """Return the entry of a network, with its settings.

    Examples
    --------
    >>> model_named("mlp(hidden=200)").given["hidden"]
    200
    """
    if OWN.fullmatch(name):
        from fedegoists.learning.own_models import own_entry

        return own_entry(name)
    spec = SPEC.fullmatch(name)
    base, given = (name, {}) if spec is None else (spec[1], _settings_in(spec[2], name))
    if base not in MODELS:
        raise SettingsError(
            f"unknown model {base!r}; models are {', '.join(MODELS)}, or a function in a file such "
            "as model.py:build"
        )
    return MODELS[base].set_to(given)


def _settings_in(text: str, name: str) -> dict[str, Value]:
    """Return the settings in the text that names a network; values are literals."""
    given: dict[str, Value] = {}
    for part in text.split(",") if text.strip() else ():
        key, equals, value = part.partition("=")
        try:
            given[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            equals = ""
        if not equals:
            raise SettingsError(f"{shown(name)} is no model; expected such as mlp(hidden=200)")
    return given


def suggested_model(data: SizedData) -> ModelEntry:
    """Return the network for data of which nothing else is known; `model_reason` says why."""
    entry = model_for(data)
    if not _few_rows(data, entry):
        return entry
    linear = (one for one in MODELS.values() if one.recipe == "linear" and not one.misfit(data))
    return next(linear)


def model_reason(data: SizedData) -> str:
    """Return why `suggested_model` suggests its network."""
    if _few_rows(data, model_for(data)):
        return (
            f"{middle_rows(data)} training rows at the participant in the middle; below "
            f"{FEW_ROWS}, a linear model with weight decay is hard to beat"
        )
    return f"the first one for {_shown(data.shapes)}"


def middle_rows(data: SizedData) -> int:
    """Return the training samples of the participant in the middle."""
    rows = sorted(sizes.train for sizes in data.sizes.values())
    return rows[len(rows) // 2]


def _few_rows(data: SizedData, entry: ModelEntry) -> bool:
    # The paper's synthetic data is made for a network.
    table = entry.inputs == "table" and not data.name.startswith("synthetic")
    return table and middle_rows(data) < FEW_ROWS


FEW_ROWS = 1000
"""With fewer training rows at a participant, a network rarely beats a linear model."""


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


def model_options(data: DataShape, name: str = AUTO) -> dict[str, Value]:
    """Return the arguments of a network: those that follow from the data, and its settings.

    Examples
    --------
    >>> from fedegoists.learning.datasets import load
    >>> model_options(load("synthetic-weak"))
    {'features': 20, 'outputs': 1}
    """
    entry = model_for(data, name)
    return {**entry.options(data), **entry.given}


def _alike(expected: Shapes, shapes: Shapes) -> bool:
    """Return whether shapes agree; None in an expected one stands for any number."""
    return list(map(len, expected)) == list(map(len, shapes)) and all(
        wanted in (None, given)
        for wanted, given in zip(chain(*expected), chain(*shapes), strict=True)
    )


def _shown(shapes: Shapes) -> str:
    texts = [f"({', '.join('…' if n is None else str(n) for n in shape)})" for shape in shapes]
    return f"samples of the shape {' and '.join(texts)}"

"""Models from a user's own file: ``model = "model.py:build"`` beside a ``consortium.toml``.

The function takes a description of the data and returns a `torch.nn.Module`, an `ArrayModel`, a
`fedegoists.federation.trainer.Trainer`, or a dictionary with one of them and what belongs to it.
The file is code that runs with all rights of its user: it is
never sent, and a deployed silo runs it only after its operator has approved it.
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from fedegoists.errors import SettingsError, shown
from fedegoists.learning.model_registry import (
    OWN,
    DataShape,
    ModelEntry,
    ModelKind,
    Value,
    model_for,
    model_options,
)
from fedegoists.learning.pretrained_weights import checked_name, load_weights, weights_digest

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedegoists.learning.parameters import ParameterSchema
    from fedegoists.learning.task import Task

Result = TypeVar("Result")

PARTS = ("model", "loss", "metrics", "optimiser", "augment", "weights", "statistics")
"""What a function may return in a dictionary."""
WEIGHTS, WEIGHTS_HASH = "weights", "weights_sha256"
"""Options of a model: its file of pre-trained weights, and the hash of this file."""
TRAINER_PARTS = ("schema", "train", "gradients", "evaluate", "outputs", "state", "initial")
"""What a trainer of a user's own has, besides ``task``."""


class OwnTrainerError(SettingsError):
    """A model that only a user's own trainer can use."""


@dataclass(frozen=True)
class ModelParts:
    """A module, with its task, its augmentation and its settings of training.

    Attributes
    ----------
    module : torch.nn.Module or Trainer
        The network, or a user's own trainer.
    task : Task
        Its loss and metric.
    augment : function, optional
        Changes a batch of training inputs at random.
    settings : mapping
        Settings of training that the model asks for, see `TrainSettings`.
    start : function, optional
        Returns the initial tensors of the model for a seed, where these are the model's own
        business: its file may set them, or read them from pre-trained weights.
    averaged : bool
        Whether batch statistics travel and are averaged as parameters are; by default they stay at
        home.
    """

    module: Any
    task: "Task"
    augment: Callable[..., Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    start: "Callable[[int], Mapping[str, Tensor]] | None" = None
    averaged: bool = False
    kind: ModelKind = "network"

    @property
    def schema(self) -> "ParameterSchema":
        """What travels of the module, or the parameters of a user's own trainer."""
        from fedegoists.learning.network import normalisation_statistics
        from fedegoists.learning.parameters import ParameterSchema

        if is_trainer(self.module):
            schema: ParameterSchema = self.module.schema
            return replace(schema, start=self._initial)
        names = normalisation_statistics(self.module) if self.averaged else ()
        # Trees and models on arrays know where they start; other modules are drawn.
        start = self.start or getattr(self.module, "starting", None)
        return ParameterSchema.of(self.module, statistics=names, start=start)

    def _initial(self, seed: int) -> "Mapping[str, Tensor]":
        """Return the initial parameters of a user's own trainer by name."""
        import torch

        vector = torch.as_tensor(self.module.initial(seed), dtype=torch.float32)
        named: Mapping[str, Tensor] = self.module.schema.unflatten(vector)
        return named


@dataclass(frozen=True)
class OwnModelEntry(ModelEntry):
    """A model of a user's own file; see `ModelEntry`.

    Attributes
    ----------
    path : Path
        The file.
    function : str
        The function in it.
    """

    path: Path = Path()
    function: str = ""

    @property
    def digest(self) -> str:
        """The hash of the file, which is part of a consortium's description."""
        return file_digest(self.path)

    def misfit(self, data: DataShape) -> str:  # noqa: ARG002 - the function sees the data
        """Return nothing: whether a model fits is found out by trying it on samples."""
        return ""

    def build(self, **options: Value) -> "nn.Module":
        """Return a new network; its parameters are drawn from PyTorch's global generator.

        Raises
        ------
        OwnTrainerError
            If the function returns a trainer, which has no module.
        """
        from torch import nn

        module = self.returned(**options)["model"]
        if not isinstance(module, nn.Module):
            raise OwnTrainerError(
                f"{self.path.name}:{self.function} is a trainer of its own: only its code knows "
                "how to predict; load the parameters from the safetensors file there"
            )
        return module

    def returned(self, **options: Value) -> dict[str, Any]:
        """Return the model, with its weights, and what belongs to it, as the function returns them.

        Raises
        ------
        SettingsError
            If the file or the function fails, or returns something else; or if the weights do not
            fit.
        """
        if options.get("code", self.digest) != self.digest:
            raise SettingsError(
                f"{self.path} has changed since this model was made; put back the file with the "
                f"SHA-256 {options['code']}"
            )
        parts = _called(self.path, self.function, options)
        if WEIGHTS in parts:
            path = self.path.parent / parts[WEIGHTS]
            digest = weights_digest(path)
            if options.get(WEIGHTS_HASH, digest) != digest:
                raise SettingsError(
                    f"{path} has changed since this model was made; put back the file with the "
                    f"SHA-256 {options[WEIGHTS_HASH]}"
                )
            load_weights(parts["model"], path)
        return parts


def _called(path: Path, name: str, options: Mapping[str, Value]) -> dict[str, Any]:
    """Call a function of a file; return the parts of the model that it makes, after a check."""
    import torch
    from torch import nn

    from fedegoists.learning.array_models import ArrayModel, ArrayNetwork

    function = function_in(path, name)
    shapes = [tuple(shape) for shape in json.loads(str(options.get("shapes", "[]")))]
    data = SimpleNamespace(
        task=options.get("task"), classes=options.get("classes") or None, shapes=shapes
    )
    where = f"{path.name}:{name}"
    takes_data = _attempted(lambda: len(inspect.signature(function).parameters), where)
    given = _attempted(lambda: function(data) if takes_data else function(), where)
    parts = dict(given) if isinstance(given, Mapping) else {"model": given}
    model = parts.get("model")
    module = isinstance(model, nn.Module)
    if isinstance(model, ArrayModel):
        seed = int(torch.randint(2**31, ()))
        parts["model"] = _attempted(lambda: ArrayNetwork(model, seed), where)
    elif not module and not is_trainer(model):
        raise SettingsError(
            f"{where} returned a {type(given).__name__}; expected a torch.nn.Module, an "
            f"ArrayModel, a Trainer, or a dictionary with the keys {', '.join(PARTS)}, of which "
            "only model must be there"
        )
    unknown = [key for key in parts if key not in PARTS]
    if unknown:
        raise SettingsError(
            f"{where} returned the key {shown(unknown[0])}; keys are {', '.join(PARTS)}"
        )
    if not module and not {WEIGHTS, "statistics"}.isdisjoint(parts):
        raise SettingsError(f"{where}: weights and statistics are for a torch.nn.Module only")
    if WEIGHTS in parts:
        checked_name(parts[WEIGHTS], where)
    return parts


def is_trainer(model: object) -> bool:
    """Return whether an object is a trainer of a user's own."""
    return hasattr(model, "task") and all(hasattr(model, part) for part in TRAINER_PARTS)


def _attempted(what: Callable[[], Result], where: str) -> Result:
    """Call a user's own code, and say where it failed."""
    try:
        return what()
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from None
    except Exception as error:  # it is the user's own code: anything can happen
        raise SettingsError(
            f"{where} raised {type(error).__name__}: {error}; call it yourself to see where"
        ) from error


def file_digest(path: Path) -> str:
    """Return the hash of a file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None


def own_entry(name: str) -> OwnModelEntry:
    """Return the entry of a model in a file, ``path/model.py:build``."""
    file, _, function = name.rpartition(":")
    path = Path(file)
    if not function.isidentifier():
        raise SettingsError(f"{name!r}: after the colon comes the name of a function")
    if not path.is_file():
        raise SettingsError(f"{path}: no such file; it is looked for beside the consortium.toml")
    return OwnModelEntry(
        name=name,
        summary=f"{function} of {path.name}",
        inputs="table",
        network="",
        options=partial(_facts, path, function),
        output_layer="",
        path=path,
        function=function,
    )


def _facts(path: Path, function: str, data: DataShape) -> dict[str, Value]:
    """Return what the function is told about the data, and the hashes of its files."""
    shapes = json.dumps([list(shape) for shape in data.shapes])
    facts: dict[str, Value] = {
        "task": data.task,
        "classes": data.classes or 0,
        "shapes": shapes,
        "code": file_digest(path),
    }
    weights = _weights_of(path, function, tuple(facts.items()))
    if weights:
        facts |= {WEIGHTS: weights, WEIGHTS_HASH: weights_digest(path.parent / weights)}
    return facts


@lru_cache(maxsize=64)
def _weights_of(path: Path, function: str, facts: tuple[tuple[str, Value], ...]) -> str:
    """Return the file of weights that a function names; empty if there is none."""
    import torch

    with torch.random.fork_rng(devices=[]):
        return str(_called(path, function, dict(facts)).get(WEIGHTS, ""))


def function_in(path: Path, name: str) -> Callable[..., Any]:
    """Return a function of a file, which is run anew whenever its content has changed."""
    known = f"fedegoists_own_{file_digest(path)[:16]}"
    module = sys.modules.get(known)
    if module is None:
        module = _imported(path, known)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None or not callable(function):
        raise SettingsError(f"{path.name} has no function {name!r}")
    return function


def _imported(path: Path, name: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in it look for their module there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # it is the user's own code: anything can happen
        del sys.modules[name]
        raise SettingsError(f"{path}: raised {type(error).__name__}: {error}") from error
    return module


def model_parts(data: DataShape, name: str, seed: int = 0) -> ModelParts:
    """Return a network, by name or from a file, with all that belongs to it.

    Raises
    ------
    SettingsError
        If the network does not suit the data, or its file is not as expected.
    """
    import torch

    from fedegoists.learning.array_models import ArrayNetwork
    from fedegoists.learning.models import build_model
    from fedegoists.learning.own_task import own_task
    from fedegoists.learning.task import TASKS

    entry, options = model_for(data, name), model_options(data, name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not isinstance(entry, OwnModelEntry):
            return ModelParts(entry.build(**options), TASKS[data.task], kind=entry.kind)
        parts = entry.returned(**options)

    def start(seed: int) -> "Mapping[str, Tensor]":
        return build_model(name, seed, **options).state_dict()

    where = f"{entry.path.name}:{entry.function}"
    settings = parts.get("optimiser") or {}
    if isinstance(settings, str):
        settings = {"optimiser": settings}
    if not isinstance(settings, Mapping):
        raise SettingsError(
            f"{where}: optimiser is {shown(settings)}; expected a name such as adamw, or a "
            "dictionary of settings such as learning_rate"
        )
    augment = parts.get("augment")
    if augment is not None and not callable(augment):
        raise SettingsError(f"{where}: augment is {shown(augment)}; expected a function")
    model = parts["model"]
    task = own_task(TASKS[data.task], parts.get("loss"), parts.get("metrics"), where)
    statistics = parts.get("statistics", "personal")
    if statistics not in ("personal", "averaged"):
        raise SettingsError(
            f'{where}: statistics is {shown(statistics)}; expected "personal" or "averaged"'
        )
    if is_trainer(model):
        return ModelParts(model, model.task, augment, dict(settings))
    kind: ModelKind = "arrays" if isinstance(model, ArrayNetwork) else "network"
    averaged = statistics == "averaged"
    return ModelParts(model, task, augment, dict(settings), start, averaged, kind)


def weights_in(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the file of pre-trained weights in a model's options, and its hash.

    Examples
    --------
    >>> weights_in({"task": "binary", "weights": "w.safetensors", "weights_sha256": "ab"})
    ('w.safetensors', 'ab')
    """
    if WEIGHTS not in options:
        return None
    return str(options[WEIGHTS]), str(options[WEIGHTS_HASH])


def initial_parameters(
    model: str, seed: int, options: Mapping[str, Value], schema: "ParameterSchema"
) -> "Tensor":
    """Return the vector with which training starts: as the model says, or as PyTorch draws it."""
    from fedegoists.learning.models import build_model

    if schema.start is not None:
        return schema.drawn(seed)
    return schema.flatten(build_model(model, seed, **options).state_dict())


def is_own(name: str) -> bool:
    """Return whether a name is that of a function in a file."""
    return OWN.fullmatch(name) is not None


def travelling_name(name: str) -> str:
    """Return the name of a model without the folder of its file, which is nobody else's business.

    Examples
    --------
    >>> travelling_name("/home/me/model.py:build"), travelling_name("mlp")
    ('model.py:build', 'mlp')
    """
    file, _, function = name.rpartition(":")
    return f"{Path(file).name}:{function}" if is_own(name) else name

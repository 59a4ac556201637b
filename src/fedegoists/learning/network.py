"""A module as silos train it: trainable parameters, modes, batch statistics and randomness.

Any `torch.nn.Module` will do. The rules are:

* Trainable parameters are the model: they are sent, averaged and stored as one vector.
* Frozen parameters (``requires_grad=False``) stay as the module came with them.
* Batch statistics, as those of `torch.nn.BatchNorm2d`, belong to a silo. They follow from its model
  and its own training samples, and are computed from both when a model is evaluated or stored (as
  in Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021). They never leave a silo, and no
  method has to know them. A layer whose parameters are all frozen keeps its statistics, too.
  A user can have running means and variances averaged instead: they are then entries of the vector
  that a silo sets after training, and that an evaluation uses as they are.
* Dropout is on in training and off in evaluation, with masks that follow from the seed of a step.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedegoists.errors import SettingsError
from fedegoists.learning.own_task import check_own_task
from fedegoists.learning.parameters import VARIANCE, ParameterSchema
from fedegoists.learning.seeded_dropout import seed_dropouts
from fedegoists.learning.task import Task

Inputs = tuple[Tensor, ...]
VECTORS = "representation_"
"""Begins the names of vectors about representations, where these are parameters of a network."""
Mode = Literal["training", "evaluation", "statistics"]


class Network:
    """The module that all silos train, its trainable parameters and its task.

    The module is a workspace: training overwrites its trainable parameters.

    Parameters
    ----------
    model : torch.nn.Module
        The module.
    task : Task
        Its loss and metric.
    augment : function, optional
        Changes the inputs of a training batch at random.
    schema : ParameterSchema, optional
        What travels; by default the trainable parameters.

    Attributes
    ----------
    schema : ParameterSchema
        The trainable parameters, and batch statistics where they travel.
    mixes_samples : bool
        Whether an output depends on other samples of its batch, in training.
    seeds : tuple of str
        Buffers from which dropout layers draw.
    draws : bool
        Whether it draws random numbers in training by itself, besides its dropout layers.
    untracked : bool
        Whether there is batch normalisation without running statistics.
    added : function, optional
        Returns what is added to the loss of a batch, from its targets and the weights of its
        samples if they have any, with and without those of their classes; where the module was
        changed to tell it.
    mean_strength : float, optional
        How strongly means of representations are held, where all that is added to the loss is about
        vectors of representations, which are parameters then: see
        `fedegoists.federation.representations`.
    """

    added: Callable[[Tensor, Tensor | None, Tensor | None], Tensor] | None = None
    mean_strength: float | None = None

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        augment: Callable[..., Any] | None = None,
        schema: ParameterSchema | None = None,
    ) -> None:
        self.model, self.task, self._augment = model, task, augment
        self.schema = ParameterSchema.of(model) if schema is None else schema
        self.seeds = seed_dropouts(model)
        self.draws = False
        self._ties = _ties_of(model)
        self._fixed, self._statistical = _layers_with_statistics(model)
        # Such layers take the samples of an evaluation together, too: these cannot be padded.
        self.untracked = any(
            isinstance(layer, _BatchNorm) and layer.running_mean is None
            for layer in model.modules()
        )
        self._updated = self._buffers_of(self._statistical)
        # The statistics that a module comes with are no part of any silo's model.
        self._rest = {name: own.clone() for name, own in self._updated.items()}

    @property
    def mixes_samples(self) -> bool:
        """Whether an output depends on other samples of its batch, in training."""
        return bool(self._statistical) or self.untracked

    @property
    def normalises_batches(self) -> bool:
        """Whether there is batch normalisation, by a batch's statistics or by fixed ones."""
        return self.mixes_samples or bool(self._fixed)

    @property
    def needs_samples(self) -> bool:
        """Whether an evaluation needs batch statistics of the silo's own samples."""
        return any(
            name not in self.schema.statistics and own.is_floating_point()
            for name, own in self._updated.items()
        )

    def _buffers_of(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor]:
        return {
            f"{prefix}.{name}" if prefix else name: own
            for prefix, layer in layers.items()
            for name, own in layer.named_buffers(recurse=False)
        }

    def set_mode(self, mode: Mode) -> None:
        """Set the mode of all layers.

        In the mode ``statistics`` only layers with batch statistics are in training, and they
        update them; dropout is off.
        """
        self.model.train(mode == "training")
        if mode == "training":  # whatever was trained before, buffers start as they came
            for name, own in self._rest.items():
                self.model.get_buffer(name).copy_(own)
        for layer in self._fixed.values():
            layer.train(False)
        for layer in self._statistical.values():
            layer.training = mode != "evaluation"
            if isinstance(layer, _NormBase):
                # In training, statistics need not be tracked: they follow from the model.
                layer.track_running_stats = mode != "training"

    @contextmanager
    def seeded(self, seed: Callable[[], int]) -> Iterator[None]:
        """Context manager in which a module that draws random numbers draws those of a seed."""
        if not self.draws:
            yield
            return
        device = next(self.model.parameters()).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed())
            yield

    @contextmanager
    def buffers_kept(self) -> Iterator[None]:
        """Context manager after which what passes change in training is as it was before.

        The batch statistics of normalisation layers are not among it, see `set_mode`.
        """
        changing = {
            prefix: layer
            for prefix, layer in self._statistical.items()
            if not isinstance(layer, _NormBase)
        }
        before = {name: own.clone() for name, own in self._buffers_of(changing).items()}
        try:
            yield
        finally:
            for name, own in before.items():
                self.model.get_buffer(name).copy_(own)

    def augmented(self, inputs: Inputs, *, singly: bool = False) -> Inputs:
        """Return the inputs of a training batch as the user's own function changes them.

        Parameters
        ----------
        singly : bool
            Whether the function sees one sample at a time, so that it cannot mix samples.
        """
        if self._augment is None:
            return inputs
        if singly and len(inputs[0]) > 1:
            rows = [tuple(one[k : k + 1] for one in inputs) for k in range(len(inputs[0]))]
            each = [self.augmented(row) for row in rows]
            return tuple(torch.cat(parts) for parts in zip(*each, strict=True))
        changed = self._augment(*inputs)
        return tuple(changed) if isinstance(changed, tuple | list) else (changed,)

    def set_seed(self, seed: int) -> None:
        """Set the seed of all dropout layers."""
        for name in self.seeds:
            self.model.get_buffer(name).fill_(seed)

    def loss(
        self,
        values: Mapping[str, Tensor],
        inputs: Inputs,
        targets: Tensor,
        weights: Tensor | None = None,
        seed: Tensor | None = None,
        *,
        plain: Tensor | None = None,
        bf16: bool = False,
    ) -> Tensor:
        """Return the loss of named parameters and buffers on a batch; a pure function.

        Parameters
        ----------
        values : mapping of str to Tensor
            The trainable parameters; and batch statistics, where they are used.
        weights : Tensor, optional
            The weight of each sample; without them, the mean is returned.
        seed : Tensor, optional
            The seed of dropout layers.
        plain : Tensor, optional
            The same weights without those of classes, for what is added to the loss.
        """
        with torch.autocast(targets.device.type, torch.bfloat16, enabled=bf16):
            outputs = self.outputs(values, inputs, seed)
        return self.loss_of(outputs, targets, weights, plain)

    def loss_of(
        self,
        outputs: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        plain: Tensor | None,
    ) -> Tensor:
        """Return the loss of a batch from its outputs."""
        loss = self.task.loss(outputs.float(), targets, weights)
        return loss if self.added is None else loss + self.added(targets, weights, plain)

    def outputs(
        self, values: Mapping[str, Tensor], inputs: Inputs, seed: Tensor | None = None
    ) -> Tensor:
        """Return the outputs of named parameters and buffers; a pure function."""
        given = dict(values)
        for name in self.schema.statistics:  # a sum of models may have left less than nothing
            if name.endswith(VARIANCE) and name in given:
                given[name] = given[name].clamp_min(0.0)
        if seed is not None:
            given |= dict.fromkeys(self.seeds, seed)
        return self.shaped(self._called(given, inputs))

    def _called(self, values: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
        """Call the module with other tensors in place of its own, under all names they have."""
        # Views into a vector can begin anywhere; convolutions on a GPU need aligned addresses.
        # Batch statistics stay the tensors that they are: a layer may update them.
        trained = (name for name in self.schema.names if name not in self.schema.statistics)
        views = {name: values[name] for name in trained if values[name].is_cuda}
        values = {**values, **{name: own.clone() for name, own in views.items()}}
        tied = {
            other: values[name] for name, others in self._ties.items() if name in values
            for other in others
        }  # fmt: skip
        # PyTorch's own way of tying leaves a layer that has two names with foreign tensors.
        out: Tensor = functional_call(self.model, {**values, **tied}, inputs, tie_weights=False)
        return out

    def shaped(self, outputs: Tensor) -> Tensor:
        """Return outputs with a column for each; a module may return one number for a sample."""
        return outputs[:, None] if outputs.dim() == 1 else outputs

    def statistics_at_rest(self) -> dict[str, Tensor]:
        """Return the batch statistics before any sample was seen."""
        return dict(self._rest)

    def after_batch(
        self,
        values: Mapping[str, Tensor],
        before: Mapping[str, Tensor],
        inputs: Inputs,
        number: int,
    ) -> dict[str, Tensor]:
        """Return batch statistics after one more batch; in the mode ``statistics`` only.

        Parameters
        ----------
        number : int
            How many batches came before: statistics are means over batches.
        """
        for layer in self._statistical.values():
            if isinstance(layer, _NormBase):
                layer.momentum = 1 / (number + 1)
        after = {name: own.clone() for name, own in before.items()}
        self._called({**values, **after}, inputs)
        return after

    def statistics(
        self, values: Mapping[str, Tensor], batches: Iterator[Inputs] | Sequence[Inputs]
    ) -> dict[str, Tensor]:
        """Return the batch statistics of a model over some batches."""
        if not self._statistical:
            return {}
        self.set_mode("statistics")
        found = self.statistics_at_rest()
        for number, inputs in enumerate(batches):
            found = self.after_batch(values, found, inputs, number)
        return found

    def state(
        self, values: Mapping[str, Tensor], statistics: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the whole state of a model: what `torch.nn.Module.load_state_dict` needs."""
        named = dict(self.model.named_parameters(remove_duplicate=False))
        first = {id(own): name for name, own in self.model.named_parameters()}
        whole = {}
        for name, own in self.model.state_dict(keep_vars=True).items():
            known = first.get(id(named[name]), name) if name in named else name
            whole[name] = (values.get(known, statistics.get(known, own))).detach()
        return whole

    def examine(self, inputs: Inputs, targets: Tensor, classes: int | None) -> None:
        """Try the module on a few samples before any silo trains it.

        Raises
        ------
        SettingsError
            If it fails, or its outputs do not fit the task.
        """
        self.set_mode("evaluation")
        shapes = " and ".join(str(tuple(one.shape)) for one in inputs)
        with torch.no_grad():
            outputs = _tried(lambda: self.model(*inputs), shapes)
            check_outputs(outputs, self.task, len(targets), classes)
            check_own_task(self.task, self.shaped(outputs), targets)
            self._find_changes(inputs, shapes)
        self.set_mode("evaluation")

    def _find_changes(self, inputs: Inputs, shapes: str) -> None:
        """Find out which buffers training changes, and whether the module draws by itself."""
        self.set_mode("training")
        known = {
            id(own) for layer in (*self._statistical.values(), *self._fixed.values())
            for own in layer.buffers(recurse=False)
        }  # fmt: skip
        others = {
            name: (own, own.clone())
            for name, own in self.model.named_buffers()
            if id(own) not in known and name not in self.seeds
        }
        device = next(self.model.parameters()).device
        before = _generator_states(device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            _tried(lambda: self.model(*inputs), shapes)
            after = _generator_states(device)
        changed = any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        self.draws = changed or self._augment is not None
        for name, (own, earlier) in others.items():
            if not torch.equal(own, earlier):
                own.copy_(earlier)
                prefix = name.rpartition(".")[0]
                self._statistical[prefix] = self.model.get_submodule(prefix)
        self._updated = self._buffers_of(self._statistical)
        self._rest = {name: own.clone() for name, own in self._updated.items()}


def _layers_with_statistics(
    model: nn.Module,
) -> tuple[dict[str, nn.Module], dict[str, nn.Module]]:
    """Return the normalisation layers with fixed statistics, and those with a silo's own."""
    fixed: dict[str, nn.Module] = {}
    own: dict[str, nn.Module] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, _NormBase) and layer.running_mean is not None:
            parameters = list(layer.parameters(recurse=False))
            frozen = bool(parameters) and not any(p.requires_grad for p in parameters)
            (fixed if frozen else own)[name] = layer
    return fixed, own


def normalisation_statistics(model: nn.Module) -> tuple[str, ...]:
    """Return the names of running means and variances that training changes."""
    _, own = _layers_with_statistics(model)
    return tuple(
        f"{prefix}.{name}" if prefix else name
        for prefix, layer in own.items()
        for name, buffer in layer.named_buffers(recurse=False)
        if buffer.is_floating_point()
    )


def _ties_of(model: nn.Module) -> dict[str, list[str]]:
    """Return the other names of tensors that several layers share, by the first name.

    Further names of one and the same layer do not count.
    """
    first: dict[int, str] = {}
    places: set[tuple[int, str]] = set()
    ties: dict[str, list[str]] = {}
    named = [*model.named_parameters(remove_duplicate=False)]
    for name, own in (*named, *model.named_buffers(remove_duplicate=False)):
        prefix, _, last = name.rpartition(".")
        place = (id(model.get_submodule(prefix)), last)
        if id(own) not in first:
            first[id(own)] = name
        elif place not in places:
            ties.setdefault(first[id(own)], []).append(name)
        places.add(place)
    return ties


def _generator_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def _tried(forward: Callable[[], Any], shapes: str) -> Any:
    try:
        return forward()
    except Exception as error:  # it is the user's own code: anything can happen
        text = (str(error).strip() or "no message").split("\n")[0]
        raise SettingsError(
            f"the model fails on samples of the shape {shapes}: {type(error).__name__}: {text}"
        ) from error


def check_outputs(outputs: object, task: Task, count: int, classes: int | None) -> None:
    """Refuse outputs that do not fit the task.

    Raises
    ------
    SettingsError
        With the shape that was returned, and the one that is expected.
    """
    if not isinstance(outputs, Tensor):
        raise SettingsError(
            f"the model returns a {type(outputs).__name__}; have it return one tensor with a row "
            "for each sample"
        )
    shape = tuple(outputs.shape)
    if task.name == "classification":
        columns = classes or 1
        fits = shape == (count, columns)
    else:
        columns = 1
        fits = shape in ((count, 1), (count,))
    if not fits:
        two = task.name == "binary" and shape == (count, 2)
        other = ', or make it task = "classification", which takes two outputs' if two else ""
        raise SettingsError(
            f"the model returns {shape} for {count} samples; a task of the kind {task.name} needs "
            f"({count}, {columns}): change its last layer{other}"
        )
    if not outputs.is_floating_point():
        raise SettingsError(f"the model returns {outputs.dtype}; have it return 32-bit floats")


def flops_of(model: nn.Module, inputs: Inputs) -> int:
    """Return the floating-point operations of one sample, counted in matrix products."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    total: int = counter.get_total_flops()
    return math.ceil(total / len(inputs[0]))

"""The trainer of PyTorch modules, for one silo at a time.

`fedegoists.federation.stacked` has the same operations for many silos at once; both draw the same
batches and give the same numbers up to rounding.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from fedegoists.errors import SettingsError
from fedegoists.federation.batches import (
    augmentation_draws,
    batch_plan,
    stream_seed,
)
from fedegoists.federation.gradient_privacy import (
    SCORE_NOISE,
    clipped_gradient,
    gaussian_noise,
    noisy_score,
)
from fedegoists.federation.replies import Evaluated, Gradients, Split, Trained
from fedegoists.federation.representations import Represented, with_vectors, without_vectors
from fedegoists.federation.requests import (
    ClassWeights,
    Evaluate,
    Gradient,
    LocalTerms,
    Train,
    TrainSettings,
)
from fedegoists.federation.silo_operations import (
    TINY,
    Silo,
    augmented,
    class_weights,
    evaluated_part,
    frozen_names,
    gradient_batch,
    learning_rates,
    pass_slices,
    step_noise,
    training_plan,
    weighted,
)
from fedegoists.learning.network import Inputs, Network
from fedegoists.learning.parameters import ParameterSchema
from fedegoists.learning.task import Task

CHUNK = 1024
"""Samples a silo evaluates at once."""

STATISTICS_BATCH, STATISTICS_STEPS = 128, 8
"""Samples in a batch, and batches, from which batch statistics are computed."""

ADAM_EPSILON = 1e-8


def dropout_seed(seed: int, step: int, part: int = 0) -> int:
    """Return the seed of the random numbers that a network draws in a part of a step."""
    return stream_seed(seed, step, "dropout", *([part] if part else []))


def statistics_plan(size: int) -> Tensor:
    """Return the samples of each batch from which batch statistics are computed."""
    return torch.from_numpy(batch_plan(size, STATISTICS_BATCH, STATISTICS_STEPS, seed=0))


def check_private(
    network: Network,
    clip: float | None,
    by_class: ClassWeights | None = None,
    weights: Tensor | None = None,
) -> None:
    """Refuse to limit the gradients of single samples where samples depend on one another."""
    if clip is not None and weights is not None:
        raise SettingsError(
            "weights of samples are relative to their mean, so that a sample changes the gradients "
            "of others; leave the weights out, or use no privacy"
        )
    if clip is not None and by_class == "balanced":
        raise SettingsError(
            "balanced class weights follow from the silo's label counts, so that a sample changes "
            "the gradients of others; give class_weights as numbers, or use no privacy"
        )
    if clip is not None and network.task.name == "survival":
        raise SettingsError(
            "the loss of a survival task compares samples with one another: what one of them tells "
            "cannot be limited; use no privacy, or predict whether the event comes in a given time"
        )
    if clip is not None and network.mixes_samples:
        raise SettingsError(
            "the model has batch normalisation, through which a sample changes the outputs of "
            "others: its own gradient cannot be limited; use group normalisation, or no privacy"
        )


def check_passes(network: Network, passes: int) -> None:
    """Refuse to divide batches whose loss is not a sum over samples."""
    if passes == 1:
        return
    if network.task.name == "survival":
        raise SettingsError(
            "the loss of a survival task compares all samples of a batch with one another: it "
            "cannot be computed in parts; use accumulate = 1"
        )


def check_differentiable(network: Network) -> None:
    """Refuse gradients of models some of whose entries have none."""
    if network.schema.statistics:
        raise SettingsError(
            "the model's batch statistics are averaged, and statistics have no gradient: use a "
            "method that averages models, such as fedavg, and the estimator transfer; or leave out "
            'statistics = "averaged"'
        )


class ModuleTrainer:
    """Trains and evaluates a `Network` on one silo's samples; see `Trainer`."""

    private = True

    def __init__(self, network: Network) -> None:
        self.network = network
        self._recent: dict[int, tuple[Silo, Tensor, dict[str, Tensor]]] = {}
        self._represented = Represented(network)

    @property
    def schema(self) -> ParameterSchema:
        """The trainable parameters."""
        return self.network.schema

    @property
    def task(self) -> Task:
        """The loss and the metric."""
        return self.network.task

    def train(self, silo: Silo, request: Train, seed: int) -> Trained:
        """Train from the given parameters on the silo's training samples."""
        network, schema, settings = self.network, self.schema, request.settings
        if request.terms is not None and request.terms.representation is not None:
            represented = self._represented.network_for(request)
            reply = ModuleTrainer(represented).train(silo, with_vectors(request), seed)
            return without_vectors(request, reply)
        check_private(network, settings.clip, settings.class_weights, silo.weights)
        check_passes(network, settings.passes)
        terms = request.terms or LocalTerms()
        named = dict(network.model.named_parameters())
        for name in schema.statistics:  # in the vector, but without a gradient
            named[name] = torch.nn.Parameter(network.model.get_buffer(name).clone())
        tensors: list[Tensor] = [named[name] for name in schema.names]
        with torch.no_grad():
            views = schema.unflatten(request.parameters).values()
            for tensor, value in zip(tensors, views, strict=True):
                tensor.copy_(value)
        added = _AddedGradient(terms, schema, tensors)
        update = _Update(settings, schema, tensors, terms)
        positions = silo.splits["train"]
        plan, weights = training_plan(len(positions), settings, seed, terms.inner_steps)
        plan = plan.to(positions.device)
        by_class = class_weights(silo, settings.class_weights)
        draws = None
        if settings.augment:
            draws = augmentation_draws(tuple(plan.shape), seed).to(plan.device)
        total = torch.zeros((), device=request.parameters.device)
        network.set_mode("training")
        for step, rate in enumerate(learning_rates(settings, request.first_step)):
            batch = positions[plan[step]]
            inputs, targets = silo.batch(batch)
            factors = silo.factors(batch, by_class)
            if draws is not None:
                inputs = (augmented(inputs[0], draws[step]), *inputs[1:])
            own = None if weights is None else weights[step].to(plan.device)
            with network.seeded(lambda step=step: dropout_seed(seed, step)):  # type: ignore[misc]
                # What one sample changes is limited only if it does not change others.
                seen = network.augmented(inputs, singly=settings.clip is not None)
                given = (seen, targets, own, factors, silo.factors(batch))
                loss, gradients = self._of_step(settings, update, given, seed, step)
                if settings.noise:
                    vector = schema.flatten(dict(zip(schema.names, gradients, strict=True)))
                    drawn = step_noise(settings, vector.shape, len(positions), seed, step)
                    vector = vector + drawn.to(vector)
                    gradients = tuple(schema.unflatten(vector).values())
            with torch.no_grad():
                total += loss
                update.step(gradients, rate * terms.pace, added)
                if terms.anchor_rate and (step + 1) % terms.inner_steps == 0:
                    added.move_anchor(tensors)
        trained = schema.flatten(dict(zip(schema.names, tensors, strict=True)))
        return Trained(
            parameters=self._with_statistics(silo, trained),
            loss=(total / settings.steps).item(),
            samples=len(positions),
            sample_passes=settings.sample_passes(len(positions)),
            anchor=schema.flatten(added.anchor) if added.anchor and terms.anchor_rate else None,
            momentum=None if terms.momentum is None else update.momentum(schema),
        )

    def _of_step(
        self,
        settings: TrainSettings,
        update: "_Update",
        batch: tuple[Inputs, Tensor, Tensor | None, Tensor | None, Tensor | None],
        seed: int,
        step: int,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss of a step, and the gradients that it is taken with.

        Foret et al., "Sharpness-aware minimization", 2021, Algorithm 1: with the radius ρ, these
        are ∇ℓ(w + ρ ∇ℓ(w)/‖∇ℓ(w)‖). Both are of the same function of w: with the same random
        numbers, and with what passes change in training, such as running means, as it was.
        """
        network, given = self.network, (settings, update.tensors, batch, seed, step)
        if not settings.sam_radius:
            return self._in_passes(*given)
        same = partial(stream_seed, seed, step, "both gradients")
        with network.seeded(same):
            loss, gradients = self._in_passes(*given)
        moved = _moved(update.tensors, update.free(gradients), settings.sam_radius)
        with moved, network.buffers_kept(), network.seeded(same):
            return loss, self._in_passes(*given)[1]

    def _in_passes(
        self,
        settings: TrainSettings,
        tensors: list[Tensor],
        batch: tuple[Inputs, Tensor, Tensor | None, Tensor | None, Tensor | None],
        seed: int,
        step: int,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return loss and gradients of a step: sums over the parts of its batch."""
        network, (inputs, targets, weights, factors, without_classes) = self.network, batch
        parts = pass_slices(len(targets), settings.passes)
        plain = weighted(weights, without_classes)
        if settings.clip is None:  # otherwise they are limited, too
            weights, factors = weighted(weights, factors), None
        if len(parts) > 1 and weights is None:
            weights = torch.full((len(targets),), 1 / len(targets), device=targets.device)
        loss, gradients = torch.zeros((), device=targets.device), None
        for number, part in enumerate(parts):
            if network.seeds:
                network.set_seed(dropout_seed(seed, step, number))
            some = tuple(one[part] for one in inputs)
            own = [None if each is None else each[part] for each in (weights, factors, plain)]
            one, found = self._gradient(settings, tensors, some, targets[part], *own)
            loss = loss + one
            gradients = found if gradients is None else torch._foreach_add(gradients, found)
        assert gradients is not None  # a batch has samples
        return loss, tuple(gradients)

    def _with_statistics(self, silo: Silo, trained: Tensor) -> Tensor:
        """Return a trained model with its batch statistics, where they travel."""
        schema = self.schema
        if not schema.statistics:
            return trained
        found = self._computed_statistics(silo, trained)
        return schema.flatten({**schema.unflatten(trained), **found})

    def _gradient(
        self,
        settings: TrainSettings,
        tensors: list[Tensor],
        inputs: Inputs,
        targets: Tensor,
        weights: Tensor | None,
        factors: Tensor | None,
        plain: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return loss and gradients at the parameters that the module holds."""
        bf16 = settings.precision == "bf16"
        if settings.clip is not None:
            given = (tensors, inputs, targets, weights, factors)
            return self._private(settings.clip, *given, bf16=bf16)
        with torch.autocast(targets.device.type, torch.bfloat16, enabled=bf16):
            outputs = self.network.shaped(self.network.model(*inputs))
        loss = self.network.loss_of(outputs, targets, weights, plain)
        # A parameter that this batch does not use has a gradient of zero.
        gradients = torch.autograd.grad(loss, tensors, allow_unused=True, materialize_grads=True)
        return loss.detach(), _dense(gradients)

    def _private(
        self,
        clip: float,
        tensors: list[Tensor],
        inputs: Inputs,
        targets: Tensor,
        weights: Tensor | None,
        factors: Tensor | None,
        *,
        bf16: bool,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a loss of zero, and the mean of samples' gradients of a limited length."""
        schema = self.schema
        vector = schema.flatten(dict(zip(schema.names, tensors, strict=True)))
        loss = partial(self.network.loss, bf16=bf16)
        gradient, value = clipped_gradient(loss, schema, clip)(
            vector, inputs, targets, weights, factors
        )
        return value, tuple(schema.unflatten(gradient).values())

    def gradients(self, silo: Silo, request: Gradient, seed: int) -> Gradients:
        """Return losses and gradients of one or several models on a batch."""
        network, schema = self.network, self.schema
        positions, step, clip = silo.splits[request.split], request.step, request.clip
        check_private(network, clip, request.class_weights, silo.weights)
        check_differentiable(network)
        check_passes(network, request.passes)
        drawn_batch, weights, count = gradient_batch(len(positions), request, seed)
        batch = positions[torch.from_numpy(drawn_batch).to(positions.device)]
        inputs, targets = silo.batch(batch)
        if request.augment:
            draws = augmentation_draws((len(batch),), stream_seed(seed, step)).to(positions.device)
            inputs = (augmented(inputs[0], draws), *inputs[1:])
        own = None if weights is None else torch.from_numpy(weights).to(positions.device)
        factors = silo.factors(batch, class_weights(silo, request.class_weights))
        parts = pass_slices(len(batch), request.passes if clip is None else 1)
        numbers = [
            torch.tensor(dropout_seed(seed, step, part)) if network.seeds else None
            for part in range(len(parts))
        ]
        pairs = []
        for row in request.rows:
            # On other samples than those of training, a model is as it would be used.
            fixed = {} if request.split == "train" else self.statistics(silo, row)
            network.set_mode("training" if request.split == "train" else "evaluation")
            losses = [partial(_fixed_loss, network, fixed, number) for number in numbers]
            with network.seeded(lambda: dropout_seed(seed, step)):
                seen = inputs
                if request.split == "train":
                    seen = network.augmented(inputs, singly=clip is not None)
                if clip is None:
                    given = (seen, targets, weighted(own, factors))
                    pairs.append(_differentiated(schema, losses, row, given, parts))
                else:
                    clipped = clipped_gradient(losses[0], schema, clip)
                    pairs.append(clipped(row, seen, targets, own, factors))
        gradients = torch.stack([gradient for gradient, _ in pairs])
        if clip is not None and request.noise:
            drawn = gaussian_noise(gradients.shape, request.noise * clip / count, seed, step)
            gradients = gradients + drawn.to(gradients)
        return Gradients(
            losses=tuple(torch.stack([loss for _, loss in pairs]).tolist()),
            gradient=gradients.reshape(request.parameters.shape),
            samples=count,
        )

    @torch.no_grad()
    def statistics(self, silo: Silo, row: Tensor) -> dict[str, Tensor]:
        """Return the batch statistics with which the silo evaluates a model, where it has own."""
        return self._computed_statistics(silo, row) if self.network.needs_samples else {}

    @torch.no_grad()
    def _computed_statistics(self, silo: Silo, row: Tensor) -> dict[str, Tensor]:
        """Return the batch statistics of a model over the silo's own training samples."""
        # Validation and test samples are evaluated one after the other.
        known = self._recent.get(id(silo))
        if known is not None and torch.equal(known[1], row):
            return known[2]
        positions = silo.splits["train"]

        def batches() -> Iterator[Inputs]:
            for batch in statistics_plan(len(positions)).to(positions.device):
                yield silo.batch(positions[batch])[0]

        found = self.network.statistics(self.schema.unflatten(row), batches())
        self._recent[id(silo)] = (silo, row.clone(), found)
        return found

    @torch.no_grad()
    def state(self, silo: Silo, parameters: Tensor) -> dict[str, Tensor]:
        """Return all tensors of a model, frozen parameters and batch statistics included."""
        values = self.schema.unflatten(parameters)
        return self.network.state(values, self.statistics(silo, parameters))

    @torch.no_grad()
    def outputs(self, silo: Silo, parameters: Tensor, split: Split) -> tuple[Tensor, Tensor]:
        """Return a model's outputs for the samples of a split, and the targets."""
        outputs, targets = self._outputs(silo, parameters, silo.splits[split])
        if self.task.name == "regression":  # so that errors are in the target's own units
            return silo.spread * outputs, silo.spread * targets
        return outputs, targets

    def _outputs(self, silo: Silo, row: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        # Batch statistics that travel are part of the model.
        values = {**self.statistics(silo, row), **self.schema.unflatten(row)}
        self.network.set_mode("evaluation")
        outputs, targets = [], []
        for part in torch.split(positions, CHUNK):
            inputs, target = silo.batch(part)
            outputs.append(self.network.outputs(values, inputs))
            targets.append(target)
        return torch.cat(outputs), torch.cat(targets)

    @torch.no_grad()
    def evaluate(self, silo: Silo, request: Evaluate, seed: int) -> Evaluated:
        """Return losses and metrics of one or several models on a split."""
        check_private(self.network, request.bound, weights=silo.weights)
        if request.bound is not None and not self.task.usual_metric:
            raise SettingsError(
                f"{self.task.metric} is a metric of the model's own file: what one sample changes "
                "of it is not known, so no noise can hide it; leave metrics out, or use no privacy"
            )
        positions = silo.splits[request.split]
        if request.share is not None:
            drawn = torch.from_numpy(evaluated_part(silo, request, seed))
            positions = positions[drawn.to(positions.device)]
        losses, scores = [], []
        noise = torch.zeros(len(request.rows), 1 + SCORE_NOISE)
        if request.noise:
            noise = gaussian_noise(noise.shape, 1.0, seed, request.step)
        factors = silo.factors(positions)
        for row in request.rows:
            output, target = self._outputs(silo, row, positions)
            if request.bound is None:
                losses.append(self.task.loss(output, target, weighted(None, factors)).item())
                scores.append(self.task.score(output, target, silo.spread))
            else:
                pair = _bounded_scores(self.task, output, target, request, noise[len(losses)])
                losses.append(pair[0])
                scores.append(pair[1])
        return Evaluated(losses=tuple(losses), scores=tuple(scores), samples=len(positions))


def _fixed_loss(
    network: Network,
    fixed: dict[str, Tensor],
    seed: Tensor | None,
    values: dict[str, Tensor],
    inputs: Inputs,
    targets: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the loss of named parameters, beside fixed batch statistics."""
    return network.loss({**values, **fixed}, inputs, targets, weights, seed)


def _differentiated(
    schema: ParameterSchema,
    losses: Sequence[Callable[..., Tensor]],
    vector: Tensor,
    batch: tuple[Inputs, Tensor, Tensor | None],
    parts: Sequence[slice],
) -> tuple[Tensor, Tensor]:
    """Return gradient and loss of a vector of parameters: sums over the parts of a batch.

    By `torch.autograd`, which also takes modules that `torch.func` does not: with sparse gradients,
    or buffers that they change.
    """
    inputs, targets, weights = batch
    if len(parts) > 1 and weights is None:
        weights = torch.full((len(targets),), 1 / len(targets), device=targets.device)
    values = {
        name: own.detach().clone().requires_grad_()
        for name, own in schema.unflatten(vector).items()
    }
    sums: tuple[Tensor, Tensor] | None = None
    for loss, part in zip(losses, parts, strict=True):
        own = None if weights is None else weights[part]
        value = loss(values, tuple(one[part] for one in inputs), targets[part], own)
        found = _dense(
            torch.autograd.grad(
                value, [*values.values()], allow_unused=True, materialize_grads=True
            )
        )
        pair = schema.flatten(dict(zip(schema.names, found, strict=True))), value.detach()
        sums = pair if sums is None else (sums[0] + pair[0], sums[1] + pair[1])
    assert sums is not None  # a batch has samples
    return sums


def _dense(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return gradients without sparse ones, as those of some embeddings are."""
    return tuple(one.to_dense() if one.layout == torch.sparse_coo else one for one in gradients)


@contextmanager
def _moved(tensors: list[Tensor], gradients: Sequence[Tensor], radius: float) -> Iterator[None]:
    """Move tensors in place by a length along gradients, and then put them back."""
    before = [tensor.detach().clone() for tensor in tensors]
    with torch.no_grad():
        length = torch.stack([(one * one).sum() for one in gradients]).sum().sqrt()
        along = radius / length.clamp_min(TINY)
        torch._foreach_add_(tensors, [along * one for one in gradients])
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


class _Update:
    """The steps of an optimiser, tensor by tensor, with a state that starts at zero."""

    def __init__(
        self,
        settings: TrainSettings,
        schema: ParameterSchema,
        tensors: list[Tensor],
        terms: LocalTerms,
    ) -> None:
        self._settings, self.tensors, self._count = settings, tensors, 0
        self._first_steps = terms.first_steps
        self._frozen = [
            [place for place, still in enumerate(frozen_names(schema, prefixes).values()) if still]
            for prefixes in (terms.frozen, terms.frozen_first)
        ]
        # In the memory format of the parameters, or every update would have to convert.
        self.speeds = [torch.zeros_like(tensor, requires_grad=False) for tensor in tensors]
        adapted = settings.optimiser != "sgd"
        if terms.momentum is not None and not adapted:
            views = schema.unflatten(terms.momentum).values()
            for speed, value in zip(self.speeds, views, strict=True):
                speed.copy_(value)
        self._squares = [torch.zeros_like(one) for one in self.speeds] if adapted else []

    def momentum(self, schema: ParameterSchema) -> Tensor:
        """Return the momentum with which the next round goes on: none but that of sgd does."""
        found = schema.flatten(dict(zip(schema.names, self.speeds, strict=True)))
        return found if self._settings.optimiser == "sgd" else torch.zeros_like(found)

    def free(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return gradients, with zeros for tensors that are frozen in the next step."""
        still = set(self._still)
        return [
            torch.zeros_like(one) if place in still else one for place, one in enumerate(gradients)
        ]

    @property
    def _still(self) -> list[int]:
        """The places of tensors that are frozen in the next step."""
        return self._frozen[self._count < self._first_steps]

    def step(self, gradients: tuple[Tensor, ...], rate: float, added: "_AddedGradient") -> None:
        """Move the tensors along their gradients, and beside them to an anchor, in place."""
        aside = added.aside(self.tensors, rate)
        frozen = self._still
        before = {place: self.tensors[place].detach().clone() for place in frozen}
        self._descend(gradients, rate, added)
        if aside is not None:
            torch._foreach_add_(self.tensors, aside)
        for place, value in before.items():
            self.tensors[place].copy_(value)
            for state in (self.speeds, self._squares):
                if state:
                    state[place].zero_()

    def _descend(self, gradients: tuple[Tensor, ...], rate: float, added: "_AddedGradient") -> None:
        settings, tensors = self._settings, self.tensors
        decay, one, two = settings.weight_decay, settings.momentum, settings.second_momentum
        self._count += 1
        if decay and settings.optimiser != "adamw":
            gradients = torch._foreach_add(gradients, tensors, alpha=decay)
        gradients = added.to(gradients, tensors)
        torch._foreach_mul_(self.speeds, one)
        if settings.optimiser == "sgd":
            torch._foreach_add_(self.speeds, gradients)
            torch._foreach_add_(tensors, self.speeds, alpha=-rate)
            return
        # Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled weight decay", 2019.
        torch._foreach_add_(self.speeds, gradients, alpha=1 - one)
        torch._foreach_mul_(self._squares, two)
        torch._foreach_addcmul_(self._squares, gradients, gradients, value=1 - two)
        if decay and settings.optimiser == "adamw":
            torch._foreach_mul_(tensors, 1 - rate * decay)
        lengths = torch._foreach_div(self._squares, 1 - two**self._count)
        torch._foreach_sqrt_(lengths)
        torch._foreach_add_(lengths, ADAM_EPSILON)
        torch._foreach_addcdiv_(tensors, self.speeds, lengths, value=-rate / (1 - one**self._count))


class _AddedGradient:
    """The gradient of a method's local terms, tensor by tensor."""

    def __init__(self, terms: LocalTerms, schema: ParameterSchema, tensors: list[Tensor]) -> None:
        def like_parameters(vector: Tensor | None) -> dict[str, Tensor] | None:
            if vector is None:
                return None
            views = schema.unflatten(vector).items()
            return {
                name: torch.empty_like(tensor, requires_grad=False).copy_(view)
                for (name, view), tensor in zip(views, tensors, strict=True)
            }

        self.terms = terms
        self.anchor = like_parameters(terms.anchor)
        self.towards = like_parameters(terms.towards)
        self.correction = like_parameters(terms.correction)

    def aside(self, tensors: list[Tensor], rate: float) -> tuple[Tensor, ...] | None:
        """Return how far a step moves towards the anchor beside the gradients."""
        if self.anchor is None or not self.terms.decoupled:
            return None
        towards = torch._foreach_sub(list(self.anchor.values()), tensors)
        return torch._foreach_mul(towards, rate * self.terms.pull)

    def to(self, gradients: tuple[Tensor, ...], tensors: list[Tensor]) -> tuple[Tensor, ...]:
        if self.anchor is not None and not self.terms.decoupled:
            away = torch._foreach_sub(tensors, list(self.anchor.values()))
            gradients = torch._foreach_add(gradients, away, alpha=self.terms.pull)
        if self.towards is not None:
            target = list(self.towards.values())
            product = torch.stack(
                [(a * b).sum() for a, b in zip(tensors, target, strict=True)]
            ).sum()
            length, other = (
                torch.stack([(a * a).sum() for a in vectors]).sum().sqrt()
                for vectors in (tensors, target)
            )
            # The gradient of the cosine is b/|a||b| − cos · a/|a|²; zero where one of them is zero.
            directed = (length > TINY) & (other > TINY)
            along = torch.where(directed, self.terms.attraction / (length * other), 0.0)
            gradients = torch._foreach_sub(gradients, torch._foreach_mul(target, along))
            back = torch.where(directed, self.terms.attraction * product / (length**3 * other), 0.0)
            gradients = torch._foreach_add(gradients, torch._foreach_mul(tensors, back))
        if self.correction is not None:
            gradients = torch._foreach_add(gradients, list(self.correction.values()))
        return gradients

    def move_anchor(self, tensors: list[Tensor]) -> None:
        assert self.anchor is not None
        anchors = list(self.anchor.values())
        away = torch._foreach_sub(anchors, tensors)
        torch._foreach_add_(anchors, away, alpha=-self.terms.anchor_rate * self.terms.pull)


def _bounded_scores(
    task: Task,
    outputs: Tensor,
    targets: Tensor,
    request: Evaluate,
    noise: Tensor,
) -> tuple[float, float]:
    """Return loss and metric with each sample's loss bounded, and noise on both.

    One sample may change both, so each has √2 times the noise of one alone.
    """
    assert request.bound is not None
    each = task.losses(outputs, targets)
    # Also what is no number: a failure would tell that there is such a sample.
    each = each.nan_to_num(nan=request.bound, posinf=request.bound).clamp(0.0, request.bound)
    if task.name == "regression":  # the metric is the loss
        loss = (each.mean() + request.noise * request.bound / len(each) * noise[0]).item()
        return loss, loss
    multiplier = math.sqrt(2) * request.noise
    loss = (each.mean() + multiplier * request.bound / len(each) * noise[0]).item()
    return max(loss, 0.0), noisy_score(task.name, outputs, targets, multiplier, noise[1:])

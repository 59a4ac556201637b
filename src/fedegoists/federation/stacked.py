"""The operations of many silos at once: one `vmap`, replayed as a CUDA graph on a GPU."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import cast

import torch
from torch import Tensor

from fedegoists.federation.batches import (
    augmentation_draws,
    stream_seed,
)
from fedegoists.federation.gradient_privacy import (
    gaussian_noise,
    samples_at_once,
)
from fedegoists.federation.module_trainer import (
    ADAM_EPSILON,
    check_differentiable,
    check_passes,
    check_private,
    dropout_seed,
    statistics_plan,
)
from fedegoists.federation.replies import (
    LARGEST,
    Evaluated,
    Gradients,
    Problem,
    Reply,
    Split,
    Trained,
)
from fedegoists.federation.representations import Represented, with_vectors, without_vectors
from fedegoists.federation.requests import (
    ClassWeights,
    Evaluate,
    Gradient,
    LocalTerms,
    Request,
    Train,
    TrainSettings,
)
from fedegoists.federation.silo_operations import (
    TINY,
    Silo,
    class_weights,
    evaluated_part,
    gradient_batch,
    learning_rates,
    pass_slices,
    step_noise,
    training_part,
    training_plan,
    weighted,
)
from fedegoists.federation.stacked_network import PER_PASS, StackedNetwork
from fedegoists.federation.stacked_tensors import (
    CapturedStep,
    add_terms,
    beside,
    cosine_gradient,
    descend_at_once,
    divided,
    padded,
    padded_weights,
)
from fedegoists.learning.network import Network
from fedegoists.learning.stacked_cnn import kernels_work
from fedegoists.learning.task import Task


class StackedSilos:
    """A set of silos whose operations run at once.

    Batches are gathered on the device from the one shared copy of the samples; nothing returns to
    the host before a round is over.

    Parameters
    ----------
    bf16 : bool
        Whether to compute activations with 16 bits.
    graphs : bool
        Whether to replay CUDA graphs on a GPU.
    beside : bool
        Whether to compute models side by side, see `StackedNetwork`.
    """

    def __init__(
        self,
        network: Network,
        silos: Sequence[Silo],
        *,
        bf16: bool = False,
        graphs: bool = True,
        beside: bool = False,
    ) -> None:
        self._network, self._silos = network, silos
        self._graphs = graphs and silos[0].targets.device.type == "cuda"
        # Batches are drawn on the host, so positions are needed there.
        self._positions = {
            split: [silo.splits[split].cpu().numpy() for silo in silos] for split in silos[0].splits
        }
        known: dict[bytes, int] = {}
        self._same = [
            known.setdefault(b"".join(own.tobytes() for own in splits), k)
            for k, splits in enumerate(zip(*self._positions.values(), strict=True))
        ]
        self._how = {"bf16": bf16, "graphs": graphs, "beside": beside}
        self._models = StackedNetwork(network, silos[0], bf16=bf16, beside=beside)
        self._represented = Represented(network)
        self._others: dict[int, StackedSilos] = {}
        self._captured: dict[object, CapturedStep] = {}
        self._splits: dict[Split, tuple[Tensor, list[int]]] = {}

    def carried_out(
        self, requests: Sequence[Request[Reply]], seeds: Sequence[int]
    ) -> Sequence[Reply | Problem]:
        """Carry out one request of each silo; they are alike but for their tensors."""
        device = self._silos[0].targets.device
        # Kernels and graphs are for the present GPU, which need not be that of the silos.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            if isinstance(requests[0], Train):
                return self.train(cast("Sequence[Train]", requests), seeds)
            if isinstance(requests[0], Gradient):
                return self.gradients(cast("Sequence[Gradient]", requests), seeds)
            return self.evaluate(cast("Sequence[Evaluate]", requests), seeds)

    def train(self, requests: Sequence[Train], seeds: Sequence[int]) -> list[Trained | Problem]:
        """Train every silo from its parameters."""
        settings = requests[0].settings
        if requests[0].terms is not None and requests[0].terms.representation is not None:
            return self._train_represented(requests, seeds)
        check_private(self._network, settings.clip, settings.class_weights, self._silos[0].weights)
        check_passes(self._network, settings.passes)
        self._network.set_mode("training")
        silos = [training_part(*one) for one in zip(self._silos, requests, seeds, strict=True)]
        positions = self._positions["train"]
        if requests[0].share is not None:
            positions = [silo.splits["train"].cpu().numpy() for silo in silos]
        parameters = torch.stack([request.parameters for request in requests])
        device = parameters.device
        terms = [request.terms or NO_TERMS for request in requests]
        inner = terms[0].inner_steps
        # The same silo in other coalitions draws the same.
        first, which = self._distinct(seeds)
        drawn_plans = [training_plan(len(positions[k]), settings, seeds[k], inner) for k in first]
        plans = [positions[k][own.numpy()] for k, (own, _) in zip(first, drawn_plans, strict=True)]
        plan, weights = padded(plans)
        rows = which.to(device)
        state = {
            "parameters": parameters,
            "momentum": torch.zeros_like(parameters),
            "losses": torch.zeros(len(seeds), device=device),
            "plan": plan.to(device).index_select(0, rows).transpose(0, 1).contiguous(),
            "rates": torch.tensor(learning_rates(settings, requests[0].first_step), device=device),
            "step": torch.zeros(1, dtype=torch.int64, device=device),
        }
        if settings.noise:
            by_step = padded_weights([own for _, own in drawn_plans], plan.shape)
            by_step = by_step.to(device).index_select(0, rows)
            state["step_weights"] = by_step.transpose(0, 1).contiguous()
        elif weights is not None:
            state["weights"] = weights.to(device).index_select(0, rows)
        if settings.augment:
            draws = torch.zeros(*plan.shape, 3, dtype=torch.uint8)
            for drawn, k, own in zip(draws, first, plans, strict=True):
                drawn[:, : own.shape[1]] = augmentation_draws(own.shape, seeds[k])
            state["draws"] = draws.to(device).index_select(0, rows).transpose(0, 1).contiguous()
        if settings.optimiser != "sgd":
            state["squares"] = torch.zeros_like(parameters)
        if self._network.seeds:
            numbers = [
                [[dropout_seed(seed, step, part) for seed in seeds] for part in range(parts)]
                for step in range(settings.steps)
                for parts in [min(settings.passes, plan.shape[-1])]
            ]
            state["seeds"] = torch.tensor(numbers, device=device)
        _add_class_weights(state, silos, settings.class_weights)
        add_terms(state, terms, settings.steps, self._network.schema)
        if settings.optimiser != "sgd":  # only the momentum of sgd goes on over rounds
            state["momentum"] = torch.zeros_like(parameters)
        sizes = [len(own) for own in positions]
        state = self._trained_steps(state, [one.settings for one in requests], seeds, sizes)
        anchors = state["anchor"].unbind() if "anchor_rates" in state else None
        if settings.optimiser != "sgd":
            state["momentum"] = torch.zeros_like(parameters)
        momenta = None if terms[0].momentum is None else state["momentum"].unbind()
        self._set_statistics(state["parameters"])
        fine = (state["parameters"].abs() < LARGEST).all(1)
        # One transfer for both: each waits for the device.
        usable, losses = torch.stack([fine.float(), state["losses"] / settings.steps]).tolist()
        return [
            Trained(
                parameters=own,
                loss=losses[k],
                samples=len(self._positions["train"][k]),
                sample_passes=settings.sample_passes(sizes[k]),
                anchor=None if anchors is None else anchors[k],
                momentum=None if momenta is None else momenta[k],
            )
            if usable[k] and math.isfinite(losses[k])
            else ("not finite", "parameters")
            for k, own in enumerate(state["parameters"].unbind())
        ]

    def _train_represented(
        self, requests: Sequence[Train], seeds: Sequence[int]
    ) -> list[Trained | Problem]:
        """Train with terms about representations, which are parameters of another network."""
        network = self._represented.network_for(requests[0])
        if id(network) not in self._others:
            self._others[id(network)] = StackedSilos(network, self._silos, **self._how)
        own = [with_vectors(one) for one in requests]
        found = self._others[id(network)].train(own, seeds)
        return [
            reply if isinstance(reply, tuple) else without_vectors(request, reply)
            for request, reply in zip(requests, found, strict=True)
        ]

    def _trained_steps(
        self,
        state: dict[str, Tensor],
        own: Sequence[TrainSettings],
        seeds: Sequence[int],
        sizes: Sequence[int],
    ) -> dict[str, Tensor]:
        """Take all steps; the noise of private training is drawn for some of them at once.

        The settings of silos differ in the strength of the noise at most. The sizes are those of
        the samples that they train with.
        """
        settings = own[0]
        key = ("train", repr(settings.model_copy(update={"noise": 0.0, "learning_rate": 0.0})))
        if not settings.noise:
            return self._repeated(key, lambda s: self._step(s, settings), state, settings.steps)
        like = state["parameters"]
        at_once = min(settings.steps, max(1, NOISE_AT_ONCE // like.numel()))
        for begin in range(0, settings.steps, at_once):
            steps = range(begin, min(begin + at_once, settings.steps))
            # Of one shape for all parts, so that a capture can be replayed.
            noise = torch.zeros(at_once, *like.shape, device=like.device)
            for place, step in enumerate(steps):
                for k, (size, seed) in enumerate(zip(sizes, seeds, strict=True)):
                    given = (own[k], like.shape[1:], size, seed, step, like.device)
                    noise[place, k] = step_noise(*given)
            state["noise"] = noise
            state["noise_step"] = torch.zeros(1, dtype=torch.int64, device=like.device)
            state = self._repeated(key, lambda s: self._step(s, settings), state, len(steps))
        return state

    def _distinct(self, seeds: Sequence[int]) -> tuple[list[int], Tensor]:
        """Return the silos that differ in samples or seed, and which of these each silo equals."""
        found: dict[tuple[int, int], int] = {}
        which = [found.setdefault(key, len(found)) for key in zip(self._same, seeds, strict=True)]
        first = dict(zip(reversed(which), reversed(range(len(which))), strict=True))
        return [first[number] for number in range(len(found))], torch.tensor(which)

    def _step(self, state: dict[str, Tensor], settings: TrainSettings) -> None:
        """Take one step of every silo, in place."""
        parameters, momentum, step = state["parameters"], state["momentum"], state["step"]
        plan = state["plan"].index_select(0, step)[0]
        draws = state["draws"].index_select(0, step)[0] if "draws" in state else None
        weights = state.get("weights")
        if "step_weights" in state:
            weights = state["step_weights"].index_select(0, step)[0]
        seeds = state["seeds"].index_select(0, step)[0] if "seeds" in state else None
        frozen = None
        if "frozen" in state:
            frozen = state["frozen"].index_select(0, state["early"].index_select(0, step))[0]
        batch = (plan, draws, weights, seeds)
        gradients, losses = self._in_passes(state, parameters, settings, *batch)
        if settings.sam_radius:
            # Foret et al., "Sharpness-aware minimization", 2021: ∇ℓ(w + ρ ∇ℓ(w)/‖∇ℓ(w)‖).
            along = gradients if frozen is None else gradients.masked_fill(frozen, 0.0)
            lengths = along.norm(dim=1, keepdim=True).clamp_min(TINY)
            moved = parameters + settings.sam_radius / lengths * along
            gradients, _ = self._in_passes(state, moved, settings, *batch)
        if "noise" in state:
            gradients = gradients + state["noise"].index_select(0, state["noise_step"])[0]
            state["noise_step"].add_(1)
        decay = settings.weight_decay if settings.optimiser != "adamw" else 0.0
        # Memory limits this part of a step on a GPU: one pass instead of five.
        fused = (
            settings.optimiser == "sgd" and "pace" not in state and kernels_work(parameters.device)
        )
        if decay and not fused:
            gradients = gradients + decay * parameters
        if "pull" in state:
            gradients = gradients + state["pull"] * (parameters - state["anchor"])
        if "towards" in state:
            gradients = gradients - state["attraction"] * cosine_gradient(
                parameters, state["towards"]
            )
        if "correction" in state:
            gradients = gradients + state["correction"]
        rate = state["rates"].index_select(0, step)
        if "pace" in state:
            rate = rate * state["pace"]
        aside = before = None
        if "aside" in state:
            aside = rate * state["aside"] * (state["anchor"] - parameters)
        if frozen is not None:
            before = parameters.clone()
        if fused:
            descend_at_once(parameters, momentum, gradients, rate, settings.momentum, decay)
        elif settings.optimiser == "sgd":
            momentum.mul_(settings.momentum).add_(gradients)
            parameters.sub_(rate * momentum)
        else:
            _adam_step(state, gradients, rate, settings)
        if aside is not None:
            parameters.add_(aside)
        if frozen is not None and before is not None:
            parameters.copy_(torch.where(frozen, before, parameters))
            for name in ("momentum", "squares"):
                if name in state:
                    state[name].mul_(~frozen)
        if "anchor_rates" in state:
            rate = state["anchor_rates"].index_select(0, step)
            state["anchor"].sub_(rate * state["outward"] * (state["anchor"] - parameters))
        state["losses"].add_(losses)
        step.add_(1)

    def _in_passes(
        self,
        state: dict[str, Tensor],
        parameters: Tensor,
        settings: TrainSettings,
        plan: Tensor,
        draws: Tensor | None,
        weights: Tensor | None,
        seeds: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return gradients and losses of a step: sums over the parts of its batches."""
        parts = pass_slices(plan.shape[-1], settings.passes)
        if len(parts) > 1 and weights is None:
            weights = torch.full(plan.shape, 1 / plan.shape[-1], device=plan.device)
        sums: tuple[Tensor, Tensor] | None = None
        for number, part in enumerate(parts):
            found = self._models.gradients(
                parameters,
                plan[:, part],
                None if draws is None else draws[:, part],
                None if weights is None else weights[:, part],
                state.get("by_class"),
                None if seeds is None else seeds[number],
                clip=settings.clip,
            )
            sums = found if sums is None else (sums[0] + found[0], sums[1] + found[1])
        assert sums is not None  # a batch has samples
        return sums

    def _set_statistics(self, parameters: Tensor) -> None:
        """Put batch statistics into trained models, in place, where they travel."""
        schema = self._network.schema
        if schema.statistics:
            found = self._computed_statistics(parameters, torch.arange(len(parameters)))
            for name, own in schema.unflatten(parameters).items():
                if name in schema.statistics:
                    own.copy_(found[name])

    def gradients(
        self, requests: Sequence[Gradient], seeds: Sequence[int]
    ) -> list[Gradients | Problem]:
        """Return losses and gradients at each model of each silo."""
        request, network = requests[0], self._network
        check_private(network, request.clip, request.class_weights, self._silos[0].weights)
        check_differentiable(network)
        check_passes(network, request.passes)
        parameters = [one.rows for one in requests]
        counts = [rows.shape[0] for rows in parameters]
        step, clip = request.step, request.clip
        first, which = self._distinct(seeds)
        positions = self._positions[request.split]
        drawn_batches = [gradient_batch(len(positions[k]), request, seeds[k]) for k in first]
        batches = [positions[k][own] for k, (own, *_) in zip(first, drawn_batches, strict=True)]
        plan, weights = padded([batch[None] for batch in batches])
        if request.noise:
            own_weights = [torch.from_numpy(own)[None] for _, own, _ in drawn_batches]
            weights = padded_weights(own_weights, plan.shape)[:, 0]
        parts = pass_slices(plan.shape[-1], request.passes if clip is None else 1)
        device = parameters[0].device
        rows = which.repeat_interleave(torch.tensor(counts)).to(device)
        together = torch.cat(list(parameters))
        silo_of = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        state = {
            "parameters": together,
            "plan": plan[:, 0].to(device)[rows],
            "gradients": torch.empty_like(together),
            "losses": torch.empty(len(together), device=device),
        }
        if weights is not None:
            state["weights"] = weights.to(device)[rows]
        if request.augment:
            draws = torch.zeros(*plan[:, 0].shape, 3, dtype=torch.uint8)
            for drawn, batch, k in zip(draws, batches, first, strict=True):
                own_seed = stream_seed(seeds[k], step)
                drawn[: len(batch)] = augmentation_draws(batch.shape, own_seed)
            state["draws"] = draws.to(device)[rows]
        if network.seeds:
            own = [[dropout_seed(seed, step, k) for k in range(len(parts))] for seed in seeds]
            state["seeds"] = torch.tensor(own)[silo_of].to(device)
        _add_class_weights(state, self._silos, request.class_weights)
        if "by_class" in state:
            state["by_class"] = state["by_class"][silo_of.to(device)]
        if request.split != "train":  # a model is there as it would be used
            found = self._statistics(together, silo_of)
            state |= {f"{STATISTIC}{name}": value for name, value in found.items()}
        network.set_mode("training" if request.split == "train" else "evaluation")
        kind = ("loss_and_gradient", clip, request.split == "train", len(parts))
        per_pass = self._models.per_pass
        if clip is not None:  # gradients of single samples are made without kernels
            per_pass = min(PER_PASS, samples_at_once(self._network.schema, device))
        most = max(1, per_pass // parts[0].stop)
        passes = [
            self._repeated(kind, lambda s: self._measure(s, clip, parts), rows, 1)
            for rows in divided(state, most)
        ]
        if len(passes) > 1:
            state = {name: torch.cat([done[name] for done in passes]) for name in state}
        else:
            state = passes[0]
        gradients = state["gradients"]
        sizes = [drawn_batches[k][2] for k in which.tolist()]
        if clip is not None and request.noise:
            drawn_noise = [
                gaussian_noise(
                    torch.Size((count, gradients.shape[1])), request.noise * clip / size, seed, step
                )
                for count, size, seed in zip(counts, sizes, seeds, strict=True)
            ]
            gradients = gradients + torch.cat(drawn_noise).to(gradients)
        usable = (gradients.abs() < LARGEST).all(1)
        # One transfer for both: each waits for the device.
        flags, numbers = map(iter, torch.stack([usable.float(), state["losses"]]).tolist())
        return [
            Gradients(losses=losses, gradient=rows.reshape(one.shape), samples=size)
            if all(fine) and all(map(math.isfinite, losses))
            else ("not finite", "gradient")
            for one, rows, size in zip(requests, torch.split(gradients, counts), sizes, strict=True)
            for fine, losses in [tuple(tuple(islice(x, len(rows))) for x in (flags, numbers))]
        ]

    def _measure(
        self, state: dict[str, Tensor], clip: float | None, parts: Sequence[slice]
    ) -> None:
        """Put losses and gradients into a state: sums over the parts of its batches."""
        fixed = {
            name.removeprefix(STATISTIC): value
            for name, value in state.items()
            if name.startswith(STATISTIC)
        }
        plan, draws, weights = (state.get(name) for name in ("plan", "draws", "weights"))
        assert plan is not None
        if len(parts) > 1 and weights is None:
            weights = torch.full(plan.shape, 1 / plan.shape[-1], device=plan.device)
        for number, part in enumerate(parts):
            gradients, losses = self._models.gradients(
                state["parameters"],
                plan[:, part],
                None if draws is None else draws[:, part],
                None if weights is None else weights[:, part],
                state.get("by_class"),
                state["seeds"][:, number] if "seeds" in state else None,
                clip=clip,
                fixed=fixed,
            )
            if number == 0:
                state["gradients"].copy_(gradients)
                state["losses"].copy_(losses)
            else:
                state["gradients"].add_(gradients)
                state["losses"].add_(losses)

    @torch.no_grad()
    def evaluate(
        self, requests: Sequence[Evaluate], seeds: Sequence[int]
    ) -> list[Evaluated | Problem]:
        """Return mean losses and metrics of each model of each silo."""
        request = requests[0]
        counts = [one.rows.shape[0] for one in requests]
        together = torch.cat([one.rows for one in requests])
        if request.share is None:
            positions, sizes = self._whole(request.split, together.device)
        else:
            positions, sizes = beside(
                [
                    own[evaluated_part(silo, request, seed)]
                    for own, silo, seed in zip(
                        self._positions[request.split], self._silos, seeds, strict=True
                    )
                ],
                together.device,
            )
        silo_of = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        silo_of = silo_of.to(together.device)
        found = self._statistics(together, silo_of)
        self._network.set_mode("evaluation")
        models = []
        for rows in torch.split(torch.arange(len(together)), self._models.most_rows(EVALUATED)):
            columns = torch.split(positions[silo_of[rows]], EVALUATED, 1)
            fixed = {name: value[rows] for name, value in found.items()}
            models.append(
                torch.cat(
                    [self._models.outputs(together[rows], some, fixed) for some in columns], 1
                )
            )
        outputs, targets = torch.cat(models), self._silos[0].targets[positions]
        own_sizes = [sizes[k] for k, count in enumerate(counts) for _ in range(count)]
        task = self._network.task
        factors = self._silos[0].factors(positions)
        if type(task) is Task and task.name == "classification":
            own = None if factors is None else factors[silo_of]
            scored = _accuracies(task, outputs, targets[silo_of], own_sizes, own)
        else:
            # This is little work in many small steps, which a GPU would be slow at.
            outputs, targets = outputs.cpu(), targets.cpu()[silo_of.cpu()]
            counts_as = [None] * len(sizes) if factors is None else factors.cpu().unbind()
            scored = [
                (
                    task.loss(row, target, weighted(None, own)).item(),
                    task.score(row, target, self._silos[k].spread),
                )
                for k, size, rows, wide in zip(
                    silo_of.tolist(), own_sizes, outputs, targets, strict=True
                )
                for row, target in [(rows[:size], wide[:size])]
                for own in [None if counts_as[k] is None else counts_as[k][:size]]
            ]
        numbers = iter(scored)
        replies: list[Evaluated | Problem] = []
        for one, count, size in zip(requests, counts, sizes, strict=True):
            losses, scores = zip(*islice(numbers, count), strict=True)
            reply = Evaluated(losses=losses, scores=scores, samples=size)
            replies.append(reply.problem(one.shape) or reply)
        return replies

    def _statistics(self, parameters: Tensor, silo_of: Tensor) -> dict[str, Tensor]:
        """Return the batch statistics with which silos evaluate models, where they have own."""
        if not self._network.needs_samples:
            return {}
        return self._computed_statistics(parameters, silo_of)

    def _computed_statistics(self, parameters: Tensor, silo_of: Tensor) -> dict[str, Tensor]:
        """Return the batch statistics of models over their silos' own training samples."""
        plans = [own[statistics_plan(len(own)).numpy()] for own in self._positions["train"]]
        plan, uneven = padded(plans)
        assert uneven is None  # silos are stacked by the size of their batches
        return self._models.statistics(parameters, plan[silo_of.cpu()].to(parameters.device))

    def _whole(self, split: Split, device: torch.device) -> tuple[Tensor, list[int]]:
        """Return the positions of a split, one row for each silo, and the silos' sizes."""
        if split not in self._splits:
            self._splits[split] = beside(self._positions[split], device)
        return self._splits[split]

    def _repeated(
        self,
        kind: object,
        function: Callable[[dict[str, Tensor]], None],
        state: dict[str, Tensor],
        times: int,
    ) -> dict[str, Tensor]:
        """Apply a function that works in place some times; on a GPU by replaying a capture."""
        if not self._graphs:
            for _ in range(times):
                function(state)
            return state
        key = (kind, tuple((name, tuple(value.shape)) for name, value in state.items()))
        if key not in self._captured:
            if len(self._captured) >= MOST_CAPTURED:
                self._captured.pop(next(iter(self._captured)))
            self._captured[key] = CapturedStep(function, state)
        return self._captured[key].replay(state, times)


NO_TERMS = LocalTerms()

STATISTIC = "statistic "
"""Prefix of batch statistics among the tensors of a step."""

EVALUATED = 256
"""Samples of each silo among them in an evaluation."""

NOISE_AT_ONCE = 2**28
"""Numbers of noise that are drawn at once, 1 GiB."""

MOST_CAPTURED = 4
"""Captured steps hold memory; a method uses three at most."""


def _add_class_weights(
    state: dict[str, Tensor], silos: Sequence[Silo], wanted: ClassWeights | None
) -> None:
    """Add the weights of classes, one row for each silo, to the state."""
    if wanted is not None:
        found = [class_weights(silo, wanted) for silo in silos]
        rows = torch.stack([own for own in found if own is not None])
        state["by_class"] = rows.to(state["parameters"].device)


def _adam_step(
    state: dict[str, Tensor], gradients: Tensor, rate: Tensor, settings: TrainSettings
) -> None:
    """Take a step of Adam or AdamW with every silo, in place."""
    parameters, squares = state["parameters"], state["squares"]
    one, two = settings.momentum, settings.second_momentum
    count = (state["step"] + 1).to(parameters.dtype)
    state["momentum"].mul_(one).add_(gradients, alpha=1 - one)
    squares.mul_(two).addcmul_(gradients, gradients, value=1 - two)
    if settings.weight_decay and settings.optimiser == "adamw":
        parameters.mul_(1 - rate * settings.weight_decay)
    lengths = (squares / (1 - two**count)).sqrt_().add_(ADAM_EPSILON)
    parameters.sub_(rate / (1 - one**count) * state["momentum"] / lengths)


def _accuracies(
    task: Task, outputs: Tensor, targets: Tensor, sizes: Sequence[int], factors: Tensor | None
) -> list[tuple[float, float]]:
    """Return mean loss and accuracy for each row of models, all of them at once."""
    many = torch.tensor(sizes, device=outputs.device)[:, None]
    own = torch.arange(targets.shape[1], device=outputs.device) < many
    losses = task.losses(outputs.flatten(0, 1), targets.flatten()).reshape(targets.shape)
    losses = losses if factors is None else factors * losses
    right = (outputs.argmax(-1) == targets) & own
    sums = torch.stack([torch.where(own, losses, 0.0).double().sum(1), right.double().sum(1)])
    loss, score = (sums / many[:, 0]).tolist()
    return list(zip(loss, score, strict=True))

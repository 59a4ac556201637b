"""The Pareto hypernetwork: one network that generates the best model for every mixture of silos.

Navon et al., Learning the Pareto Front with Hypernetworks (ICLR 2021), as FedEgoists uses it: HN(r)
generates a model for the preference vector r. In every step r is drawn at random, every silo
returns its gradient at HN(r), and the server descends Σ_j r_j ℓ_j(HN(r)). No data leaves a silo.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedegoists.benefit.estimator import TINY, Inquiry
from fedegoists.benefit.silo_queries import RARELY
from fedegoists.federation import Gradient
from fedegoists.federation.batches import stream_seed
from fedegoists.learning.hypernetwork import Hypernetworks

REPORTS = 100
"""The number of progress reports, and of values in the history."""


@dataclass(frozen=True)
class ParetoFront:
    """Trained hypernetworks, one for each repetition and repeat.

    Attributes
    ----------
    networks : Hypernetworks
        Repetition by repetition, and in each repeat by repeat.
    present : Tensor
        Of shape (repetitions, participants): which ones answered often enough to be in the
        mixtures.
    losses : Tensor
        Of shape (reports, repetitions): the weighted training loss along the way.
    """

    networks: Hypernetworks
    present: Tensor
    losses: Tensor
    scale: float

    def models(self, preferences: Tensor) -> Tensor:
        """Return the models (repetitions, repeats, rows, parameters) for preferences."""
        flat = self.scale * preferences.flatten(0, 1)
        return self.networks.generate(flat).reshape(*preferences.shape[:3], -1)

    def slopes(self, preferences: Tensor, gradients: Tensor) -> Tensor:
        """Return the gradient of the preferences, given that of the models."""
        flat = self.scale * preferences.flatten(0, 1)
        back = self.scale * self.networks.input_gradient(flat, gradients.flatten(0, 1))
        return back.reshape(preferences.shape)


def learn_front(inquiry: Inquiry) -> ParetoFront:
    """Train a hypernetwork for each repetition and repeat, all at once."""
    queries, settings = inquiry.queries, inquiry.settings
    federation, (repetitions, n) = queries.federation, queries.shape
    repeats, device = settings.repeats, federation.device
    seeds = [stream_seed(settings.seed, repeat, "hypernetwork") for repeat in range(repeats)]
    starts = torch.stack([federation.schema.drawn(seed) for seed in seeds]).to(device)
    networks = Hypernetworks.drawn(
        [n] * repetitions * repeats,
        starts.repeat(repetitions, 1),
        seeds * repetitions,
        hidden=settings.hidden,
        layers=settings.layers,
    )
    tensors = list(networks.tensors.values())
    optimiser = torch.optim.Adam(tensors, lr=settings.rate, fused=True)
    draw = np.random.default_rng(stream_seed(settings.seed, "preferences"))
    alive = torch.ones(repetitions, n, dtype=torch.bool)
    answers = torch.zeros(repetitions, n)
    reports, objective = [], torch.zeros(repetitions)
    every = max(1, settings.steps // REPORTS)
    for step in range(settings.steps):
        drawn = draw.dirichlet([settings.concentration] * n, (repeats, repetitions)).swapaxes(0, 1)
        # A mixture with a silent participant would say nothing about the others.
        mixture = (torch.from_numpy(drawn).float() + TINY) * alive[:, None]
        mixture = (mixture / mixture.sum(-1, keepdim=True).clamp_min(TINY)).to(device)
        inputs = settings.scale * mixture.reshape(repetitions * repeats, 1, n)
        # Equation 9: h = HN(φ, r), one model for each drawn preference vector r.
        models = networks.generate(inputs).reshape(repetitions, 1, repeats, -1)
        gradients, losses, answered = queries.gradients(
            models.expand(-1, n, -1, -1),
            partial(
                Gradient,
                batch_size=settings.batch_size,
                step=step,
                seed=f"{settings.seed}/hypernetwork",
                clip=settings.clip,
                noise=settings.noise,
            ),
        )
        if alive.any(1).all() and answered.any():
            alive = torch.where(answered.any(1, keepdim=True), answered, alive)
        answers += answered
        objective += torch.einsum("tri,tir->t", mixture.cpu(), losses) / repeats
        pulled = _bounded(gradients, answered.to(device), settings.bound)
        # Linear scalarisation: ∇ Σ_j r_j ℓ_j(h), whose minima over φ are the Pareto solutions of
        # Equation 8. Each h is HN(φ, r), Equation 9, and its gradient continues to φ below.
        total = torch.einsum("tri,tirp->trp", mixture, pulled).reshape(repetitions * repeats, 1, -1)
        for name, gradient in networks.gradient(inputs, total).items():
            networks.tensors[name].grad = gradient
        for group in optimiser.param_groups:
            group["lr"] = settings.rate * 0.5 * (1 + math.cos(math.pi * step / settings.steps))
        optimiser.step()
        if (step + 1) % every == 0 or step + 1 == settings.steps:
            reports.append(objective / (step % every + 1))
            inquiry.progress("hypernetwork", step + 1, settings.steps, reports[-1].mean().item())
            objective = torch.zeros(repetitions)
    for tensor in tensors:
        tensor.grad = None
    present = answers >= RARELY * settings.steps
    queries.restart_count()  # the evaluations that follow are counted by themselves
    return ParetoFront(networks, present, torch.stack(reports), settings.scale)


def _bounded(gradients: Tensor, answered: Tensor, bound: float) -> Tensor:
    """Clip gradients that are much longer than those of the other silos.

    So no silo can move the shared network further than a few honest ones, however it scales its
    gradients. The median is over the silos that answered, for each model.
    """
    norms = gradients.norm(dim=3)
    known = norms.masked_fill(~answered[:, :, None], torch.nan)
    limit = bound * known.nanmedian(1, keepdim=True).values.nan_to_num()
    factor = (limit / norms.clamp_min(TINY)).clamp_max(1.0)
    shortened: Tensor = gradients * factor[..., None]
    return shortened

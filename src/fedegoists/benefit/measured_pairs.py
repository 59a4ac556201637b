"""The ground truth: models trained on the data of i alone and of i and j, on i's test data.

Every set of participants that is needed (single ones, pairs, all but one, all) has a model of its
own, trained by the gradient of its members' pooled loss. All of them train at once: in every step a
silo is asked for its gradients at the models of all sets it is in.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedegoists.benefit.estimate import DEFAULT_CONFIDENCE, quantile
from fedegoists.benefit.estimator import Progress
from fedegoists.benefit.local_models import FARTHEST
from fedegoists.benefit.silo_queries import Apart, Cost, Pairs, SiloQueries, by_repetition
from fedegoists.errors import SettingsError
from fedegoists.federation import (
    Evaluate,
    Federation,
    Gradient,
    Repetition,
    TrainSettings,
)
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.replies import Split
from fedegoists.federation.silo_operations import learning_rates
from fedegoists.federation.validated import Validated

__all__ = ["MeasureSettings", "MeasuredBenefit", "measure", "measure_repetitions"]

Matrix = npt.NDArray[np.float64]


class MeasureSettings(Validated):
    """How the ground truth is measured.

    Attributes
    ----------
    train : TrainSettings
        How each set's model is trained: ``steps`` in all, the learning rate falling to zero.
    evaluations : int
        How many steps, evenly spread, a participant may choose from by its validation loss.
    repeats : int
        Independent runs, from other initial models and with other batches.
    split : str
        The data on which the models are judged.
    leave_one_out : bool
        Whether to train also all together and all but one.
    """

    train: TrainSettings = TrainSettings(steps=600, learning_rate=0.02)
    evaluations: int = Field(default=8, ge=1)
    repeats: int = Field(default=3, ge=1)
    split: Split = "test"
    leave_one_out: bool = True
    seed: int = 0

    @model_validator(mode="after")
    def _possible(self) -> "MeasureSettings":
        if self.evaluations > self.train.steps:
            raise ValueError(f"{self.evaluations} evaluations in {self.train.steps} steps")
        return self


@dataclass(frozen=True)
class MeasuredBenefit:
    """The measured gains of training together; ``[j, i]`` is the gain of i by j.

    Attributes
    ----------
    alone : array of shape (repeats, n)
        The losses after training alone.
    gains : array of shape (repeats, n, n)
        The fraction by which i's loss fell when i trained with j; NaN where it was not measured.
    losses_without : array of shape (repeats, n, n), optional
        The fraction by which i's loss after training with all others rose when j was left out.
    failures : tuple of str
        Participants that did not always answer, or diverged: all their results are NaN.
    """

    participants: tuple[str, ...]
    alone: Matrix = field(repr=False)
    gains: Matrix = field(repr=False)
    losses_without: Matrix | None = field(repr=False, default=None)
    cost: Cost = field(default_factory=Cost)
    failures: tuple[str, ...] = ()

    @property
    def mean(self) -> Matrix:
        """The mean gains over repeats."""
        mean: Matrix = self.gains.mean(0)
        return mean

    def interval(self, confidence: float = DEFAULT_CONFIDENCE) -> tuple[Matrix, Matrix]:
        """Return a confidence interval of each gain, by Student's t over repeats."""
        if len(self.gains) < 2:
            raise SettingsError("one repeat says nothing of its spread: use repeats of at least 2")
        error = self.gains.std(0, ddof=1) / math.sqrt(len(self.gains))
        width = quantile((1 + confidence) / 2, len(self.gains) - 1) * error
        return self.mean - width, self.mean + width

    def edges(self, confidence: float = DEFAULT_CONFIDENCE) -> npt.NDArray[np.bool_]:
        """Return where the gain is above zero with a (one-sided) confidence."""
        low, _ = self.interval(2 * confidence - 1)
        with np.errstate(invalid="ignore"):
            edges: npt.NDArray[np.bool_] = low > 0
        return edges & ~np.eye(len(self.participants), dtype=bool)


def measure(
    federation: Federation,
    settings: MeasureSettings | None = None,
    *,
    pairs: Iterable[tuple[str, str]] | None = None,
    apart: Pairs = (),
    progress: Progress | None = None,
) -> MeasuredBenefit:
    """Train participants alone and in pairs, and compare.

    Parameters
    ----------
    pairs : iterable of (source, target), optional
        Which pairs; all if left out.
    apart : collection of pairs of names
        Competitors: no model is trained on the data of both, since each would see it. Where there
        are any, there is no model of all together, and none is left out of it.
    """
    (measured,) = measure_repetitions(
        federation, settings, pairs=pairs, apart={None: apart}, progress=progress
    ).values()
    return measured


def measure_repetitions(
    federation: Federation,
    settings: MeasureSettings | None = None,
    *,
    pairs: Iterable[tuple[str, str]] | None = None,
    apart: Apart | None = None,
    progress: Progress | None = None,
) -> dict[Repetition | None, MeasuredBenefit]:
    """Measure all repetitions at once.

    Competitors in one repetition are taken for competitors in all of them.
    """
    settings = settings or MeasureSettings()
    groups = by_repetition(federation)
    names = tuple(groups.values())
    queries = SiloQueries(federation, names)
    rivals = queries.among(apart or {}).any(0)
    sets, wanted = _sets([one.name for one in names[0]], pairs, rivals, settings)
    runs = [
        _run(queries, sets, settings, repeat, progress or (lambda *_: None))
        for repeat in range(settings.repeats)
    ]
    losses = torch.stack(runs)  # repeats, repetitions, participants, sets; NaN where not measured
    return {
        repetition: _result(
            tuple(one.name for one in names[g]),
            losses[:, g].double().numpy(),
            sets,
            wanted,
            queries.cost(g),
            queries.failures_in(g),
        )
        for g, repetition in enumerate(groups)
    }


def _sets(
    names: Sequence[str],
    pairs: Iterable[tuple[str, str]] | None,
    rivals: Tensor,
    settings: MeasureSettings,
) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Return the sets to train, as positions, and the pairs (source, target) asked for."""
    n = len(names)
    position = {name: k for k, name in enumerate(names)}
    if pairs is None:
        wanted = [(j, i) for j in range(n) for i in range(n) if i != j and not rivals[j, i]]
    else:
        wanted = []
        for source, target in pairs:
            if source not in position or target not in position or source == target:
                raise SettingsError(f"({source!r}, {target!r}) is not a pair of two participants")
            wanted.append((position[source], position[target]))
            if rivals[wanted[-1]]:
                raise SettingsError(f"{source!r} and {target!r} compete: they cannot be a pair")
    sets: dict[tuple[int, ...], None] = {(k,): None for k in range(n)}
    sets |= {tuple(sorted(pair)): None for pair in wanted}
    if settings.leave_one_out and not rivals.any():
        everybody = tuple(range(n))
        sets |= {tuple(k for k in everybody if k != left): None for left in everybody}
        sets[everybody] = None
    return list(sets), wanted


def _run(
    queries: SiloQueries,
    sets: Sequence[tuple[int, ...]],
    settings: MeasureSettings,
    repeat: int,
    progress: Progress,
) -> Tensor:
    """Train all models once; return losses (repetitions, participants, sets) of chosen steps."""
    federation, (repetitions, n) = queries.federation, queries.shape
    train = settings.train
    rates = learning_rates(train.changed(total_steps=train.steps), 0)
    seed = stream_seed(settings.seed, repeat, "measure")
    start = federation.schema.drawn(seed).to(federation.device)
    models = start.expand(repetitions, len(sets), -1).clone()
    speeds = torch.zeros_like(models)
    mine = [[s for s, members in enumerate(sets) if k in members] for k in range(n)]
    width = max(map(len, mine))
    # A silo in fewer sets than another is asked about one of its sets again, with no weight.
    asked = torch.tensor([own + own[:1] * (width - len(own)) for own in mine])
    counted = torch.tensor([[k < len(own) for k in range(width)] for own in mine])
    samples = queries.samples()
    shares = _shares(samples, sets, asked, counted).to(models.device)
    members = torch.tensor([[k in members for k in range(n)] for members in sets])
    silent = samples == 0
    diverged = torch.zeros(models.shape[:2], dtype=torch.bool, device=models.device)
    marks = {
        round(train.steps * (k + 1) / settings.evaluations) for k in range(settings.evaluations)
    }
    best = torch.full((repetitions, n, width), torch.inf)
    chosen = torch.full((repetitions, n, width), torch.nan)
    for step, rate in enumerate(rates):
        gradients, _, answered = queries.gradients(
            models[:, asked],
            partial(
                Gradient,
                batch_size=train.batch_size,
                step=step,
                seed=f"{seed}/measure",
                augment=train.augment,
            ),
        )
        total = torch.zeros_like(models)
        for k in range(n):
            total.index_add_(1, asked[k].to(models.device), shares[:, k, :, None] * gradients[:, k])
        if train.weight_decay:
            total += train.weight_decay * models
        speeds.mul_(train.momentum).add_(total)
        models -= rate * speeds
        silent |= ~answered
        # One model that is lost must not keep a silo from answering about the others.
        beyond = ~((models - start).norm(dim=-1) < FARTHEST * start.norm().clamp_min(1.0))
        models[beyond], speeds[beyond] = start, 0.0
        diverged |= beyond
        if step + 1 in marks:
            rows = models[:, asked]
            validation = queries.losses(rows, partial(Evaluate, split="validation"))
            judged = queries.losses(rows, partial(Evaluate, split=settings.split))
            better = validation < best
            best = torch.where(better, validation, best)
            chosen = torch.where(better, judged, chosen)
            progress(f"measuring {repeat + 1}", step + 1, train.steps, chosen.nanmean().item())
    result = torch.full((repetitions, n, len(sets)), torch.nan)
    for k, own in enumerate(mine):
        result[:, k, own] = chosen[:, k, : len(own)]
    lost = (silent[:, None] & members).any(-1) | diverged.cpu()
    return result.masked_fill(lost[:, None], torch.nan)


def _shares(
    samples: Tensor, sets: Sequence[tuple[int, ...]], asked: Tensor, counted: Tensor
) -> Tensor:
    """Return which part of a set's pooled samples is a silo's, for every row it is asked about."""
    sums = torch.stack([samples[:, list(members)].sum(1) for members in sets], 1)
    return samples[:, :, None] / sums[:, asked].clamp_min(1.0) * counted


def _result(
    names: tuple[str, ...],
    losses: Matrix,
    sets: Sequence[tuple[int, ...]],
    wanted: Sequence[tuple[int, int]],
    cost: Cost,
    failures: tuple[str, ...],
) -> MeasuredBenefit:
    n = len(names)
    place = {members: s for s, members in enumerate(sets)}
    alone = np.stack([losses[:, k, place[k,]] for k in range(n)], 1)
    gains = np.full((len(losses), n, n), np.nan)
    gains[:, range(n), range(n)] = 0.0
    for j, i in wanted:
        together = losses[:, i, place[min(i, j), max(i, j)]]
        gains[:, j, i] = 1 - together / alone[:, i]
    without = None
    everybody = tuple(range(n))
    if everybody in place and n > 2:
        without = np.zeros((len(losses), n, n))
        for j in range(n):
            rest = place[tuple(k for k in everybody if k != j)]
            for i in everybody:
                if i != j:
                    without[:, j, i] = losses[:, i, rest] / losses[:, i, place[everybody]] - 1
    lost = [s for s, members in enumerate(sets) if np.isnan(losses[:, list(members), s]).any()]
    failures += tuple(
        f"{', '.join(names[k] for k in sets[s])}: no result in every repeat" for s in lost
    )
    return MeasuredBenefit(names, alone, gains, without, cost, failures)

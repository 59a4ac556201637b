"""The estimator ``curves``: learning curves at home, and transfers of models between silos.

Every silo trains on quarters, halves and all of its samples. A model of one half is judged on the
other, which is mostly larger than the validation data; the model of all samples on the validation
data. These models stay at home, and only their scores leave. Where `LearnSettings.transfers` is
set, the models of all samples are also sent to the other silos, which judge them on the same
halves as their own. `fedegoists.benefit.curve_fit` makes coalition values of the scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedegoists.benefit.curve_fit import Floats, HomeScores, curve_values, pair_gains, with_absent
from fedegoists.benefit.decoys import Disguise
from fedegoists.benefit.estimator import Inquiry, Learned
from fedegoists.benefit.local_models import near
from fedegoists.benefit.silo_queries import SiloQueries
from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Personal, Train
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.replies import Described
from fedegoists.federation.requests import EVERYTHING

if TYPE_CHECKING:
    from fedegoists.graphs import CurveValues

HALVES = 2
QUARTERS = (0, 3)
"""For each half the quarter that has no sample outside of it, whatever the number of samples."""

MOST_TOGETHER = 8
"""Models of others in one call of a silo."""

AT_HOME = Personal(prefixes=EVERYTHING, slot="curves/model")


@dataclass(frozen=True)
class _Scores:
    """Scores of all repetitions, as `HomeScores` has them, with repetitions in front."""

    quarter: Tensor
    half: Tensor
    checked_half: Tensor
    checked_all: Tensor
    others: Tensor | None


def curves(inquiry: Inquiry) -> Learned:
    """Learn coalition values; a weight is what i gains with j alone, where that is positive."""
    queries, task = inquiry.queries, inquiry.queries.federation.task
    described = queries.descriptions()
    scores, present = _gathered(inquiry)
    repetitions, n = queries.shape
    gains, errors = torch.zeros(repetitions, n, n), torch.zeros(repetitions, n, n)
    values: list[CurveValues] = []
    for k in range(repetitions):
        present[k] &= torch.tensor([(k, i) in described for i in range(n)])
        usable = present[k].nonzero()[:, 0].tolist()
        if len(usable) < 2:
            raise SettingsError(
                f"{len(usable)} of {n} silos answered; learning curves need at least two: "
                + ("; ".join(queries.failures_in(k)) or "see their logs")
            )
        own = [described[k, i] for i in usable]
        names = [one.name for one in queries.names[k]]
        known = _of_repetition([names[i] for i in usable], own, scores, k, usable, task.name)
        rivals = inquiry.rivals[k].numpy()
        values.append(with_absent(curve_values(known, task.metric), names, rivals))
        for matrix, numbers in zip((gains, errors), pair_gains(values[k]), strict=True):
            matrix[k] = torch.from_numpy(numbers.T)  # targets in rows, as all estimators have them
    # Two halves that differ by twice a standard error have this one.
    runs = torch.stack([gains - errors, gains + errors], 1)[:, None]
    runs = runs.expand(-1, inquiry.settings.repeats, -1, -1, -1)
    weights = gains.clamp_min(0.0)[:, None, None].expand_as(runs)
    return Learned(weights, runs, present, values=tuple(values))


def _gathered(inquiry: Inquiry) -> tuple[_Scores, Tensor]:
    """Have all silos train and judge; return the scores, and which silos always answered."""
    queries, settings = inquiry.queries, inquiry.settings
    repetitions, n = queries.shape
    repeats, nan = settings.repeats, torch.nan
    quarter, half, checked = (torch.full((repetitions, repeats, HALVES, n), nan) for _ in range(3))
    checked_all = torch.full((repetitions, repeats, n), nan)
    others = None
    if settings.transfers:
        others = torch.full((repetitions, repeats, HALVES, n, n), nan)
    present = torch.ones(repetitions, n, dtype=torch.bool)
    stages = repeats * (2 * HALVES + 1)
    for repeat in range(repeats):
        seed = stream_seed(settings.seed, repeat, "curves")
        start = queries.federation.schema.drawn(seed).to(queries.federation.device)
        at_home = partial(_trained_at_home, queries, start, partial(Train, settings=settings.local))
        done = repeat * (2 * HALVES + 1)
        for h in range(HALVES):
            unseen = partial(Evaluate, split="train", share=0.5, step=1 - h, seed=seed)
            present &= at_home(seed=seed, share=0.25, part=QUARTERS[h])
            quarter[:, repeat, h] = _own(queries, start, unseen)
            present &= at_home(seed=seed, share=0.5, part=h)
            half[:, repeat, h] = _own(queries, start, unseen)
            checked[:, repeat, h] = _own(queries, start, partial(Evaluate, split="validation"))
            mean = half[:, repeat, h].nanmean().item()
            inquiry.progress("learning curves", done + 2 * h + 2, stages, mean)
        if others is None:
            present &= at_home(seed=seed)
            checked_all[:, repeat] = _own(queries, start, partial(Evaluate, split="validation"))
        else:
            rows = start.expand(repetitions, n, -1)
            models, answered = queries.trained(
                rows, partial(Train, settings=settings.local, seed=seed)
            )
            present &= answered
            models = near(models, start)
            check = partial(Evaluate, split="validation")
            checked_all[:, repeat] = queries.scores(models[:, :, None], check)[:, :, 0]
            for h in range(HALVES):
                unseen = partial(Evaluate, split="train", share=0.5, step=1 - h, seed=seed)
                others[:, repeat, h] = _transferred(inquiry, models, start, repeat, h, unseen)
        inquiry.progress("learning curves", done + 2 * HALVES + 1, stages, mean)
    queries.forget(AT_HOME.slot)
    return _Scores(quarter, half, checked.mean(2), checked_all, others), present


def _trained_at_home(
    queries: SiloQueries, start: Tensor, request: "partial[Train]", **how: float
) -> Tensor:
    """Train models that stay at home; return which silos answered."""
    queries.forget(AT_HOME.slot)  # else a silo would go on with the model before
    rows = start.expand(*queries.shape, -1)
    return queries.trained(rows, partial(request, personal=AT_HOME, **how))[1]


def _own(queries: SiloQueries, start: Tensor, request: "partial[Evaluate]") -> Tensor:
    """Return the scores of the models that are at home."""
    rows = start.expand(*queries.shape, 1, -1)
    return queries.scores(rows, partial(request, personal=AT_HOME))[:, :, 0]


def _transferred(
    inquiry: Inquiry,
    models: Tensor,
    start: Tensor,
    repeat: int,
    half: int,
    request: "partial[Evaluate]",
) -> Tensor:
    """Return the scores of all models on all silos' samples, NaN between competitors.

    Competitors see decoys in an order of their own, see `fedegoists.benefit.decoys`.
    """
    queries, settings = inquiry.queries, inquiry.settings
    repetitions, n = queries.shape
    schema = queries.federation.schema
    disguise = Disguise(inquiry.secret, settings.seed, queries.names, inquiry.rivals, schema)
    scores = torch.full((repetitions, n, n), torch.nan)
    repetition, target = torch.arange(repetitions)[:, None, None], torch.arange(n)[:, None]
    for sources in torch.split(disguise.orders(n, repeat, half), MOST_TOGETHER, 2):
        shown = models[repetition, sources]
        disguise.hide(shown, sources, models, start, repeat)
        scores[repetition, target, sources] = queries.scores(shown, request)
    return scores.masked_fill(inquiry.rivals, torch.nan)


def _of_repetition(
    names: Sequence[str],
    described: Sequence[Described],
    scores: _Scores,
    repetition: int,
    usable: list[int],
    task: str,
) -> HomeScores:
    """Return the scores of the silos of a repetition that answered."""

    def numbers(tensor: Tensor) -> Floats:
        found: Floats = tensor[repetition][..., usable].double().numpy()
        return found

    labels = None
    if task == "classification" and all(one.labels for one in described):
        labels = np.array([one.labels for one in described], dtype=np.float64)
    others = None
    if scores.others is not None:
        others = numbers(scores.others)[..., usable, :]
    return HomeScores(
        tuple(names),
        np.array([one.samples["train"] for one in described], dtype=np.float64),
        np.array([one.samples["validation"] for one in described], dtype=np.float64),
        numbers(scores.quarter),
        numbers(scores.half),
        numbers(scores.checked_half),
        numbers(scores.checked_all),
        others,
        labels,
    )

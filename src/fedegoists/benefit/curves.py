"""The estimator ``curves``: learning curves at home, transfers of models, and a trial coalition.

Every silo trains on quarters and halves of its samples, and a model of one half is judged on the
other. Where `LearnSettings.transfers` is set, two more things happen, never between competitors:

- models of halves are sent to the other silos, which judge them on the same halves as their own;
- coalitions as large as competition allows train on halves, by averages of their models. Only in
  simulations: a deployed silo would see by its average who is not in it, and find its competitors.

Otherwise all models stay at home, and only scores leave. `fedegoists.benefit.curve_fit` makes
coalition values of the scores. Training on a part of the samples takes this part of the steps, so
that a repeat costs each silo as much as training alone two and a half times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedegoists.benefit.curve_fit import (
    Bools,
    Floats,
    HomeScores,
    Measures,
    curve_values,
    pair_gains,
    with_absent,
)
from fedegoists.benefit.decoys import Disguise
from fedegoists.benefit.estimator import Inquiry, Learned
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.local_models import near
from fedegoists.benefit.silo_queries import SiloQueries
from fedegoists.errors import SettingsError
from fedegoists.federation import Evaluate, Personal, Train
from fedegoists.federation.batches import stream_seed
from fedegoists.federation.replies import Described
from fedegoists.federation.requests import EVERYTHING
from fedegoists.learning.model_registry import OUTPUT_LAYER

if TYPE_CHECKING:
    from fedegoists.graphs import CurveValues

HALVES = 2
QUARTERS = (0, 3)
"""For each half the quarter that has no sample outside of it, whatever the number of samples."""

TRIAL_ROUNDS = 10
"""Averages in a trial."""

MOST_TOGETHER = 8
"""Models of others in one call of a silo."""

AT_HOME = Personal(prefixes=EVERYTHING, slot="curves/model")

KINDS = ("metric", "loss")
"""Both measures of a score, in the order of the first axis."""


@dataclass(frozen=True)
class _Scores:
    """Scores of all repetitions, as `Measures` has them, with measures and repetitions in front.

    Attributes
    ----------
    company : Tensor, optional
        Of shape (repeats, repetitions, n, n): who was in one trial coalition with whom.
    """

    quarter: Tensor
    half: Tensor
    trial: Tensor | None = None
    others: Tensor | None = None
    company: Tensor | None = None


def curves(inquiry: Inquiry) -> Learned:
    """Learn coalition values; a weight is what i gains with j alone, where that is positive."""
    queries, task = inquiry.queries, inquiry.queries.federation.task
    described = queries.descriptions()
    sizes = [one.samples["train"] for one in described.values()]
    scores, present = _gathered(inquiry, repeats_for(inquiry.settings, sizes))
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
        rivals = inquiry.rivals[k].numpy()
        known = _of_repetition(
            [names[i] for i in usable], own, scores, k, usable, task.name, rivals
        )
        known = replace(known, ridge=inquiry.settings.ridge)
        values.append(with_absent(curve_values(known, task.metric_words), names, rivals))
        for matrix, numbers in zip((gains, errors), pair_gains(values[k]), strict=True):
            matrix[k] = torch.from_numpy(numbers.T)  # targets in rows, as all estimators have them
    # Two halves that differ by twice a standard error have this one.
    runs = torch.stack([gains - errors, gains + errors], 1)[:, None]
    runs = runs.expand(-1, inquiry.settings.repeats, -1, -1, -1)
    weights = gains.clamp_min(0.0)[:, None, None].expand_as(runs)
    return Learned(weights, runs, present, values=tuple(values))


def repeats_for(settings: LearnSettings, sizes: Sequence[int]) -> int:
    """Return how often samples are divided anew: half as often if they do not fit into a batch.

    There, a part of the samples takes as much work in a step as all of them, and larger data needs
    fewer divisions.
    """
    if sizes and np.mean(sizes) > settings.local.batch_size:
        return (settings.repeats + 1) // 2
    return settings.repeats


def answers_needed(settings: LearnSettings, participants: int) -> int:
    """Return how many answers about its training samples a silo gives, at most.

    Each trained model and each score of a model is one.
    """
    half = 4  # training and judging, on a quarter and on a half
    if settings.transfers:
        rounds = min(TRIAL_ROUNDS, max(1, round(settings.local.steps / HALVES)))
        half += participants + rounds + 1
    return settings.repeats * HALVES * half


def _gathered(inquiry: Inquiry, repeats: int) -> tuple[_Scores, Tensor]:
    """Have all silos train and judge; return the scores, and which silos always answered."""
    queries, settings = inquiry.queries, inquiry.settings
    repetitions, n = queries.shape
    quarter, half, trial = (
        torch.full((len(KINDS), repetitions, repeats, HALVES, n), torch.nan) for _ in range(3)
    )
    others = torch.full((len(KINDS), repetitions, repeats, HALVES, n, n), torch.nan)
    company = torch.zeros(repeats, repetitions, n, n, dtype=torch.bool)
    present = torch.ones(repetitions, n, dtype=torch.bool)
    tried = settings.transfers and not queries.federation.deployed
    counts = queries.samples() if tried else torch.zeros(repetitions, n)
    for repeat in range(repeats):
        seed = stream_seed(settings.seed, repeat, "curves")
        start = queries.federation.schema.drawn(seed).to(queries.federation.device)
        company[repeat] = torch.stack(
            [trial_company(one, f"{seed}/trial") for one in inquiry.rivals]
        )
        for h in range(HALVES):
            unseen = partial(Evaluate, split="train", share=0.5, step=1 - h, seed=seed)
            part = partial(_part, settings, seed=seed)
            present &= _trained_at_home(queries, start, part(share=0.25, part=QUARTERS[h]))
            quarter[:, :, repeat, h] = _own(queries, start, unseen)
            on_half = part(share=0.5, part=h)
            if settings.transfers:
                models, answered = queries.trained(start.expand(repetitions, n, -1), on_half)
                models = near(models, start)
                half[:, :, repeat, h] = queries.measures(models[:, :, None], unseen)[..., 0]
                others[:, :, repeat, h] = _transferred(inquiry, models, start, repeat, h, unseen)
                present &= answered
                if tried:
                    in_company = on_half
                    if settings.ridge:
                        fraction = _fraction_of_one(company[repeat], counts)
                        in_company = part(share=0.5, part=h, decayed=fraction)
                    together, also = _trial(queries, start, in_company, company[repeat], counts)
                    trial[:, :, repeat, h] = queries.measures(together[:, :, None], unseen)[..., 0]
                    present &= also
            else:
                present &= _trained_at_home(queries, start, on_half)
                half[:, :, repeat, h] = _own(queries, start, unseen)
            done = repeat * HALVES + h + 1
            loss = -half[1, :, repeat, h].nanmean().item()
            inquiry.progress("learning curves", done, repeats * HALVES, loss)
    queries.forget(AT_HOME.slot)
    if not settings.transfers:
        return _Scores(quarter, half), present
    if not tried:
        return _Scores(quarter, half, others=others), present
    return _Scores(quarter, half, trial, others, company), present


def _part(
    settings: LearnSettings, *, share: float, part: int, seed: int, decayed: float = 1.0
) -> "partial[Train]":
    """Return the request to train on a part of the samples, for this part of the steps.

    Parameters
    ----------
    decayed : float
        The participant's part of the samples that the model is trained on, for a weight decay that
        is in proportion to one over their number.
    """
    steps = max(1, round(settings.local.steps * share))
    own = settings.local.changed(steps=steps, total_steps=steps)
    if settings.ridge:
        own = own.changed(weight_decay=own.weight_decay / share * decayed)
    return partial(Train, settings=own, seed=seed, share=share, part=part)


def _fraction_of_one(company: Tensor, counts: Tensor) -> float:
    """Return a participant's part of its trial coalition's samples, as a mean over all."""
    together = (company * counts[:, None, :]).sum(-1)
    return float(counts.mean() / together.mean().clamp_min(1.0))


def trial_company(rivals: Tensor, seed: str) -> Tensor:
    """Return coalitions as large as competition allows, as a matrix of who is with whom.

    Participants in random order join the largest coalition without a competitor, or a new one.
    """
    n = len(rivals)
    groups: list[list[int]] = []
    for one in np.random.default_rng(list(seed.encode())).permutation(n).tolist():
        open_to = [group for group in groups if not rivals[one, group].any()]
        if open_to:
            max(open_to, key=len).append(one)
        else:
            groups.append([one])
    together = torch.zeros(n, n, dtype=torch.bool)
    for group in groups:
        together[np.ix_(group, group)] = True
    return together


def _trial(
    queries: SiloQueries, start: Tensor, on_half: "partial[Train]", company: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Train in coalitions; return every member's model, and which silos always answered.

    Members have the average of the models of those that answered, by their samples, but for the
    bias of the output layer, which is their own.
    """
    repetitions, n = queries.shape
    schema, total = queries.federation.schema, on_half.keywords["settings"].total_steps
    rounds = min(TRIAL_ROUNDS, total)
    settings = on_half.keywords["settings"].changed(steps=total // rounds)
    own = [name for name in schema.names if name == f"{OUTPUT_LAYER}bias"]
    kept = schema.mask(own).to(start.device) if own else torch.zeros(len(start), dtype=torch.bool)
    rows = start.expand(repetitions, n, -1)
    present = torch.ones(repetitions, n, dtype=torch.bool)
    for number in range(rounds):
        first = number * settings.steps
        request = partial(on_half, settings=settings, first_step=first)
        trained, answered = queries.trained(rows, request)
        trained = near(trained, start)
        present &= answered
        weights = company * (counts * answered)[:, None, :]
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1.0)
        mixed = weights.to(trained) @ trained
        rows = torch.where((weights.sum(-1) > 0)[..., None].to(trained.device), mixed, rows)
        rows = torch.where(kept.to(trained.device), trained, rows)
    return rows, present


def _trained_at_home(queries: SiloQueries, start: Tensor, request: "partial[Train]") -> Tensor:
    """Train models that stay at home; return which silos answered."""
    queries.forget(AT_HOME.slot)  # else a silo would go on with the model before
    rows = start.expand(*queries.shape, -1)
    return queries.trained(rows, partial(request, personal=AT_HOME))[1]


def _own(queries: SiloQueries, start: Tensor, request: "partial[Evaluate]") -> Tensor:
    """Return the scores of the models that are at home, in both measures."""
    rows = start.expand(*queries.shape, 1, -1)
    return queries.measures(rows, partial(request, personal=AT_HOME))[..., 0]


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
    scores = torch.full((len(KINDS), repetitions, n, n), torch.nan)
    repetition, target = torch.arange(repetitions)[:, None, None], torch.arange(n)[:, None]
    for sources in torch.split(disguise.orders(n, repeat, half), MOST_TOGETHER, 2):
        shown = models[repetition, sources]
        disguise.hide(shown, sources, models, start, repeat)
        scores[:, repetition, target, sources] = queries.measures(shown, request)
    return scores.masked_fill(inquiry.rivals, torch.nan)


def _of_repetition(
    names: Sequence[str],
    described: Sequence[Described],
    scores: _Scores,
    repetition: int,
    usable: list[int],
    task: str,
    rivals: Bools,
) -> HomeScores:
    """Return the scores of the silos of a repetition that answered."""

    def numbers(tensor: Tensor | None, kind: int, *, pairs: bool = False) -> Floats | None:
        if tensor is None:
            return None
        found = tensor[kind, repetition][..., usable]
        return np.asarray((found[..., usable, :] if pairs else found).double().numpy())

    def measures(kind: int) -> Measures:
        quarter, half = numbers(scores.quarter, kind), numbers(scores.half, kind)
        assert quarter is not None
        assert half is not None
        others = numbers(scores.others, kind, pairs=True)
        return Measures(quarter, half, numbers(scores.trial, kind), others)

    labels = None
    if task == "classification" and all(one.labels for one in described):
        labels = np.array([one.labels for one in described], dtype=np.float64)
    company = None
    if scores.company is not None:
        company = scores.company[:, repetition][:, usable][..., usable].numpy()
    return HomeScores(
        tuple(names),
        np.array([one.samples["train"] for one in described], dtype=np.float64),
        measures(KINDS.index("metric")),
        measures(KINDS.index("loss")),
        company,
        labels,
        rivals[np.ix_(usable, usable)],
    )

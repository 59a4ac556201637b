"""Small silos whose targets depend on combinations of two columns, for tests of boosted trees."""

import numpy as np
import torch

from fedegoists.federation import SimulatedFederation, TrainSettings
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.methods import METHODS, RunSettings, run

FEATURES = 6
QUICK = TrainSettings(steps=5, batch_size=1_000_000, learning_rate=0.2)


def planted(sizes, seed=0, task="binary", random=(), tests=30):
    """Silos that follow one rule; the labels of those in `random` are drawn by lot.

    Of the sizes, which are without test samples, 30 % are for validation.
    """
    rng = np.random.default_rng([seed, 5])
    n = sum(sizes) + tests * len(sizes)
    x = rng.normal(size=(n, FEATURES)).astype(np.float32)
    rule = 2.0 * (x[:, 0] > 0) * (x[:, 1] > 0) - 2.0 * (np.abs(x[:, 2]) < 0.7) + 0.3
    if task == "regression":
        y = (rule + 0.2 * rng.normal(size=n)).astype(np.float32)
    elif task == "classification":
        y = np.digitize(rule + 0.2 * rng.normal(size=n), [-0.5, 0.5])
    elif task == "survival":
        times = rng.exponential(np.exp(-1.5 * rule)) + 1e-3
        y = np.where(rng.random(n) < 0.7, times, -times).astype(np.float32)
    else:
        y = (rng.random(n) < 1 / (1 + np.exp(-2.5 * rule))).astype(np.int64)
    parts, start = [], 0
    for k, size in enumerate(sizes):
        own = np.arange(start, start + size + tests)
        if k in random:
            y[own] = rng.permutation(y[own])
        first = int(0.7 * size)
        parts.append(SiloIndices(f"s{k}", own[:first], own[first:size], own[size:]))
        start += size + tests
    classes = {"binary": 2, "classification": 3}.get(task)
    return SiloedData("planted", task, Samples((x,), y), tuple(parts), classes, "", ())


def forest(outputs=1, **settings):
    return build_model("trees", 0, features=FEATURES, outputs=outputs, **settings)


def trained(data, name, *, rounds=5, settings=QUICK, coalitions=None, **options):
    """Train by a method in one coalition; return the federation and the outcome."""
    outputs = data.classes if data.task == "classification" else 1
    model = forest(outputs, members=len(data.participants), trees=50, **options)
    federation = SimulatedFederation(data, model)
    start = federation.schema.flatten(dict(model.named_parameters()))
    rows = start.expand(len(data.participants), -1).clone()
    groups = [tuple(federation.participants)] if coalitions is None else coalitions
    over = RunSettings(rounds=rounds, seed=0)
    return federation, run(METHODS[name](settings), federation, groups, rows, over)


def chosen_scores(federation, outcome):
    """The test metric of each participant at the round that validation chose."""
    found = {
        (row.participant, row.round): row.value
        for row in outcome.rows
        if (row.split, row.metric) == ("test", federation.task.metric)
    }
    pairs = zip(federation.participants, outcome.best_round, strict=True)
    return torch.tensor([found[pair] for pair in pairs])

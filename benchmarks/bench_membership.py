"""Membership inference: whether the coordinator can tell on which customers a model was trained.

Shadow models are trained as a silo of the demo trains, each on a random half of some customers. The
attacker has a model, knows the customers, and guesses who was in: by a threshold on the loss (Yeom
et al., 2018), and by the likelihood ratio of the loss under models with and without the customer
(LiRA, Carlini et al., 2022). Each shadow model is attacked with the others as reference. Models are
trained for as many steps as the budget of a level lets a silo of this size take.

    python -m benchmarks.bench_membership [--customers 40 300] [--models 64] [--write]
"""

import argparse
import io
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from fedegoists.deploy.demo_banks import CUSTOMERS, demo_table
from fedegoists.federation import Participant, SimulatedFederation, Train, TrainSettings
from fedegoists.federation.flare.silo_settings import LEVELS
from fedegoists.federation.privacy_loss import NoisyAnswers, epsilon
from fedegoists.files import csv_bytes, write_bytes
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model

BATCH, DELTA = 64, 1e-5
RESULT = Path(__file__).parent / "results" / "membership.csv"


def customers(count):
    text = demo_table(0).decode().replace("yes", "1").replace("no", "0")
    rows = np.genfromtxt(io.StringIO(text), delimiter=",", skip_header=1)[:count]
    return rows[:, :3].astype(np.float32), rows[:, 3].astype(np.float32)


def shadow_losses(x, y, members, settings):
    """Return the loss of every customer under each model, (models, customers)."""
    rows, samples = np.arange(len(y)), Samples((x,), y.astype(np.int64))
    data = {
        # Validation and test data, which training does not use, from those outside.
        k: SiloedData(
            "customers",
            "binary",
            samples,
            (SiloIndices("bank", rows[own], rows[~own][:1], rows[~own][1:2]),),
            2,
            "shadow",
            (),
        )
        for k, own in enumerate(members)
    }
    model = build_model("mlp", 0, features=3, outputs=1)
    federation = SimulatedFederation(data, model, execution="stacked")
    start = federation.schema.drawn(0)
    request = Train(parameters=start, settings=settings, seed=1)
    replies = federation.call(dict.fromkeys(federation.participants, request))
    found = []
    for k in range(len(members)):
        values = federation.schema.unflatten(replies[Participant("bank", k)].parameters)
        outputs = torch.func.functional_call(model, values, (torch.from_numpy(x),)).squeeze(-1)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            outputs, torch.from_numpy(y), reduction="none"
        )
        found.append(losses.detach().double().numpy())
    return np.array(found)


def likelihood_ratios(losses, members):
    """Return LiRA's score of each customer for each model, from all other models."""
    # The logit of the probability of the right class is nearly normal over models.
    right = np.exp(-losses).clip(1e-12, 1 - 1e-12)
    logits = np.log(right) - np.log1p(-right)
    scores = np.empty_like(logits)
    for k in range(len(logits)):
        others = np.arange(len(logits)) != k
        for i in range(logits.shape[1]):
            inside = logits[others & members[:, i], i]
            outside = logits[others & ~members[:, i], i]
            scores[k, i] = _log_density(logits[k, i], inside) - _log_density(logits[k, i], outside)
    return scores


def _log_density(value, sample):
    spread = max(sample.std(ddof=1), 1e-6)
    return -((value - sample.mean()) ** 2) / (2 * spread**2) - math.log(spread)


def attacked(scores, members):
    """Return the area under the ROC curve, and the true positive rate at 1 % false positives."""
    order = np.argsort(-scores, axis=None)
    inside = members.ravel()[order]
    hits = np.cumsum(inside) / inside.sum()
    alarms = np.cumsum(~inside) / (~inside).sum()
    return np.trapezoid(hits, alarms), hits[np.searchsorted(alarms, 0.01, side="right") - 1]


def allowed_steps(level, size, most):
    """Return how many steps of training the budget of a level allows, and their ε."""
    noise = LEVELS[level].get("train_noise", 0.0)
    if not noise:
        return most, math.inf
    rate = min(BATCH / size, 1.0)
    costs = [epsilon([NoisyAnswers(noise, rate, k)], DELTA) for k in range(most + 1)]
    steps = max(k for k, cost in enumerate(costs) if cost <= LEVELS[level]["epsilon"])
    return steps, costs[steps]


def level_rows(level, count, models, most):
    """Return the success of both attacks on models that are trained with a level."""
    x, y = customers(count)
    rng = np.random.default_rng(0)
    members = np.zeros((models, count), bool)
    for own in members:
        own[rng.permutation(count)[: count // 2]] = True
    steps, spent = allowed_steps(level, count // 2, most)
    settings = TrainSettings(
        steps=steps,
        batch_size=BATCH,
        learning_rate=0.01,
        total_steps=steps,
        clip=LEVELS[level].get("train_clip"),
        noise=LEVELS[level].get("train_noise", 0.0),
    )
    losses = shadow_losses(x, y, members, settings)
    for attack, scores in (
        ("loss threshold", -losses),
        ("likelihood ratio", likelihood_ratios(losses, members)),
    ):
        area, hits = attacked(scores, members)
        yield (
            count // 2,
            level,
            steps,
            f"{spent:.3g}",
            attack,
            f"{losses.mean():.3f}",
            f"{area:.3f}",
            f"{hits:.3f}",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--customers", type=int, nargs="+", default=[40, 300])
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    assert max(given.customers) <= CUSTOMERS
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    command = " ".join(["python -m benchmarks.bench_membership", *sys.argv[1:]])
    rows = []
    for count in given.customers:
        for level in ("none", "standard", "strict"):
            for row in level_rows(level, count, given.models, given.steps):
                print(*row, sep=" | ", flush=True)
                rows.append((*row, command, commit))
    if given.write:
        head = ("trained_on", "level", "steps", "epsilon", "attack", "mean_loss", "auc")
        columns = (*head, "tpr_at_1_percent_fpr", "command", "commit")
        write_bytes(RESULT, csv_bytes(columns, rows))


if __name__ == "__main__":
    main()

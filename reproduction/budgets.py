"""How long and how everybody trains: the paper's short budget, and ones to convergence."""

from dataclasses import replace
from typing import Literal, get_args

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.data import SiloedData
from fedegoists.training.defaults import Defaults, defaults_for

__all__ = ["BOTH", "BUDGETS", "BudgetName", "budget", "budget_words"]

BudgetName = Literal["published", "converged", "plain"]
BUDGETS: tuple[BudgetName, ...] = get_args(BudgetName)
BOTH: tuple[BudgetName, ...] = ("published", "converged")
"""Those of the paper's tables."""

PUBLISHED_STEPS = {"cifar10 pathological": 200, "eicu-demo": 200}
"""Warm-up and joint steps together, as the released code has them; elsewhere `MOST_PUBLISHED`."""
MOST_PUBLISHED = 1000
PUBLISHED_BATCH, PUBLISHED_RATE = 256, 0.01
ROUNDS = 20
"""Of the published budget; the paper does not say how often models are averaged."""
PLAIN_STEPS = {"pathological": 2000, "dirichlet": 3000}
"""Without augmentation, by how images are divided."""


def budget(
    name: BudgetName,
    data: SiloedData,
    partition: str = "",
    *,
    steps: int | None = None,
    factor: float = 1.0,
    passes: float = 1,
) -> Defaults:
    """Return how silos train.

    Parameters
    ----------
    partition : str
        How images are divided, where they are.
    steps : int, optional
        Other than the budget's own.
    factor : float
        By which learning rates are multiplied.
    passes : float
        How many times as long as Local; evaluations are as far apart as Local's.
    """
    if name not in BUDGETS:
        raise SettingsError(f"unknown budget {name!r}; budgets are {', '.join(BUDGETS)}")
    if name == "converged":
        found = defaults_for(data, steps)
    elif name == "plain":
        found = _plain(data, partition, steps)
    else:
        found = _published(data, f"{data.name} {partition}".strip(), steps)
    if steps is not None:
        # A shorter run is tuned no longer than it was trained.
        each = min(found.tune.steps, steps)
        rounds = min(found.tune_rounds, found.rounds)
        tune = found.tune.changed(steps=each, total_steps=rounds * each)
        found = replace(found, tune=tune, tune_rounds=rounds)
    train, tune = found.train, found.tune
    rounds = round(passes * found.rounds)
    total = rounds * train.steps
    return replace(
        found,
        train=train.changed(learning_rate=factor * train.learning_rate, total_steps=total),
        tune=tune.changed(learning_rate=factor * tune.learning_rate),
        rounds=rounds,
    )


def _published(data: SiloedData, what: str, steps: int | None) -> Defaults:
    own = defaults_for(data)
    total = steps or PUBLISHED_STEPS.get(what, MOST_PUBLISHED)
    each = max(1, total // ROUNDS)
    rounds = -(-total // each)
    train = TrainSettings(
        steps=each,
        batch_size=PUBLISHED_BATCH,
        learning_rate=PUBLISHED_RATE,
        # Phases of methods are shares of all steps, so these must be known; the rate would fall.
        total_steps=rounds * each,
    )
    tune = train.changed(learning_rate=PUBLISHED_RATE / 2, total_steps=2 * each)
    return Defaults(own.model, train, rounds, tune, 2, 1)


def _plain(data: SiloedData, partition: str, steps: int | None) -> Defaults:
    own = defaults_for(data, steps or PLAIN_STEPS.get(partition))
    train, tune = (settings.changed(augment=False) for settings in (own.train, own.tune))
    return replace(own, train=train, tune=tune)


def budget_words(name: BudgetName) -> str:
    """Return what a budget is, for a page."""
    if name == "published":
        return (
            f"**published**: short, so that numbers can stand beside the paper's: batches of "
            f"{PUBLISHED_BATCH}, learning rate {PUBLISHED_RATE:g} falling along a cosine, momentum "
            f"0.9, no augmentation, no weight decay; 200 steps on pathological CIFAR-10 and on the "
            f"hospitals, {MOST_PUBLISHED:,} elsewhere, in {ROUNDS} rounds; a tenth more for tuning."
        )
    if name == "plain":
        return (
            "**plain**: as `converged`, but images are shown as they are, without flips and crops, "
            f"in {PLAIN_STEPS['pathological']:,} steps on pathological divisions and "
            f"{PLAIN_STEPS['dirichlet']:,} on Dirichlet ones."
        )
    return (
        "**converged**: on images 4,000 steps of 64 in rounds of 50, learning rate 0.02 falling "
        "along a cosine, momentum 0.9, weight decay 5e-4, flips and crops; tuning takes 400 steps "
        "more. On hospitals 400 steps of 64, on synthetic data 2,000."
    )

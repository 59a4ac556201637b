"""Budgets: how, and for how many steps, all methods train."""

from dataclasses import replace
from typing import Literal, get_args

from fedegoists.errors import SettingsError
from fedegoists.federation import TrainSettings
from fedegoists.learning.data import SiloedData
from fedegoists.training.defaults import Defaults, defaults_for

__all__ = ["BOTH", "BUDGETS", "BudgetName", "budget", "budget_words"]

BudgetName = Literal["published", "converged", "plain", "pfllib", "pfllib-augmented"]
BUDGETS: tuple[BudgetName, ...] = get_args(BudgetName)
BOTH: tuple[BudgetName, ...] = ("published", "converged")
"""The budgets of the paper's tables."""

PUBLISHED_STEPS = {"cifar10 pathological": 200, "eicu-demo": 200}
"""Warm-up and joint steps of the released code; `MOST_PUBLISHED` for all other data."""
MOST_PUBLISHED = 1000
PUBLISHED_BATCH, PUBLISHED_RATE = 256, 0.01
ROUNDS = 20
"""Rounds of the published budget; the paper does not say how often models are averaged."""
PLAIN_STEPS = {"pathological": 2000, "dirichlet": 3000}
"""Steps without augmentation, by partition."""


PFLLIB_MODEL, PFLLIB_BATCH = "pfllib-cnn", 32
PFLLIB_STEPS: dict[BudgetName, int] = {"pfllib": 2000, "pfllib-augmented": 4000}
"""Of PFLlib's settings: its network, and fewer steps with larger batches than its 2,000 epochs."""


def budget(
    name: BudgetName,
    data: SiloedData,
    partition: str = "",
    *,
    steps: int | None = None,
    factor: float = 1.0,
    length: float = 1,
) -> Defaults:
    """Return the training settings of a budget.

    Parameters
    ----------
    partition : str
        The partition of images; empty for other data.
    steps : int, optional
        Steps other than the budget's.
    factor : float
        Multiplier of learning rates.
    length : float
        Steps in multiples of those of Local; evaluations are as frequent as for Local.
    """
    if name not in BUDGETS:
        raise SettingsError(f"unknown budget {name!r}; budgets are {', '.join(BUDGETS)}")
    if name == "converged":
        found = defaults_for(data, steps)
    elif name == "plain":
        found = _plain(data, partition, steps)
    elif name in ("pfllib", "pfllib-augmented"):
        found = _pfllib(data, steps or PFLLIB_STEPS[name], augment=name != "pfllib")
    else:
        found = _published(data, f"{data.name} {partition}".strip(), steps)
    if steps is not None:
        # A shorter run is tuned no longer than it was trained.
        each = min(found.tune.steps, steps)
        rounds = min(found.tune_rounds, found.rounds)
        tune = found.tune.changed(steps=each, total_steps=rounds * each)
        found = replace(found, tune=tune, tune_rounds=rounds)
    train, tune = found.train, found.tune
    rounds = round(length * found.rounds)
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
        # Methods have phases that are fractions of all steps, so these must be known.
        total_steps=rounds * each,
    )
    tune = train.changed(learning_rate=PUBLISHED_RATE / 2, total_steps=2 * each)
    return Defaults(own.model, train, rounds, tune, 2, 1)


def _plain(data: SiloedData, partition: str, steps: int | None) -> Defaults:
    own = defaults_for(data, steps or PLAIN_STEPS.get(partition))
    train, tune = (settings.changed(augment=False) for settings in (own.train, own.tune))
    return replace(own, train=train, tune=tune)


def _pfllib(data: SiloedData, steps: int, *, augment: bool) -> Defaults:
    own = defaults_for(data, steps, PFLLIB_MODEL)
    train, tune = (
        settings.changed(batch_size=PFLLIB_BATCH, augment=augment)
        for settings in (own.train, own.tune)
    )
    return replace(own, train=train, tune=tune)


def budget_words(name: BudgetName) -> str:
    """Return the description of a budget for a page."""
    if name == "published":
        return (
            f"**published**: short, for comparison with the paper's numbers: batches of "
            f"{PUBLISHED_BATCH}, learning rate {PUBLISHED_RATE:g} falling along a cosine, momentum "
            f"0.9, no augmentation, no weight decay; 200 steps on pathological CIFAR-10 and on the "
            f"hospitals, {MOST_PUBLISHED:,} elsewhere, in {ROUNDS} rounds; a tenth more for tuning."
        )
    if name == "plain":
        return (
            "**plain**: as `converged`, but without augmentation by flips and crops, "
            f"in {PLAIN_STEPS['pathological']:,} steps on pathological partitions and "
            f"{PLAIN_STEPS['dirichlet']:,} on Dirichlet ones."
        )
    if name in ("pfllib", "pfllib-augmented"):
        how = "without augmentation, as there" if name == "pfllib" else "with flips and crops"
        return (
            f"**{name}**: PFLlib's network, {how}: {PFLLIB_STEPS[name]:,} steps of {PFLLIB_BATCH} "
            "in rounds of 50, learning rate 0.02 falling along a cosine, momentum 0.9, weight "
            "decay 5e-4; tuning takes 400 steps more."
        )
    return (
        "**converged**: on images 4,000 steps of 64 in rounds of 50, learning rate 0.02 falling "
        "along a cosine, momentum 0.9, weight decay 5e-4, flips and crops; tuning takes 400 steps "
        "more. On hospitals 400 steps of 64, on synthetic data 2,000."
    )

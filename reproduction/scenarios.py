"""What is trained on, who competes, and which tables need it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph
from fedegoists.learning.data import SiloedData
from fedegoists.training.decisions import random_competition
from reproduction.budgets import BUDGETS, BudgetName
from reproduction.variants import (
    COMPANY,
    HOSPITALS,
    LONGER,
    PAPER,
    PLAIN,
    QUESTIONS,
    Variant,
)

__all__ = ["TABLES", "Scene", "Table", "competition_of"]

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4)
BETAS = (0.01, 0.1, 0.5)
TRIALS, TRIALS_OF_HOSPITALS = 5, 20
"""How often everything is done; at convergence more often with hospitals, which are small."""
DISTRIBUTIONS = ("pathological", "dirichlet")
TABLE5_ALPHA = 0.2
"""The paper does not say which competition Table 5 has."""
HOSPITAL_RIVALS = ((1, 4), (2, 3), (2, 4))
"""Positions of the hospitals that compete in the paper."""


@dataclass(frozen=True)
class Scene:
    """Data, and who competes.

    Attributes
    ----------
    data : str
        A data set's name.
    options : tuple of (name, value)
        Of the data set.
    competition : str
        The probability that two compete, ``published`` for a fixed graph, or nothing for none.
    """

    data: str
    options: tuple[tuple[str, Any], ...] = ()
    competition: str = ""

    @property
    def small(self) -> bool:
        """Whether validation sets are too small for each to choose the round by its own."""
        return self.data == "eicu-demo"

    @property
    def partition(self) -> str:
        """How images are divided; nothing for other data."""
        return str(dict(self.options).get("partition", ""))


def competition_of(scene: Scene, trial: int, data: SiloedData) -> CompetitionGraph:
    """Return who competes: drawn anew for each trial, and growing with the probability."""
    names = data.participants
    if not scene.competition:
        return CompetitionGraph([], names)
    if scene.competition != "published":
        return random_competition(names, float(scene.competition), trial)
    if data.name == "eicu-demo":
        pairs = [(names[a], names[b]) for a, b in HOSPITAL_RIVALS if max(a, b) < len(names)]
        return CompetitionGraph(pairs, names)
    return CompetitionGraph(data.competition_pairs, names)


@dataclass(frozen=True)
class Table:
    """A table: its scenes, each with the values of the key columns, and its rows.

    Attributes
    ----------
    of_participants : bool
        Whether each participant has a line of its own, or the mean over all of them is given.
    derived : bool
        Whether it is computed from other tables' cells.
    chosen : bool
        Whether learning rates are chosen on validation data, or all are the budget's.
    budget : str, optional
        The only one it has; without it, whichever is asked for.
    trials : mapping of str to int
        How many it has under each budget, if nothing else is asked for.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    scenes: tuple[tuple[Mapping[str, Any], Scene], ...]
    variants: tuple[Variant, ...] = PAPER
    of_participants: bool = False
    derived: bool = False
    chosen: bool = True
    budget: BudgetName | None = None
    trials: Mapping[BudgetName, int] = field(default_factory=lambda: dict.fromkeys(BUDGETS, TRIALS))
    notes: tuple[str, ...] = field(default=())


def _images(data: str, partition: str, alpha: float, beta: float | None = None) -> Scene:
    options: tuple[tuple[str, Any], ...] = (("partition", partition),)
    if partition == "dirichlet":
        options += (("beta", 0.5 if beta is None else beta),)
    return Scene(data, options, f"{alpha:g}")


def _by_alpha(data: str) -> tuple[tuple[Mapping[str, Any], Scene], ...]:
    return tuple(
        ({"alpha": alpha, "distribution": how}, _images(data, how, alpha))
        for how in DISTRIBUTIONS
        for alpha in ALPHAS
    )


def _all_tables() -> tuple[Table, ...]:
    by_alpha, of_one = ("alpha", "distribution", "method"), ("participant", "method")
    both = tuple(
        ({"dataset": data, **key}, scene)
        for data in ("cifar10", "cifar100")
        for key, scene in _by_alpha(data)
    )
    by_beta = tuple(
        ({"dataset": data, "beta": beta}, _images(data, "dirichlet", TABLE5_ALPHA, beta))
        for data in ("cifar10", "cifar100")
        for beta in BETAS
    )
    answers = tuple(({"distribution": how}, _images("cifar10", how, 0.2)) for how in DISTRIBUTIONS)
    titles = {
        "coalitions": "Beyond the paper (a): does more welfare give better models?",
        "benefit": "Beyond the paper (b): learned, measured or no benefit graph as input",
        "contributors": "Beyond the paper (c): contributors only, or the whole coalition",
        "hypernetwork": "Beyond the paper (d): hypernetwork, or directly weighted gradients",
        "principles": "Beyond the paper (e): what the principles cost",
        "mixing": "Beyond the paper: what each part of EgoMix is worth",
    }
    return (
        Table("table1", "Table 1: CIFAR-10 by competition", by_alpha, _by_alpha("cifar10")),
        Table("table2", "Table 2: CIFAR-100 by competition", by_alpha, _by_alpha("cifar100")),
        Table(
            "table3",
            "Table 3: the best baseline minus FedEgoists in the trial that suits baselines best",
            ("dataset", "alpha", "distribution"),
            both,
            derived=True,
            notes=("Derived from Tables 1 and 2: parts of one, not per cent.",),
        ),
        Table(
            "table4",
            "Table 4: hospitals of the eICU demo",
            of_one,
            (({}, Scene("eicu-demo", (("target", "aki"),), "published")),),
            HOSPITALS,
            of_participants=True,
            trials={**dict.fromkeys(BUDGETS, TRIALS), "converged": TRIALS_OF_HOSPITALS},
            notes=(
                "The paper's ten hospitals are in the full eICU database, which is not public. "
                "Here silos are groups of hospitals of the open demo, and the outcome is acute "
                "kidney injury, as too few patients die there to compare anything; published "
                "numbers are comparable for the average at best.",
                "At convergence there are twenty trials, but they divide the same patients again "
                "and again: intervals are narrower than with as many new patients, and patients by "
                "whom rates and rounds were chosen in one trial are tested in another.",
                "At convergence the number of rounds is chosen with the learning rate, so methods "
                "do not take the same steps: `What it cost` says how many. Fine-tuned rows go on "
                "to the round that is best on everybody's own validation data.",
                "`egomix, another trial's benefits` has the rate and rounds of `egomix`, and "
                "benefits that the next trial learned from another division of the patients. It is "
                "there to choose by: benefits of its own trial were learned from the validation "
                "data that choose.",
                "As in the paper the second competes with the fifth, and the third with the "
                "fourth and the fifth; which hospitals these are is our choice.",
            ),
        ),
        Table(
            "table5",
            "Table 5: CIFAR by the Dirichlet distribution's β",
            ("dataset", "beta", "method"),
            by_beta,
            notes=(
                f"The paper does not give the competition of this table; here α = {TABLE5_ALPHA}.",
            ),
        ),
        *(
            Table(
                f"table{number}",
                f"Table {number}: synthetic data, {kind}ly non-IID",
                of_one,
                (({}, Scene(f"synthetic-{kind}", (), "published")),),
                of_participants=True,
                notes=(
                    "The noise alone has a squared error of 0.25, which no model can undercut.",
                ),
            )
            for number, kind in ((6, "weak"), (7, "strong"))
        ),
        *(
            Table(name, titles[name], ("distribution", "method"), answers, variants, chosen=False)
            for name, variants in QUESTIONS.items()
        ),
        Table(
            "company",
            "Beyond the paper: baselines and EgoMix in all the company there is, images",
            ("dataset", "distribution", "method"),
            tuple(
                ({"dataset": data, "distribution": how}, _images(data, how, 0.2))
                for data in ("cifar10", "cifar100")
                for how in DISTRIBUTIONS
            ),
            COMPANY,
            notes=("At competition α = 0.2.",),
        ),
        Table(
            "company-synthetic",
            "Beyond the paper: baselines and EgoMix in all the company there is, synthetic data",
            ("dataset", "method"),
            tuple(
                ({"dataset": kind}, Scene(f"synthetic-{kind}", (), "published"))
                for kind in ("weak", "strong")
            ),
            COMPANY,
        ),
        Table(
            "plain",
            "Beyond the paper: images as they are, without augmentation",
            ("distribution", "method"),
            answers,
            PLAIN,
            budget="plain",
            notes=(
                "CIFAR-10 at competition α = 0.2.",
                "`at rest`: without the momentum of mixtures; `from zero`: the silos' momentum "
                "starts at zero in every round, as it does for averages.",
            ),
        ),
        Table(
            "longer",
            "Beyond the paper: what four and sixteen times as many steps give",
            ("distribution", "method"),
            answers[1:],
            LONGER,
            notes=(
                "`denser benefits`: learned with a threshold of 0.05, in best coalitions; "
                "`everybody benefits`: in published coalitions. Baselines train along learned "
                "benefits here, but for `fedavg-wide`; `company` has them in all company, with as "
                "many steps as Local.",
                "Sixteen times the steps take minutes of a GPU for each row: only some have them.",
            ),
        ),
    )


TABLES: dict[str, Table] = {table.name: table for table in _all_tables()}


def table_named(name: str) -> Table:
    """Return a table by its name."""
    if name not in TABLES:
        known = f"{', '.join(TABLES)}, figures and all"
        raise SettingsError(f"unknown table {name!r}; there are {known}")
    return TABLES[name]

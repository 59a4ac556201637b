"""The tables: which scenarios and which rows each of them has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedegoists.errors import SettingsError
from reproduction.budgets import BUDGETS, BudgetName
from reproduction.scenarios import Scenario
from reproduction.variants import (
    COMPANY,
    FAIR,
    FAIR_HOSPITALS,
    FAIR_IMAGES,
    HOSPITALS,
    LONGER,
    PAPER,
    PLAIN,
    QUESTIONS,
    SCREENED,
    Variant,
)

__all__ = ["CORRECTED", "DECIDING", "TABLES", "ReproducedTable", "sources", "table_named"]

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4)
BETAS = (0.01, 0.1, 0.5)
REPETITIONS, REPETITIONS_OF_HOSPITALS = 5, 20
"""Repetitions; the converged budget has more for hospitals, whose data sets are small."""
CORRECTED_REPETITIONS: Mapping[BudgetName, int] = dict.fromkeys(BUDGETS, 10)
"""Repetitions of tables with corrected methods, 0 to 9."""
DECIDING = (10, 11, 12)
"""The repetitions that decide about rates and settings of corrected tables, which show none."""
DISTRIBUTIONS = ("pathological", "dirichlet")
TABLE5_ALPHA = 0.2
"""The paper does not say which competition Table 5 has."""


@dataclass(frozen=True)
class ReproducedTable:
    """A table: its scenarios, each with the values of the key columns, and its rows.

    Attributes
    ----------
    of_participants : bool
        Whether each participant has a line of its own; otherwise lines are means over participants.
    derived : bool
        Whether it is computed from the cells of Tables 1 and 2 of the same revision.
    chosen : bool
        Whether learning rates are chosen on validation data; otherwise all are the budget's.
    budget : str, optional
        The table's only budget; without it, the budget asked for.
    repetitions : mapping of str to int
        The default number of repetitions under each budget.
    revision : int
        2 with methods as they are now: FedDisco's divergences divided by their sum, a schedule for
        each phase of FedEgoists, FedORA's pull beside the momentum, pFedGraph's own models, EgoMix
        without weights by labels; with benefits learned again in each clique, and with rates and a
        parameter of every method chosen on repetitions that no table shows. 1 for what was trained
        before.
    screened : bool
        Whether only the scenarios in which rates are chosen have all rows, and all others those of
        `reproduction.variants.SCREENED`.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    scenarios: tuple[tuple[Mapping[str, Any], Scenario], ...]
    variants: tuple[Variant, ...] = PAPER
    of_participants: bool = False
    derived: bool = False
    chosen: bool = True
    budget: BudgetName | None = None
    repetitions: Mapping[BudgetName, int] = field(
        default_factory=lambda: dict.fromkeys(BUDGETS, REPETITIONS)
    )
    notes: tuple[str, ...] = field(default=())
    revision: int = 1
    screened: bool = False

    def rows_in(self, scenario: Scenario) -> tuple[Variant, ...]:
        """Return the rows that a scenario of the table has."""
        if not self.screened or scenario == scenario.deciding:
            return self.variants
        return tuple(row for row in self.variants if row.base.name in SCREENED)


def _images(data: str, partition: str, alpha: float, beta: float | None = None) -> Scenario:
    options: tuple[tuple[str, Any], ...] = (("partition", partition),)
    if partition == "dirichlet":
        options += (("beta", 0.5 if beta is None else beta),)
    return Scenario(data, options, f"{alpha:g}")


def _by_alpha(data: str) -> tuple[tuple[Mapping[str, Any], Scenario], ...]:
    return tuple(
        ({"alpha": alpha, "distribution": how}, _images(data, how, alpha))
        for how in DISTRIBUTIONS
        for alpha in ALPHAS
    )


def _of_the_paper() -> Iterator[ReproducedTable]:
    by_alpha, by_participant = ("alpha", "distribution", "method"), ("participant", "method")
    yield ReproducedTable(
        "table1", "Table 1: CIFAR-10 by competition", by_alpha, _by_alpha("cifar10")
    )
    yield ReproducedTable(
        "table2", "Table 2: CIFAR-100 by competition", by_alpha, _by_alpha("cifar100")
    )
    yield ReproducedTable(
        "table3",
        "Table 3: the best baseline minus FedEgoists in the repetition that suits baselines best",
        ("dataset", "alpha", "distribution"),
        tuple(
            ({"dataset": data, **key}, scenario)
            for data in ("cifar10", "cifar100")
            for key, scenario in _by_alpha(data)
        ),
        derived=True,
        notes=("Derived from the numbers of Tables 1 and 2: fractions, not per cent.",),
    )
    yield ReproducedTable(
        "table4",
        "Table 4: hospitals of the eICU demo",
        by_participant,
        (({}, Scenario("eicu-demo", (("target", "aki"),), "published")),),
        HOSPITALS,
        of_participants=True,
        repetitions={
            **dict.fromkeys(BUDGETS, REPETITIONS),
            "converged": REPETITIONS_OF_HOSPITALS,
        },
        notes=NOTES_ON_HOSPITALS,
    )
    yield ReproducedTable(
        "table5",
        "Table 5: CIFAR by the Dirichlet distribution's β",
        ("dataset", "beta", "method"),
        tuple(
            ({"dataset": data, "beta": beta}, _images(data, "dirichlet", TABLE5_ALPHA, beta))
            for data in ("cifar10", "cifar100")
            for beta in BETAS
        ),
        notes=(f"The paper does not give the competition of this table; here α = {TABLE5_ALPHA}.",),
    )
    for number, kind in ((6, "weak"), (7, "strong")):
        yield ReproducedTable(
            f"table{number}",
            f"Table {number}: synthetic data, {kind}ly non-IID",
            by_participant,
            (({}, Scenario(f"synthetic-{kind}", (), "published")),),
            of_participants=True,
            notes=("The noise alone has a squared error of 0.25, which no model can undercut.",),
        )


NOTES_ON_HOSPITALS = (
    "The paper's ten hospitals are in the full eICU database, which is not public. Here silos are "
    "groups of hospitals of the open demo, and the outcome is acute kidney injury, as too few "
    "patients die there to compare anything; published numbers are comparable for the average at "
    "best.",
    "All repetitions divide the same patients: intervals are narrower than with new patients, and "
    "patients by whom rates and rounds were chosen in one repetition are tested in another.",
    "At convergence the number of rounds is chosen with the learning rate, so methods do not take "
    "the same steps: `What it cost` says how many. Fine-tuned rows take the round that is best on "
    "each participant's own validation data.",
    "`egomix, another trial's benefits` has the rate and rounds of `egomix`, and benefits that the "
    "next repetition learned from another division of the patients. It is there to choose by: "
    "benefits of its own repetition were learned from the validation data that choose.",
    "As in the paper the second competes with the fifth, and the third with the fourth and the "
    "fifth; which hospitals these are is our choice.",
)
TITLES = {
    "coalitions": "Beyond the paper (a): does more welfare give better models?",
    "benefit": "Beyond the paper (b): learned, measured or no benefit graph as input",
    "contributors": "Beyond the paper (c): contributors only, or the whole coalition",
    "hypernetwork": "Beyond the paper (d): hypernetwork, or directly weighted gradients",
    "principles": "Beyond the paper (e): the cost of the principles",
    "mixing": "Beyond the paper: what each part of EgoMix contributes",
}
NOTES_ON_QUESTIONS = {
    "coalitions": (
        "**This table does not answer its question.** In eight of ten cases the best coalitions "
        "are the published ones, so there is no contrast to measure.",
    ),
    "principles": (
        "What competition costs EgoMix is known to ±1.8 points here only. The cost of the first "
        "principle, that nobody rides free, is measured "
        "[elsewhere](../principle-one/principle-one.md), without images.",
    ),
}


def _beyond_the_paper() -> Iterator[ReproducedTable]:
    by_distribution = ("distribution", "method")
    cifar10 = tuple(({"distribution": how}, _images("cifar10", how, 0.2)) for how in DISTRIBUTIONS)
    for name, variants in QUESTIONS.items():
        yield ReproducedTable(
            name,
            TITLES[name],
            by_distribution,
            cifar10,
            variants,
            chosen=False,
            notes=NOTES_ON_QUESTIONS.get(name, ()),
        )
    yield ReproducedTable(
        "company",
        "Beyond the paper: baselines and EgoMix in the widest coalitions, images",
        ("dataset", "distribution", "method"),
        tuple(
            ({"dataset": data, "distribution": how}, _images(data, how, 0.2))
            for data in ("cifar10", "cifar100")
            for how in DISTRIBUTIONS
        ),
        COMPANY,
        notes=("At competition α = 0.2.",),
    )
    yield ReproducedTable(
        "company-synthetic",
        "Beyond the paper: baselines and EgoMix in the widest coalitions, synthetic data",
        ("dataset", "method"),
        tuple(
            ({"dataset": kind}, Scenario(f"synthetic-{kind}", (), "published"))
            for kind in ("weak", "strong")
        ),
        COMPANY,
    )
    yield ReproducedTable(
        "plain",
        "Beyond the paper: images without augmentation",
        by_distribution,
        cifar10,
        PLAIN,
        budget="plain",
        notes=(
            "CIFAR-10 at competition α = 0.2.",
            "`at rest`: without the momentum of mixtures; `from zero`: the silos' momentum starts "
            "at zero in every round, as it does for averages.",
        ),
    )
    yield ReproducedTable(
        "longer",
        "Beyond the paper: four and sixteen times as many steps",
        by_distribution,
        cifar10[1:],
        LONGER,
        notes=(
            "`denser benefits`: learned with a threshold of 0.05, in best coalitions; `everybody "
            "benefits`: in published coalitions. Baselines train along learned benefits here, "
            "except `fedavg-wide`; `company` has them in the widest coalitions, with as many steps "
            "as Local.",
            "Sixteen times the steps take minutes of a GPU for each row: only some have them.",
        ),
    )


PFLLIB: tuple[tuple[str, str, tuple[tuple[str, Any], ...]], ...] = tuple(
    (data, how, (*options, ("participants", 20), ("pooled", True)))
    for data in ("cifar10", "cifar100")
    for how, options in (
        ("dirichlet 0.1", (("partition", "dirichlet"), ("beta", 0.1))),
        ("dirichlet 0.5", (("partition", "dirichlet"), ("beta", 0.5))),
        (
            "pathological",
            (("partition", "pathological"), ("block", 5 if data == "cifar10" else 10)),
        ),
    )
)
"""PFLlib's settings: 20 clients, one pool of images, a quarter of each client's for its test; two
classes for each client of CIFAR-10, and ten of CIFAR-100, in the pathological partition."""

PFLLIB_REPETITIONS = 3
"""As many as PFLlib reports."""


def _of_pfllib() -> Iterator[ReproducedTable]:
    budgets: tuple[BudgetName, ...] = ("pfllib", "pfllib-augmented")
    for budget in budgets:
        yield ReproducedTable(
            budget,
            "PFLlib's settings" + ("" if budget == "pfllib" else ", with augmentation"),
            ("dataset", "distribution", "method"),
            tuple(
                ({"dataset": data, "distribution": how}, Scenario(data, options))
                for data, how, options in PFLLIB
            ),
            tuple(
                row
                for row in FAIR_IMAGES
                if row.where != "published" and (budget == "pfllib" or row.base.name in SCREENED)
            ),
            chosen=False,
            budget=budget,
            repetitions=dict.fromkeys(BUDGETS, PFLLIB_REPETITIONS),
            notes=(
                "Nobody competes: all clients train together. As in PFLlib, all methods have one "
                "learning rate, and nothing was chosen here. `egomix-0.8` was chosen on other "
                "divisions of the same images (repetitions 10 to 12 of Tables 1 and 2), and "
                "`fedavgm-kept` has its two momenta; all others have their defaults. PFLlib "
                "reports the best test round; here validation data, a tenth of each client's "
                "training images, chooses the round, so numbers are lower than by its rule.",
            ),
            revision=2,
        )


SCREENING = (
    "At competition 0.2 and β = 0.5, where rates are chosen, all rows are trained. Other columns "
    "have FedAvg and the rows that were as good as Local at competition 0.2 and β = 0.5, by "
    "validation accuracy of the deciding repetitions, averaged over both data sets and both "
    "distributions."
)
CORRECTED = "-corrected"
"""End of the names of tables that are trained with corrected methods."""


def _corrected(table: ReproducedTable) -> ReproducedTable:
    """Return a table of the paper with corrected methods, all rows and its longer budget."""
    scenarios = [scenario for _, scenario in table.scenarios]
    images = any(scenario.partition for scenario in scenarios)
    rows = FAIR_IMAGES if images else FAIR
    return replace(
        table,
        name=f"{table.name}{CORRECTED}",
        title=f"{table.title}, with corrected methods",
        variants=FAIR_HOSPITALS if table.variants == HOSPITALS else rows,
        budget="converged",
        repetitions=CORRECTED_REPETITIONS,
        notes=(*table.notes, SCREENING) if images else table.notes,
        revision=2,
        screened=images,
    )


TABLES: dict[str, ReproducedTable] = {
    table.name: table
    for table in (
        *_of_the_paper(),
        *_beyond_the_paper(),
        *(_corrected(table) for table in _of_the_paper()),
        *_of_pfllib(),
    )
}


def sources(table: ReproducedTable) -> list[ReproducedTable]:
    """Return the tables whose cells a table needs: its own, or those that it is derived from."""
    if not table.derived:
        return [table]
    ending = CORRECTED if table.revision > 1 else ""
    return [TABLES[f"table{number}{ending}"] for number in (1, 2)]


def table_named(name: str) -> ReproducedTable:
    """Return a table by its name."""
    if name not in TABLES:
        known = f"{', '.join(TABLES)}, figures and all"
        raise SettingsError(f"unknown table {name!r}; there are {known}")
    return TABLES[name]

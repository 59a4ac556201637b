"""Cells: one method in one repetition of one scenario under one budget, and its result."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fedegoists.errors import FileError, SettingsError
from reproduction.budgets import BudgetName
from reproduction.reproduced_tables import DECIDING, ReproducedTable
from reproduction.scenarios import Scenario
from reproduction.variants import Variant

__all__ = ["Cell", "CellResult", "Plan", "cell_from", "cells_of", "diverges"]

TOLERATED = 0.01
"""A rate with a larger fraction of failed rounds is not chosen."""
FORMAT = 2
"""Increased whenever the same settings would give different numbers."""


def diverges(failures: int, rounds: int, silos: int) -> bool:
    """Return whether so many rounds failed, over all silos, that a rate is not chosen.

    Examples
    --------
    >>> diverges(failures=8, rounds=80, silos=10), diverges(failures=9, rounds=80, silos=10)
    (False, True)
    """
    return failures > TOLERATED * rounds * silos


@dataclass(frozen=True)
class Plan:
    """The choices of a user for whole tables.

    Attributes
    ----------
    repetitions : int, optional
        Seeds 0 and up; without it, the table's own number.
    budget : str
        ``published`` or ``converged``; ignored by tables with a budget of their own.
    steps : int, optional
        Steps other than the budget's, to try things out; never in a published table.
    choose : bool
        Whether learning rates are chosen on validation data, in tables that do so.
    """

    repetitions: int | None = None
    budget: BudgetName = "converged"
    steps: int | None = None
    choose: bool = True

    def repetitions_of(self, table: ReproducedTable) -> int:
        """Return the number of repetitions of a table.

        Raises
        ------
        fedegoists.errors.SettingsError
            If a corrected table would show repetitions that decide about its rates.
        """
        if table.revision > 1 and self.repetitions and self.repetitions > DECIDING[0]:
            raise SettingsError(
                f"{self.repetitions} repetitions of {table.name}: repetitions {DECIDING[0]} to "
                f"{DECIDING[-1]} choose its rates; use at most {DECIDING[0]}"
            )
        return self.repetitions or table.repetitions[table.budget or self.budget]


@dataclass(frozen=True)
class Cell:
    """One method in one repetition of one scenario, under one budget.

    Attributes
    ----------
    until : int, optional
        The round whose models all participants take; without it, each participant's own
        validation data chooses its round.
    revision : int
        See `reproduction.reproduced_tables.ReproducedTable`.
    """

    scenario: Scenario
    repetition: int
    variant: Variant
    budget: BudgetName
    steps: int | None = None
    factor: float = 1.0
    until: int | None = None
    revision: int = 1

    @property
    def settings(self) -> dict[str, Any]:
        """All settings under their recorded names, which never change: digests depend on them."""
        scenario, variant = self.scenario, self.variant
        found: dict[str, Any] = {
            "scene": {
                "data": scenario.data,
                "options": scenario.options,
                "competition": scenario.competition,
            },
            "trial": self.repetition,
            "variant": {
                "name": variant.name,
                "method": variant.method,
                "where": variant.where,
                "benefit": variant.benefit,
                "rivals": variant.rivals,
                "settings": variant.settings,
                "passes": variant.length,
            },
            "budget": self.budget,
            "steps": self.steps,
            "factor": self.factor,
        }
        found |= {} if self.until is None else {"until": self.until}
        return found if self.revision == 1 else {**found, "revision": self.revision}

    @property
    def decides_rounds(self) -> bool:
        """Whether it is trained to choose one round for all participants."""
        chosen = self.scenario.small and self.budget != "published" and self.until is None
        return chosen and not self.variant.tuned

    @property
    def decides(self) -> bool:
        """Whether it is trained only to choose rates and settings: no table shows it."""
        return self.revision > 1 and self.repetition in DECIDING

    @cached_property
    def digest(self) -> str:
        """The cell's name: a hash of its settings."""
        text = json.dumps({"format": FORMAT, **self.settings}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The name of its repetition in a federation, in which each competition has its own."""
        rivals = self.scenario.competition
        return f"{self.repetition}@{rivals}" if rivals else f"{self.repetition}"

    @property
    def base(self) -> "Cell":
        """The same without fine-tuning, from which the fine-tuned one starts."""
        return replace(self, variant=self.variant.base)

    def words(self) -> str:
        """Return the settings in one line."""
        options = " ".join(f"{key}={value}" for key, value in self.scenario.options)
        rivals = f"competition {self.scenario.competition}" if self.scenario.competition else ""
        number = f"repetition {self.repetition}"
        parts = (self.scenario.data, options, rivals, number, self.variant.name, self.budget)
        return ", ".join(part for part in parts if part)


def cell_from(settings: Mapping[str, Any]) -> Cell:
    """Return the cell with these recorded settings."""
    try:
        scenario, variant = settings["scene"], dict(settings["variant"])
        length = variant.pop("passes")
        return Cell(
            Scenario(scenario["data"], _pairs(scenario["options"]), scenario["competition"]),
            settings["trial"],
            Variant(**{**variant, "settings": _pairs(variant["settings"]), "length": length}),
            settings["budget"],
            settings["steps"],
            settings["factor"],
            settings.get("until"),
            settings.get("revision", 1),
        )
    except (KeyError, TypeError) as error:
        raise FileError(f"not the settings of a cell ({error})") from None


def _pairs(given: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(pair) for pair in given)


def cells_of(table: ReproducedTable, plan: Plan) -> list[tuple[Mapping[str, Any], Cell]]:
    """Return a table's cells with the values of its key columns.

    A method that does not depend on competition has one cell for all levels of competition. Rows
    along another repetition's benefits exist to choose by, so the published budget has none.
    """
    found = []
    budget = table.budget or plan.budget
    for key, scenario in table.scenarios:
        for variant in table.rows_in(scenario):
            if variant.benefit == "crossed" and budget == "published":
                continue
            alike = variant.depends_on_coalitions and variant.rivals
            own = scenario if alike else replace(scenario, competition="")
            found += [
                (key, Cell(own, repetition, variant, budget, plan.steps, revision=table.revision))
                for repetition in range(plan.repetitions_of(table))
            ]
    return found


@dataclass(frozen=True)
class CellResult:
    """The result of training a cell.

    Attributes
    ----------
    metric : str
        The metric of `test` and `validation`.
    test : mapping of str to float
        Each participant's test metric at the round chosen for it.
    validation : mapping of str to float
        The validation metric of that round.
    rounds : mapping of str to int
        The chosen round.
    spent : mapping of str to float
        Sample passes and bytes sent and received, mean over participants.
    about : mapping
        Its origin: the cells trained with it, command, commit, device, time, settings.
    curves : mapping of str to list of (round, value)
        Each participant's validation metric after every evaluated round, where one round is chosen
        for all participants.
    """

    metric: str
    test: Mapping[str, float]
    validation: Mapping[str, float]
    rounds: Mapping[str, int]
    spent: Mapping[str, float]
    about: Mapping[str, Any]
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean of the participants' test metrics, of those that are defined."""
        return _mean(self.test)

    @property
    def mean_validation(self) -> float:
        """The mean of the participants' validation metrics, of those that are defined."""
        return _mean(self.validation)


def _mean(values: Mapping[str, float]) -> float:
    finite = [value for value in values.values() if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan

"""The figures: labels of every silo; competition, baseline and final coalitions."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fedegoists.coalitions import form
from fedegoists.coalitions.drawing import draw
from fedegoists.errors import FedEgoistsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.participants import default_names
from fedegoists.learning.datasets.synthetic import PARTICIPANTS, STRONG, WEAK
from fedegoists.learning.plots import draw_label_distribution
from fedegoists.training.repetitions import load_trainable
from reproduction.benefit_graphs import Benefits
from reproduction.cells import Cell
from reproduction.scenarios import Scenario
from reproduction.variants import VARIANTS

__all__ = ["draw_figures"]

CIFAR100_RIVALS = ((0, 3), (1, 9), (2, 7), (3, 4), (3, 7), (4, 6), (4, 8), (5, 7), (5, 8))
EICU_RIVALS = ((1, 4), (2, 3), (2, 4))
EICU_COVER = ((0, 3, 4), (1, 2), (5, 6, 7, 8, 9))
"""The cliques that the paper shows; our rule for ties chooses others of the same size."""


def draw_figures(out: Path, data_dir: Path | None) -> tuple[list[Path], list[str]]:
    """Draw all figures whose data is there; return their paths, and reasons for missing ones.

    The coalitions of CIFAR-100 are drawn with the benefit graph of the first repetition, if it is
    learned already. All other illustrations assume that every participant benefits all others.
    """
    made: list[Path] = []
    left: list[str] = []
    learned: BenefitGraph | None = None
    for name in ("cifar10", "cifar100"):
        for partition in ("pathological", "dirichlet"):
            path = out / "figures" / f"labels-{name}-{partition}.png"
            try:
                data = load_trainable(name, data_dir=data_dir, seed=0, partition=partition)
            except FedEgoistsError as error:
                left.append(f"{path.name}: {error}")
                continue
            draw_label_distribution(data, path, title=f"{name}, {partition}, repetition 0: labels")
            made.append(path)
            if name == "cifar100":
                learned = Benefits(out).known(_illustrated(), data)
    made += _coalitions(out / "figures", learned)
    return made, left


def _illustrated() -> Cell:
    """Return the cell whose learned benefit graph illustrates CIFAR-100."""
    scenario = Scenario("cifar100", (("partition", "dirichlet"), ("beta", 0.5)))
    return Cell(scenario, 0, VARIANTS["fedegoists"], "converged")


def _coalitions(out: Path, learned: BenefitGraph | None) -> Iterator[Path]:
    ten = default_names(10)
    known = _complete(10) if learned is None else learned.to_numpy()
    cover = [[ten[k] for k in group] for group in EICU_COVER]
    signs = np.array(STRONG.signs)
    for name, names, rivals, benefit, given in (
        ("cifar100", ten, _named(CIFAR100_RIVALS, ten), known, None),
        ("eicu", ten, _named(EICU_RIVALS, ten), _complete(10), cover),
        ("synthetic-weak", PARTICIPANTS, WEAK.competition_pairs, _complete(8), None),
        (
            "synthetic-strong",
            PARTICIPANTS,
            STRONG.competition_pairs,
            _complete(8) * (signs[:, None] == signs),
            None,
        ),
    ):
        told = "learned" if name == "cifar100" and learned is not None else "taken as complete"
        if name == "synthetic-strong":
            told = "between equal signs"
        graph, competition = BenefitGraph(benefit, names), CompetitionGraph(rivals, names)
        nothing = BenefitGraph(np.zeros_like(benefit), names)
        pictures = (
            ("competition", form(nothing, competition, "stable"), "who competes"),
            (
                "baseline",
                form(graph, competition, "cliques", cover=given),
                f"baseline coalitions, benefits {told}",
            ),
            (
                "final",
                form(graph, competition, "published", cover=given),
                f"final coalitions, benefits {told}",
            ),
        )
        for kind, formation, words in pictures:
            path = out / f"coalitions-{name}-{kind}.svg"
            draw(formation, path, title=f"{name}: {words}", show_across=False)
            yield path


def _complete(count: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    return np.ones((count, count)) - np.eye(count)


def _named(pairs: Iterable[tuple[int, int]], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((names[a], names[b]) for a, b in pairs)

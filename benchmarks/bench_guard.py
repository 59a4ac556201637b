"""The validation guard against one bad member, simulated: what the others lose, and false alarms.

Coalitions of silos that follow one rule with small differences. For each method and learning rate:
in how many honest runs a member was left out, in how many the bad one was found, and the others'
test loss relative to a run of the same seed in which the bad one is absent; beside it the same
without guard and bounds.
"""

import argparse
import statistics
from collections.abc import Mapping

import numpy as np
import torch

from benchmarks.measure import report
from fedegoists.federation import Participant, SimulatedFederation, TrainSettings
from fedegoists.federation.behaviours import Behaviour, drifting, garbage, times
from fedegoists.federation.robust_sums import RobustSettings
from fedegoists.learning.data import Samples, SiloedData, SiloIndices
from fedegoists.learning.models import build_model
from fedegoists.methods import METHODS, Outcome, RunSettings, run

FEATURES, CLASSES, STEPS, ROUNDS = 8, 3, 10, 20
ROWS = {"train": 60, "validation": 40, "test": 400}
BAD = Participant("b")
POISONS: Mapping[str, Behaviour | None] = {
    "flipped labels": None,
    "update times -10": times(-10.0),
    "noise": garbage(10.0),
    "drift": drifting(),
}


def silos(members: int, seed: int, poison: str | None, *, absent: bool) -> SimulatedFederation:
    """Return the silos, of which the second is bad, or is absent."""
    rule = np.random.default_rng(seed).normal(size=(FEATURES, CLASSES))
    samples, targets, parts, begin = [], [], [], 0
    for number, name in enumerate("abcdef"[:members]):
        rng = np.random.default_rng([seed, number])
        x = rng.normal(size=(sum(ROWS.values()), FEATURES)) + 0.3 * rng.normal(size=FEATURES)
        own = rule + 0.3 * rng.normal(size=rule.shape)
        y = (x @ own + 0.5 * rng.gumbel(size=(len(x), CLASSES))).argmax(1)
        if name == BAD.name and absent:
            continue
        if name == BAD.name and poison == "flipped labels":
            y = (y + 1) % CLASSES
        ends = begin + np.cumsum(list(ROWS.values()))
        places = np.split(np.arange(begin, ends[-1]), ends[:-1] - begin)
        parts.append(SiloIndices(name, *places))
        samples.append(x.astype(np.float32))
        targets.append(y.astype(np.int64))
        begin = int(ends[-1])
    table = Samples((np.concatenate(samples),), np.concatenate(targets))
    data = SiloedData("guard", "classification", table, tuple(parts), CLASSES, "", ())
    behaviour = POISONS[poison] if poison else None
    return SimulatedFederation(
        data,
        build_model("mlp", 0, features=FEATURES, outputs=CLASSES, hidden=20),
        behaviours={BAD: behaviour} if behaviour else {},
    )


def trained(
    method: str,
    rate: float,
    members: int,
    seed: int,
    poison: str | None = None,
    *,
    absent: bool = False,
    robust: bool = True,
) -> Outcome:
    """Train all of them in one coalition."""
    federation = silos(members, seed, poison, absent=absent)
    settings = TrainSettings(
        steps=STEPS, batch_size=20, learning_rate=rate, total_steps=ROUNDS * STEPS
    )
    start = federation.schema.drawn(seed)
    return run(
        METHODS[method](settings),
        federation,
        [federation.participants],
        torch.stack([start] * len(federation.participants)),
        RunSettings(rounds=ROUNDS, seed=seed, robust=RobustSettings() if robust else None),
    )


def others_loss(outcome: Outcome) -> float:
    """Return the mean test loss of all but the bad one, at the steps they chose."""
    names = sorted({row.participant for row in outcome.rows})
    chosen = dict(zip(names, outcome.best_round, strict=True))
    found = {
        row.participant: row.value
        for row in outcome.rows
        if (row.split, row.metric) == ("test", "loss") and row.round == chosen[row.participant]
    }
    return statistics.fmean(loss for name, loss in found.items() if name != BAD)


def left_out(outcome: Outcome) -> set[str]:
    """Return the members that were left out."""
    return {one.participant for one in outcome.findings if one.kind == "left out"}


COLUMNS = ("method", "rate", "poison", "runs", "honest left out", "bad found", "loss", "bare loss")
"""Losses of the others, relative to the bad one's absence; bare means without guard and bounds."""


def measure(method: str, rate: float, runs: int) -> list[tuple[object, ...]]:
    """Return a row for honest runs, and one for each poison."""
    cases = [(4 + 2 * (seed % 2), seed) for seed in range(runs)]
    honest = [left_out(trained(method, rate, *case)) for case in cases]
    rows: list[tuple[object, ...]] = [
        (method, rate, "none", runs, sum(map(bool, honest)), "", "", "")
    ]
    alone = [others_loss(trained(method, rate, *case, absent=True)) for case in cases]
    for poison in POISONS:
        guarded = [trained(method, rate, *case, poison) for case in cases]
        bare = [trained(method, rate, *case, poison, robust=False) for case in cases]
        wronged = sum(bool(left_out(one) - {BAD.name}) for one in guarded)
        found = sum(BAD.name in left_out(one) for one in guarded)
        losses = _median_ratio(guarded, alone), _median_ratio(bare, alone)
        rows.append((method, rate, poison, runs, wronged, found, *losses))
    return rows


def _median_ratio(outcomes: list[Outcome], alone: list[float]) -> float:
    found = [others_loss(one) / loss for one, loss in zip(outcomes, alone, strict=True)]
    return float(f"{statistics.median(found):.3g}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--methods", nargs="+", default=["fedavg", "egomix"])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.03, 0.1])
    options = parser.parse_args()
    rows = [
        row
        for method in options.methods
        for rate in options.rates
        for row in measure(method, rate, options.runs)
    ]
    report("guard", f"one bad member, {ROUNDS} rounds of {STEPS} steps", COLUMNS, rows)


if __name__ == "__main__":
    main()

"""The decision of the defaults: a file with a data source alone, in several divisions.

Nothing is set but the source and the seed of the division, and for tables their options. So the
model, its weight decay, the estimator and the coalitions are those that `fedegoists run` chooses.

    python -m reproduction decisions
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from fedegoists.coalitions.explanation import explain_alone
from fedegoists.consortium.pipeline import Consortium
from fedegoists.consortium.toml_text import toml_value
from fedegoists.files import write_bytes
from reproduction.record_files import read_records, records_csv

__all__ = [
    "CONSORTIA",
    "DECIDED_ON",
    "DefaultDecision",
    "decision_page",
    "decisions_of",
    "read_decisions",
    "written_decisions",
]

DECIDED_ON = tuple(range(5))
"""The divisions that are reported."""


@dataclass(frozen=True)
class PlainConsortium:
    """A data source with its options."""

    source: str
    options: Mapping[str, str] = field(default_factory=dict)

    def text(self, seed: int, folder: Path) -> str:
        """Return the file."""
        lines = ["[data]", f"source = {toml_value(self.source)}", f"seed = {seed}"]
        if self.options:
            lines.append(f"options = {toml_value(dict(self.options))}")
        return "\n".join([*lines, "[output]", f"folder = {toml_value(str(folder))}", ""])


CONSORTIA = {
    "heart": PlainConsortium("heart"),
    "tcga-brca": PlainConsortium("tcga-brca"),
    "eicu-demo": PlainConsortium("eicu-demo", {"series": "summary"}),
}


@dataclass(frozen=True)
class DefaultDecision:
    """The decision in one division.

    Attributes
    ----------
    coalitions : str
        Those of two or more members.
    members, participants : int
        Participants in company, and all.
    gain : float
        The expected gain, as the mean over all participants.
    reason : str
        Why the participant that would gain most in company with everybody is alone, if it is.
    """

    data: str
    seed: int
    model: str
    estimator: str
    coalitions: str
    members: int
    participants: int
    gain: float
    unit: str
    reason: str


def decisions_of(name: str, work: Path, seeds: Iterable[int] = DECIDED_ON) -> list[DefaultDecision]:
    """Learn and decide in every division, as `fedegoists run` does before it trains."""
    found = []
    for seed in seeds:
        path = work / f"{name}-{seed}.toml"
        write_bytes(path, CONSORTIA[name].text(seed, work / "runs").encode())
        consortium = Consortium.read(path)
        formation = consortium.form(consortium.learn_benefit())
        values = formation.values
        assert values is not None  # the default estimator learns them
        everybody = values.gains(np.ones((1, len(formation.participants)), dtype=np.bool_))[0]
        most = formation.participants[int(everybody.argmax())]
        groups = [group for group in formation.coalitions if len(group) > 1]
        alone = len(formation.coalition_of(most)) == 1
        found.append(
            DefaultDecision(
                name,
                seed,
                consortium.model.name,
                str(consortium.estimator),
                "; ".join(" + ".join(group) for group in groups),
                sum(map(len, groups)),
                len(formation.participants),
                math.fsum(formation.utilities.values()) / len(formation.participants),
                values.unit,
                str(explain_alone(formation, most)) if alone else "",
            )
        )
    return found


def decision_page(decisions: Sequence[DefaultDecision], origin: str) -> str:
    """Return the decisions as a page."""
    lines = [
        "# Decisions of the defaults",
        "",
        "A `consortium.toml` with nothing but the source of the data and the seed of its division. "
        "The expected gain is the mean over all participants, those alone included.",
        "",
        "| data | division | model | estimator | in company | expected mean gain | coalitions |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.data} | {one.seed} | {one.model} | {one.estimator} | {one.members} of "
        f"{one.participants} | {one.gain:+.4f} {one.unit} | {one.coalitions or 'nobody'} |"
        for one in decisions
    ]
    lines += ["", "## In short", "", "| data | in company | divisions |", "|---|---|---|"]
    counted = Counter((one.data, one.members, one.participants) for one in decisions)
    lines += [
        f"| {data} | {f'{members} of {all_}' if members else 'nobody'} | {count} |"
        for (data, members, all_), count in counted.items()
    ]
    reasons = [one for one in decisions if one.reason]
    lines += ["", "## Why the participant that would gain most with everybody is alone", ""]
    lines += [f"- {one.data}, division {one.seed}: {one.reason}" for one in reasons] or ["Nowhere."]
    return "\n".join([*lines, "", origin, ""])


written_decisions = partial(records_csv, DefaultDecision)
"""Return rows as CSV, see `reproduction.record_files`."""


read_decisions = partial(read_records, DefaultDecision)
"""Read what `written_decisions` returned."""

"""What a certificate claims about coalitions."""

from dataclasses import dataclass
from typing import Literal, get_args

from fedegoists.coalitions.formation import Formation
from fedegoists.coalitions.principles import Verification
from fedegoists.coalitions.proof.exhaustive_check import objective_value

__all__ = ["CLAIMS", "Claim", "ClaimName", "Status", "objective_claims", "principle_claims"]

Status = Literal["proven", "refuted", "not proven"]

ClaimName = Literal[
    "no free riders", "no conflicts", "merge-stable", "welfare", "upper bound", "objective"
]
CLAIMS: tuple[ClaimName, ...] = get_args(ClaimName)
"""In this order; the last only for another objective than welfare.

Its value is how many are alone for ``participation`` and the least that anybody receives for
``fair``; "proven" says that no valid partition is better by the objective.
"""


@dataclass(frozen=True)
class Claim:
    """One statement about the coalitions: its name, its status, and a value or witnesses."""

    claim: ClaimName
    status: Status
    value: float | None = None
    witnesses: tuple[str, ...] = ()


def principle_claims(checked: Verification) -> tuple[Claim, ...]:
    """Return what the independent checker found about the three requirements."""
    stable: Status = (
        "proven" if checked.stable else "not proven" if checked.stable is None else "refuted"
    )
    return (
        Claim(
            "no free riders",
            "refuted" if checked.free_riders else "proven",
            witnesses=tuple(map(str, checked.free_riders)),
        ),
        Claim(
            "no conflicts",
            "refuted" if checked.conflicts else "proven",
            witnesses=tuple(map(str, checked.conflicts)),
        ),
        Claim("merge-stable", stable, witnesses=tuple(map(str, checked.mergers))),
    )


def objective_claims(formation: Formation) -> tuple[Claim, ...]:
    """Return what is claimed about another objective than welfare."""
    if formation.objective == "welfare":
        return ()
    value = objective_value(formation.benefit, formation.coalitions, formation.objective)
    status: Status = "proven" if formation.best_by_objective else "not proven"
    return (Claim("objective", status, value),)

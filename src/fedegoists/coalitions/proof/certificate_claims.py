"""The claims of a certificate: what it states about the coalitions."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from fedegoists.coalitions.principles import Verification

Status = Literal["proven", "refuted", "not proven"]

ClaimName = Literal[
    "no free riders",
    "no conflicts",
    "enough members",
    "participation constraint",
    "merge-stable",
    "strategy-proof",
    "welfare",
    "upper bound",
    "objective",
]
CLAIMS: tuple[ClaimName, ...] = get_args(ClaimName)
"""In this order; "enough members" only where a smallest number of members is demanded,
"participation constraint" (each member is likely enough to gain) only with coalition values,
"strategy-proof" (no participant gains by misreporting the benefit it receives) only for method
``truthful``, and the last only for another objective than welfare.

Its value is the number of participants alone for ``participation``, and the lowest utility for
``fair``; "proven" says that no valid partition is better by the objective.
"""


def expected_claims(
    fewest_members: int, objective: str, confidence: float | None = None, method: str = "best"
) -> list[ClaimName]:
    """Return the claims of a certificate with these demands, this objective and this method.

    Examples
    --------
    >>> expected_claims(1, "welfare")
    ['no free riders', 'no conflicts', 'merge-stable', 'welfare', 'upper bound']
    """
    left_out = set[ClaimName]()
    if fewest_members == 1:
        left_out.add("enough members")
    if confidence is None:
        left_out.add("participation constraint")
    if method != "truthful":
        left_out.add("strategy-proof")
    if objective == "welfare":
        left_out.add("objective")
    return [claim for claim in CLAIMS if claim not in left_out]


@dataclass(frozen=True)
class Claim:
    """One statement about the coalitions: its name, its status, and a value or witnesses."""

    claim: ClaimName
    status: Status
    value: float | None = None
    witnesses: tuple[str, ...] = ()


def principle_claims(checked: Verification) -> tuple[Claim, ...]:
    """Return the findings of the independent checker about the requirements."""
    found: list[tuple[ClaimName, bool | None, tuple[object, ...]]] = [
        ("no free riders", not checked.free_riders, checked.free_riders),
        ("no conflicts", not checked.conflicts, checked.conflicts),
        ("enough members", not checked.too_small, checked.too_small),
        ("participation constraint", not checked.unlikely, checked.unlikely),
        ("merge-stable", checked.stable, checked.mergers),
    ]
    more = Counter[ClaimName](
        {
            "no free riders": checked.further_free_riders,
            "no conflicts": checked.further_conflicts,
        }
    )
    expected = expected_claims(checked.fewest_members, "welfare", checked.confidence)
    status: dict[bool | None, Status] = {True: "proven", False: "refuted", None: "not proven"}
    return tuple(
        Claim(name, status[holds], witnesses=_texts(witnesses, more[name]))
        for name, holds, witnesses in found
        if name in expected
    )


def _texts(witnesses: tuple[object, ...], more: int) -> tuple[str, ...]:
    """Return the witnesses as texts, and how many more there are."""
    further = (f"and {more:,} more",) if more else ()
    return (*map(str, witnesses), *further)

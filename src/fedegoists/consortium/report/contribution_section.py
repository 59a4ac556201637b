"""What members gave to one another, for the manager, and for each member its own part."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedegoists.consortium.report.wording import decimals_for, fixed, listed, signed
from fedegoists.training.contributions import Contribution

if TYPE_CHECKING:
    from fedegoists.consortium.consortium_run import ConsortiumRun


@dataclass(frozen=True)
class ShownContribution:
    """A contribution as text."""

    participant: str
    coalition: str
    gave: str
    interval: str
    share: str
    remark: str


@dataclass(frozen=True)
class ContributionSection:
    """The contributions of all members.

    Attributes
    ----------
    method : str
        The method that was accounted for.
    rows : tuple of ShownContribution
        Empty where nobody trained with others.
    sentences : tuple of str
        Members without which the others are not worse off, and members with the same samples.
    """

    method: str
    rows: tuple[ShownContribution, ...]
    sentences: tuple[str, ...]


def contribution_section(run: "ConsortiumRun") -> ContributionSection | None:
    """Return the section of the manager's page; None if it was not asked for."""
    ledger = run.ledger
    if ledger is None:
        return None
    decimals = decimals_for(one.gave.value for one in ledger.contributions)
    return ContributionSection(
        ledger.method,
        tuple(shown(one, decimals, _remark(one)) for one in ledger.contributions),
        ledger.remarks,
    )


def own_contribution(run: "ConsortiumRun", participant: str) -> ShownContribution | None:
    """Return a member's own contribution, without anything of another member.

    In a coalition of two, what one gave is the other's result, so there is none. Who has the same
    samples is for the manager alone.
    """
    one = None if run.ledger is None else run.ledger.about(participant)
    if one is None or len(one.coalition) == 2:
        return None
    return shown(one, decimals_for([one.gave.value]), "")


def shown(one: Contribution, decimals: int, remark: str) -> ShownContribution:
    """Return a contribution as text, with some decimals."""
    return ShownContribution(
        one.participant,
        listed(one.coalition),
        signed(one.gave.value, decimals),
        f"{signed(one.gave.low, decimals)} to {signed(one.gave.high, decimals)}",
        f"{fixed(100 * one.share_of_costs, 0)} %",
        remark,
    )


def _remark(one: Contribution) -> str:
    told = []
    if one.gave_nothing:
        told.append("the others are not worse off without it")
    if one.redundant_with:
        told.append(f"same samples as {listed(one.redundant_with)}")
    if one.left_out:
        told.append(f"without {listed(one.left_out)}, of which there is no result")
    return "; ".join(told)

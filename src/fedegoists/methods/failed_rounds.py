"""Runs that cannot go on: a stage that failed for everybody."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fedegoists.errors import FedEgoistsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.reasons import Reason
from fedegoists.federation.seam import Failure

if TYPE_CHECKING:
    from fedegoists.methods.outcome import Outcome

LASTING: frozenset[Reason] = frozenset({"error", "not finite", "wrong shape"})
"""Reasons for which another round will fail as well; silos that are late may be back in time."""


IN_EVALUATION: frozenset[Reason] = LASTING | {"refused"}
"""The same in an evaluation. In training, a sum may be refused because a member was away; an
evaluation is refused for good, as by silos that have not approved the model's code."""


class FailedRunError(FedEgoistsError):
    """A run in which every silo failed: there is no result to report.

    Attributes
    ----------
    outcome : Outcome, optional
        The outcome before that round, with the models chosen until then; None if it was the start
        that failed. Comparisons of methods need it: a method that diverges counts as it is.
    """

    outcome: "Outcome | None" = None


def check_answered(
    stage: str,
    answered: Collection[Participant],
    failures: Sequence[Failure],
    lasting: frozenset[Reason] = LASTING,
) -> None:
    """Refuse to go on where every silo failed, and would fail again.

    Raises
    ------
    FailedRunError
        With the first failure of each kind.
    """
    if answered or not failures or not {one.reason for one in failures} <= lasting:
        return
    kinds = {(one.reason, one.detail): one for one in reversed(failures)}
    raise FailedRunError(f"{stage}: every silo failed. {'; '.join(map(str, kinds.values()))}")

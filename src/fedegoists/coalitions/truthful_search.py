"""Method ``truthful``: no participant gains by misreporting the benefit it receives.

1. Divide the participants into groups of pairwise independent ones, with as many pairs inside the
   groups as possible. This step reads the competition graph only.
2. Inside each group, take the strongly connected components of the benefit graph.

Let i be in a group G. Its coalition consists of participants that i reaches along benefit edges
inside G and that reach i. A path out of i needs no edge into i, and the edges into i are all that i
reports. So whatever i reports, its coalition is inside a set R that does not depend on the report,
and with a true report it holds every member of R that benefits i. No report brings more. See
``docs/explanation-incentives.md`` for the proof about groups of liars.
"""

from functools import lru_cache

import numpy as np

from fedegoists.coalitions.algorithm1 import baseline_coalitions
from fedegoists.coalitions.contraction import Contraction
from fedegoists.coalitions.merging import stabilise
from fedegoists.coalitions.partition_search import NOT_PROVEN_STABLE, SearchResult, search_best
from fedegoists.errors import SettingsError
from fedegoists.graphs import BenefitGraph, CompetitionGraph

SECONDS = 1.0
"""Work for the groups. Like the seed, it is no option: both could be chosen after the reports."""

MOST_PARTICIPANTS = 2_500
"""Groups of more participants would need gigabytes: every two of them may share a group."""


def search_truthful(benefit: BenefitGraph, competition: CompetitionGraph) -> SearchResult:
    """Return the strongly connected components inside groups that reports do not influence."""
    groups, notes = independent_groups(competition)
    z = Contraction(benefit, competition)
    coalitions, _ = baseline_coalitions(z, competition.matrix, groups)
    z.merge_all(coalitions)
    partition = z.partition()
    mergers, proven = stabilise(z)
    stable = False if mergers else (True if proven else None)
    if stable is None:
        notes = (*notes, NOT_PROVEN_STABLE)
    return SearchResult(partition, stable, partition, [], notes)


@lru_cache(maxsize=64)
def independent_groups(
    competition: CompetitionGraph,
) -> tuple[list[list[int]], tuple[str, ...]]:
    """Divide participants into groups without competitors, with as many pairs as possible.

    The pairs of a group are the welfare if each participant benefited each other one by 1, so
    this is method ``best`` on that benefit graph. Reports of benefits are no argument here.

    Returns
    -------
    groups : list of list of int
        The groups, as positions.
    notes : tuple of str
        What was not reached within the time limit.

    Raises
    ------
    SettingsError
        If there are more than `MOST_PARTICIPANTS`.

    Examples
    --------
    b competes with a and c:

    >>> rivals = CompetitionGraph([("a", "b"), ("b", "c")], ["a", "b", "c", "d"])
    >>> independent_groups(rivals)
    ([[0, 2, 3], [1]], ())
    """
    n = len(competition.participants)
    if n > MOST_PARTICIPANTS:
        raise SettingsError(
            f"method 'truthful' divides up to {MOST_PARTICIPANTS:,} participants into groups, not "
            f"{n:,}; use method 'stable' or 'best'"
        )
    everything = np.ones((n, n)) - np.eye(n)
    found = search_best(
        BenefitGraph(everything, competition.participants),
        competition,
        seed=0,
        time_limit=SECONDS,
    )
    return found.partition, tuple(note for note in found.notes if note != NOT_PROVEN_STABLE)

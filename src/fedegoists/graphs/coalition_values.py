"""Coalition values: what each member is expected to gain in a coalition, with a standard error.

A benefit graph adds up: every further giver adds its whole weight. Measured gains do not; the
second doubling of one's data brings less than the first. Coalition values say for any coalition
what each member gains in the units of the task's own metric, such as accuracy or AUC.

Coalitions are rows of boolean matrices, with one column per participant, so that thousands of them
are valued in one call.
"""

from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedegoists.graphs.benefit_graph import BenefitGraph

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

RESOLUTION = 1e-9
"""Gains below this fraction of the largest possible gain from a pair count as zero."""

DEFAULT_CONFIDENCE = 0.6
"""The least probability of gaining; 0.5 would demand only that the expected gain is positive. The
data of real consortia seldom allow more, see the page on coalition values in the documentation."""


@runtime_checkable
class CoalitionValues(Protocol):
    """Expected gains of the members of any coalition, in the task's own metric.

    The concave default is `fedegoists.graphs.CurveValues`. Another model must keep these promises,
    on which upper bounds rest:

    - a member of a coalition of one gains 0;
    - `upper_gains` never falls if a coalition grows, and is at most its sum over pairs:
      ``upper_i(S) ≤ Σ_j upper_i({i, j})``;
    - where ``upper_i({i, j})`` is 0, adding j to a coalition never raises the gain of i.
    """

    @property
    def participants(self) -> tuple[str, ...]:
        """The participants' names, in the order of the columns."""
        ...

    @property
    def unit(self) -> str:
        """The metric in which gains are measured, such as ``AUC``."""
        ...

    @property
    def sha256(self) -> str:
        """A digest of the values; equal values have equal digests."""
        ...

    def gains(self, coalitions: Bools) -> Floats:
        """Return the expected gain of every member of each coalition; 0 for the others."""
        ...

    def standard_errors(self, coalitions: Bools) -> Floats:
        """Return the standard error of each expected gain; 0 for those that are no members."""
        ...

    def upper_gains(self, coalitions: Bools) -> Floats:
        """Return the highest expected gain of each member in any part of each coalition."""
        ...

    def linear_bounds(self, touching: Floats) -> tuple[Floats, Floats]:
        """Return additive upper bounds: constants c ≥ 0 and weights A.

        For every coalition S and member i that gains, ``gain_i(S) ≤ c[i] + Σ_{j ∈ S} A[j, i]``; no
        admissible coalition has a member that does not. The bound of
        participant i is as low as possible in the coalition that is row i of `touching`: 1 for its
        members, 0 for others, or means of these over several coalitions.
        """
        ...

    def restricted_to(self, participants: Sequence[str]) -> Self:
        """Return the values among some of the participants, in the order given."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the values for JSON; ``kind`` names the class that reads them back."""
        ...


Benefits = BenefitGraph | CoalitionValues
"""What participants gain from one another: benefits that add up, or values of coalitions."""


ENTRIES_AT_A_TIME = 1_000_000
"""Entries of the tables that coalition values are asked with at once."""


def pair_bounds(values: CoalitionValues) -> Floats:
    """Return ``bounds[j, i]``, the most that i gains from j in any coalition, never negative."""
    n = len(values.participants)
    every_first, every_second = np.triu_indices(n, 1)
    bounds = np.zeros((n, n))
    # Some pairs at a time: a row for each pair would need memory with the cube of n.
    at_a_time = max(ENTRIES_AT_A_TIME // max(n, 1), 1)
    for start in range(0, len(every_first), at_a_time):
        first = every_first[start : start + at_a_time]
        second = every_second[start : start + at_a_time]
        rows = np.arange(len(first))
        pairs = np.zeros((len(first), n), dtype=np.bool_)
        pairs[rows, first] = pairs[rows, second] = True
        upper = values.upper_gains(pairs)
        bounds[second, first] = upper[rows, first]
        bounds[first, second] = upper[rows, second]
    return np.maximum(bounds, 0.0)


def pair_graph(values: CoalitionValues) -> BenefitGraph:
    """Return the benefit graph of pairs: what i would gain with j alone, where that is positive.

    Pictures and the data-usage graph show these edges.
    """
    return BenefitGraph(pair_bounds(values), values.participants)


def least_gain(values: CoalitionValues) -> float:
    """Return the gain above which gains count as positive, so that rounding decides nothing."""
    return RESOLUTION * float(pair_bounds(values).max(initial=0.0))

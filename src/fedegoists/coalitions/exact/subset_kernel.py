"""The compiled dynamic program over all subsets, for more participants than NumPy can do fast."""

import numpy as np

from fedegoists.coalitions.array_types import Floats, Ints
from fedegoists.coalitions.exact.compiled import compiled


@compiled
def best_of_subsets(values: Floats, masks: Ints, n: int) -> Floats:
    """Return the best total of every set of the first n participants, from values of coalitions.

    The highest participant of a set is alone or in a coalition with some others of the set; the
    rest is a smaller set, whose best total is known. All parts of the others are tried, or all
    coalitions of the highest participant where these are fewer.

    Parameters
    ----------
    values : array of float
        The value of each set as a coalition; −∞ for those that are none.
    masks : array of int
        All coalitions, in ascending order.
    """
    best = np.zeros(1 << n)
    end = 0
    for i in range(n):
        top = 1 << i
        start = end  # of the coalitions whose highest participant is i
        while end < len(masks) and masks[end] < 2 * top:
            end += 1
        listed = end - start < 1.5**i  # on average, a set has so many parts
        for others in range(1 << i):
            highest = best[others]
            if listed:
                for k in range(start, end):
                    part = masks[k] ^ top
                    if part & ~others == 0:
                        highest = max(highest, values[masks[k]] + best[others ^ part])
            else:
                part = others
                while part:
                    total = values[part | top] + best[others ^ part]
                    if total > highest:
                        highest = total
                    part = (part - 1) & others
            best[others | top] = highest
    return best

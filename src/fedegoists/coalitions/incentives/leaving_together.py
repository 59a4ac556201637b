"""Groups that would rather leave.

Leaving alone never pays: a participant alone receives nothing, and benefits are not negative. A
group that leaves forms a valid coalition of its own in which each member receives more.
"""

import math

import numpy as np

from fedegoists.coalitions.contraction import bits
from fedegoists.coalitions.core_stability import ROUNDING, audit_core
from fedegoists.coalitions.exact.enumeration import as_columns, is_small, valid_coalitions
from fedegoists.coalitions.incentives.reporting import Temptation, Truth, listed


def leaving_temptations(truth: Truth, fewest_members: int, deadline: float) -> list[Temptation]:
    """Return for each participant the most that it gains by leaving with others.

    Exact where all coalitions can be listed; otherwise from one blocking group, or none if there is
    a proof that there is none.
    """
    n = truth.benefit.n
    if is_small(n):
        return _by_listing(truth, fewest_members)
    partition = [[truth.names[k] for k in group] for group in truth.partition]
    audit = audit_core(
        truth.benefit,
        truth.competition,
        partition,
        fewest_members=fewest_members,
        deadline=deadline,
    )
    now = truth.utilities
    found = []
    for i, name in enumerate(truth.names):
        bound = 0.0 if audit.core_stable else max(float(truth.highest[i] - now[i]), 0.0)
        gain, report = 0.0, ""
        if audit.blocking is not None and name in audit.blocking.members:
            gain = audit.blocking.gains[audit.blocking.members.index(name)]
            report = f"leaving with {', '.join(m for m in audit.blocking.members if m != name)}"
        found.append(Temptation("leave", gain, max(bound, gain), report))
    return found


def _by_listing(truth: Truth, fewest_members: int) -> list[Temptation]:
    n, weights, rivals = truth.benefit.n, truth.benefit.weights, truth.competition.matrix
    now = truth.utilities
    masks = valid_coalitions((weights > 0) & ~rivals, rivals, fewest_members)
    columns = as_columns(masks, n)
    received = columns @ weights
    leaves = np.where(columns, received > now * (1 + ROUNDING), True).all(axis=1)
    masks, columns, received = masks[leaves], columns[leaves], received[leaves]
    found = []
    for i in range(n):
        gains = np.where(columns[:, i], received[:, i] - now[i], -np.inf)
        if not len(gains) or gains.max() <= 0:
            found.append(Temptation("leave", 0.0, 0.0))
            continue
        group = [k for k in bits(int(masks[gains.argmax()])) if k != i]
        gain = math.fsum([*weights[group, i].tolist(), -float(now[i])])
        found.append(Temptation("leave", gain, gain, f"leaving with {listed(truth.names, group)}"))
    return found

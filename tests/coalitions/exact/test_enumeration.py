"""Listing all coalitions of a few participants agrees with the compiled search."""

import numpy as np
import pytest

from fedegoists.coalitions.exact import enumeration
from fedegoists.coalitions.exact.best_partition import (
    best_partition,
    load_searches,
)
from tests.instances import (
    LAWS,
    consortium,
    is_valid,
    utility,
)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("participation", [False, True])
def test_listing_agrees_with_the_compiled_search(law, participation, monkeypatch):
    """In welfare, in how many are together, and in that this is proven."""
    load_searches()
    for seed in range(20):
        benefit, competition = consortium(law, 8 + seed % 7, seed)
        alone = [[i] for i in range(benefit.n)]
        keep = [[i, i + 1] for i in range(0, benefit.n - 1, 2)] if seed % 2 else []
        found = []
        for small in (enumeration.SMALL, 0):
            monkeypatch.setattr(enumeration, "SMALL", small)
            found.append(
                best_partition(
                    benefit.entries,
                    competition.entries,
                    [alone],
                    seconds=20,
                    deadline=np.inf,
                    seed=0,
                    keep=keep,
                    participation=participation,
                )
            )
            monkeypatch.undo()
        listed, compiled = found
        assert listed.optimal, seed
        assert compiled.optimal, seed
        assert all(is_valid(group, benefit, competition) for group in listed.partition)
        assert sum(utility(g, benefit) for g in listed.partition) == pytest.approx(
            sum(utility(g, benefit) for g in compiled.partition), rel=1e-9
        )
        together = [sum(len(g) for g in o.partition if len(g) > 1) for o in found]
        assert not participation or together[0] == together[1], seed

"""Components, against their definition on matrices."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from fedegoists.coalitions.exact.reduction import components
from tests.instances import graphs


def by_definition(weights, rivals, fewest_members):
    useful = (weights > 0) & ~rivals
    alive = list(range(len(weights)))
    while True:
        left = [
            i
            for i in alive
            if useful[i, alive].any()
            and useful[alive, i].any()
            and (fewest_members <= 2 or (~rivals[i, alive]).sum() >= fewest_members)
        ]
        if left == alive:
            break
        alive = left
    linked = ~rivals if fewest_members > 2 else useful | useful.T
    graph = nx.from_numpy_array(linked[np.ix_(alive, alive)])
    found = [sorted(alive[k] for k in part) for part in nx.connected_components(graph)]
    return sorted(found, key=lambda part: (len(part), part))


@pytest.mark.parametrize("fewest_members", [1, 3])
@given(graphs(min_n=1))
@settings(max_examples=80, deadline=None)
def test_they_are_the_parts_that_can_gain_from_each_other(fewest_members, instance):
    benefit, competition = instance
    found = components(benefit.entries, competition.entries, fewest_members)
    assert found == by_definition(benefit.weights, competition.matrix, fewest_members)

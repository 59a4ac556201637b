"""The contracted graphs are those of the paper's Definition 2."""

import itertools

from hypothesis import given, settings

from fedegoists.coalitions.contraction import Contraction, bits
from tests.instances import graphs


@given(graphs(min_n=3))
@settings(max_examples=100, deadline=None)
def test_contraction_is_definition_2_after_merges(instance):
    """After merging 0 and 2, edges and rivalries are those between the members."""
    benefit, competition = instance
    z = Contraction(benefit, competition)
    assert z.merge(0b101) == 0
    groups = {0: [0, 2], **{k: [k] for k in range(1, benefit.n) if k != 2}}
    assert list(bits(z.nodes)) == sorted(groups)
    assert z.big == 1
    for k, m in itertools.permutations(groups, 2):
        edge = any(benefit.weights[i, j] > 0 for i in groups[k] for j in groups[m])
        rival = any(competition.matrix[i, j] for i in groups[k] for j in groups[m])
        assert bool(z.successors[k] >> m & 1) == edge
        assert bool(z.predecessors[m] >> k & 1) == edge
        assert bool(z.rivals[k] >> m & 1) == rival

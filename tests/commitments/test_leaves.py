"""The entries of a commitment have the positions that are computed for them."""

from hypothesis import given

from fedegoists import form
from fedegoists.commitments.leaves import entries, position_of, size_for
from tests.instances import graphs


@given(graphs(max_n=5))
def test_every_entry_stands_at_its_position(both):
    certificate = form(*both, "stable").certificate
    positions = [position_of(key, both[0].n) for key, _ in entries(certificate)]
    assert positions == list(range(size_for(both[0].n)))

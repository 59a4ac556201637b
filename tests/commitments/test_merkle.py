"""Hash trees: proofs lead to the root, at the right positions only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.commitments.merkle import leaf_hash, prove, root_from, tree
from fedegoists.errors import CertificateError


@given(st.integers(1, 40), st.data())
def test_any_set_of_leaves_leads_to_the_root_at_its_place_only(size, data):
    leaves = [leaf_hash(b"salt", bytes([k])) for k in range(size)]
    levels = tree(leaves)
    chosen = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    proof = prove(levels, chosen)
    opened = {k: leaves[k] for k in chosen}
    assert root_from(opened, size, proof) == levels[-1][0]
    wrong = data.draw(st.sampled_from(sorted(chosen)))
    other = leaf_hash(b"salt", b"another")
    assert root_from({**opened, wrong: other}, size, proof) != levels[-1][0]
    with pytest.raises(CertificateError, match="too long"):
        root_from(opened, size, [*proof, other])
    if proof:
        with pytest.raises(CertificateError, match="too short"):
            root_from(opened, size, proof[:-1])


def test_a_tree_by_hand():
    import hashlib

    a, b, c = (leaf_hash(b"s", x) for x in (b"a", b"b", b"c"))
    assert a == hashlib.sha256(b"\x00sa").digest()
    ab = hashlib.sha256(b"\x01" + a + b).digest()
    root = hashlib.sha256(b"\x01" + ab + c).digest()
    assert tree([a, b, c])[-1] == [root]
    assert prove(tree([a, b, c]), [0]) == [b, c]
    assert prove(tree([a, b, c]), [2]) == [ab]

"""A hash tree (Merkle tree): one hash binds many leaves, and a short proof shows some of them.

Leaves and inner nodes are hashed with different first bytes, so that none can pass for the other.
Where a level has an odd number of nodes, the last one goes up as it is. The checker knows the
number of leaves, so a proof also shows the position of each leaf.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from fedegoists.errors import CertificateError

DIGEST_BYTES = 32

Level = list[bytes]


def leaf_hash(salt: bytes, content: bytes) -> bytes:
    """Return the hash of a leaf; the salt keeps its content from being guessed by trying."""
    return hashlib.sha256(b"\x00" + salt + content).digest()


def _joined(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def tree(leaves: Iterable[bytes]) -> list[Level]:
    """Return all levels, from the leaves to the root.

    Examples
    --------
    >>> [len(level) for level in tree([leaf_hash(b"", bytes([k])) for k in range(5)])]
    [5, 3, 2, 1]
    """
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [_joined(below[k], below[k + 1]) for k in range(0, len(below) - 1, 2)]
        levels.append(above + below[len(below) - len(below) % 2 :])
    return levels


def prove(levels: Sequence[Level], positions: Iterable[int]) -> list[bytes]:
    """Return the fewest hashes that, together with some leaves, give the root."""
    known = sorted(set(positions))
    proof = []
    for level in levels[:-1]:
        present = set(known)
        proof += [level[k ^ 1] for k in known if k ^ 1 not in present and k ^ 1 < len(level)]
        known = sorted({k // 2 for k in known})
    return proof


def root_from(leaves: Mapping[int, bytes], size: int, proof: Iterable[bytes]) -> bytes:
    """Return the root of the tree with these leaves at their positions.

    Raises
    ------
    CertificateError
        If a position is outside the tree, or the proof has too few or too many hashes.
    """
    if not leaves or not all(0 <= k < size for k in leaves):
        raise CertificateError("the proof opens no entry, or one that is not in the tree")
    rest = iter(proof)
    known = dict(leaves)
    while size > 1:
        above: dict[int, bytes] = {}
        for k in sorted(known):
            if k // 2 in above:
                continue
            if k ^ 1 >= size:
                above[k // 2] = known[k]
                continue
            beside = known.get(k ^ 1) or next(rest, None)
            if beside is None:
                raise CertificateError("the proof is too short")
            above[k // 2] = _joined(beside, known[k]) if k % 2 else _joined(known[k], beside)
        known, size = above, (size + 1) // 2
    if next(rest, None) is not None:
        raise CertificateError("the proof is too long")
    return known[0]

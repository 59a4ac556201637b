"""The entries that a commitment binds, and their positions among the leaves of the hash tree.

For n participants, in this order: the coalition of each; the benefit of each to each, row by row;
whether they compete, for each pair; and one entry for the certificate with all claims. An entry is
written as canonical JSON, its key first, weights as the 16 hexadecimal digits of the big-endian
IEEE 754 double, so that no two programs can disagree.
"""

import hashlib
import hmac
import json
import struct
from collections.abc import Iterator, Sequence

from fedegoists.coalitions import Certificate
from fedegoists.commitments.merkle import leaf_hash

Key = tuple[str | int, ...]
"""``("coalition", p)``, ``("benefit", j, i)``, ``("competition", a, b)`` with a < b, or
``("certificate",)``; participants by position."""

Value = str | bool | tuple[int, ...]


def size_for(n: int) -> int:
    """Return the number of entries for n participants."""
    return n + n * n + n * (n - 1) // 2 + 1


def position_of(key: Key, n: int) -> int | None:
    """Return the position of an entry, or None if there is no such entry.

    Examples
    --------
    >>> position_of(("coalition", 2), 3), position_of(("benefit", 0, 1), 3)
    (2, 4)
    >>> position_of(("competition", 1, 2), 3)
    14
    >>> position_of(("competition", 2, 1), 3) is None
    True
    """
    match key:
        case ("coalition", int(p)) if 0 <= p < n:
            return p
        case ("benefit", int(j), int(i)) if 0 <= j < n and 0 <= i < n:
            return n + j * n + i
        case ("competition", int(a), int(b)) if 0 <= a < b < n:
            return n + n * n + a * n - a * (a + 1) // 2 + b - a - 1
        case ("certificate",):
            return size_for(n) - 1
    return None


def entries(certificate: Certificate) -> Iterator[tuple[Key, Value]]:
    """Yield all entries in the order of their positions."""
    names = certificate.benefit.participants
    place = {name: k for k, name in enumerate(names)}
    home = {
        name: tuple(place[other] for other in group)
        for group in certificate.coalitions
        for name in group
    }
    for p, name in enumerate(names):
        yield ("coalition", p), home[name]
    for j, row in enumerate(certificate.benefit.weights.tolist()):
        for i, weight in enumerate(row):
            yield ("benefit", j, i), struct.pack(">d", weight).hex()
    matrix = certificate.competition.matrix
    for a in range(len(names)):
        for b in range(a + 1, len(names)):
            yield ("competition", a, b), bool(matrix[a, b])
    yield ("certificate",), _sha256(certificate.to_json().encode())


def weight_of(digits: object) -> float:
    """Return the benefit of an opened entry; anything but 16 hexadecimal digits is an error.

    Examples
    --------
    >>> weight_of("3fe0000000000000")
    0.5
    """
    if digits is None:
        raise ValueError("a benefit inside the coalition is not opened")
    if not isinstance(digits, str) or len(digits) != 16:
        raise ValueError("a weight has 16 hexadecimal digits")
    weight: float = struct.unpack(">d", bytes.fromhex(digits))[0]
    return weight


def content_of(key: Key, value: Value) -> bytes:
    """Return an entry as bytes."""
    return _canonical([*key, value])


def salt_of(secret: bytes, key: Key) -> bytes:
    """Return the salt of an entry; all follow from one secret, but none from another."""
    return hmac.digest(secret, _canonical(key), "sha256")


def hashed(secret: bytes, certificate: Certificate) -> Iterator[bytes]:
    """Yield the leaves of the tree over all entries."""
    for key, value in entries(certificate):
        yield leaf_hash(salt_of(secret, key), content_of(key, value))


def commitment_digest(
    context: str, participants: Sequence[str], root: bytes, fewest_members: int = 1
) -> str:
    """Return the commitment: it binds the tree to its participants and to its occasion.

    Where a smallest number of members is demanded, the commitment binds it as well, so that every
    member checks its coalition against the same number.
    """
    head: list[object] = ["fedegoists commitment", 1, context, list(participants), root.hex()]
    if fewest_members > 1:
        head.append({"fewest_members": fewest_members})
    return _sha256(_canonical(head))


def _canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

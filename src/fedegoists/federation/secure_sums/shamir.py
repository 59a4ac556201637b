"""Shamir's secret sharing of 32-byte secrets over a prime field.

Shamir, "How to share a secret", Communications of the ACM 22(11), 1979. Any `threshold` shares give
the secret; fewer say nothing about it.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fedegoists.errors import FedEgoistsError

PRIME = 2**256 + 297
"""The smallest prime above all secrets."""

SECRET_BYTES, SHARE_BYTES = 32, 33


class ShareError(FedEgoistsError):
    """Shares that give no secret."""


def split(secret: bytes, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
    """Return a share for each holder, of which `threshold` give the secret.

    Parameters
    ----------
    holders : sequence of int
        Distinct numbers from 1.
    """
    if len(secret) != SECRET_BYTES:
        raise ShareError(f"a secret of {len(secret)} bytes; expected {SECRET_BYTES}")
    if not 1 <= threshold <= len(holders) or len(set(holders)) < len(holders) or min(holders) < 1:
        raise ShareError(f"{threshold} of {len(holders)} holders cannot share a secret")
    # The secret is the value at 0 of a random polynomial of degree threshold - 1.
    coefficients = [
        int.from_bytes(secret),
        *(secrets.randbelow(PRIME) for _ in range(threshold - 1)),
    ]
    return {holder: _value(coefficients, holder).to_bytes(SHARE_BYTES) for holder in holders}


def _value(coefficients: Sequence[int], at: int) -> int:
    """Return the value of a polynomial, by Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * at + coefficient) % PRIME
    return value


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of exactly as many shares as the threshold says.

    Raises
    ------
    ShareError
        If they cannot be shares of one secret. Wrong or too few shares mostly give another secret:
        compare it with a commitment.
    """
    points = {holder: int.from_bytes(share) for holder, share in shares.items()}
    if not points or any(value >= PRIME for value in points.values()) or min(points) < 1:
        raise ShareError("these are no shares of a secret")
    secret = _interpolated(points, 0)
    if secret >= 2 ** (8 * SECRET_BYTES):
        raise ShareError("these are no shares of one secret")
    return secret.to_bytes(SECRET_BYTES)


def fits(shares: Mapping[int, bytes], holder: int, share: bytes) -> bool:
    """Return whether one more share belongs to the secret of `shares`, as many as the threshold."""
    points = {one: int.from_bytes(value) for one, value in shares.items()}
    return _interpolated(points, holder) == int.from_bytes(share)


def _interpolated(points: Mapping[int, int], at: int) -> int:
    """Return the value of the polynomial through some points, by Lagrange's interpolation."""
    return sum(points[one] * own for one, own in _coefficients(tuple(points), at).items()) % PRIME


@lru_cache(maxsize=128)
def _coefficients(holders: tuple[int, ...], at: int) -> dict[int, int]:
    """Return the weights of values at `holders`; secrets of one round have the same holders."""
    found = {}
    for one in holders:
        over, under = 1, 1
        for other in holders:
            if other != one:
                over = over * (other - at) % PRIME
                under = under * (other - one) % PRIME
        found[one] = over * pow(under, -1, PRIME) % PRIME
    return found

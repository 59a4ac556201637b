"""Shares of a secret: enough of them give it, fewer say nothing."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedegoists.federation.secure_sums.shamir import PRIME, ShareError, combine, split

SECRETS = st.binary(min_size=32, max_size=32)


def combined(shares):
    """The secret of some shares; nothing where they give a number that is no secret."""
    try:
        return combine(shares)
    except ShareError:
        return None


@st.composite
def cases(draw):
    holders = draw(st.integers(1, 12))
    return draw(SECRETS), draw(st.integers(1, holders)), list(range(1, holders + 1))


@given(cases(), st.randoms(use_true_random=False))
def test_any_choice_of_enough_shares_gives_the_secret(case, random):
    secret, threshold, holders = case
    shares = split(secret, threshold, holders)
    chosen = random.sample(holders, threshold)
    assert combine({holder: shares[holder] for holder in chosen}) == secret


@given(SECRETS, st.integers(3, 8))
def test_one_share_too_few_gives_another_secret(secret, threshold):
    shares = split(secret, threshold, range(1, threshold + 1))
    del shares[1]
    assert combined(shares) != secret


def test_fewer_shares_fit_every_secret():
    # With one share of two, for any secret there is exactly one line through both points.
    share = int.from_bytes(split(b"\x07" * 32, 2, [1, 2])[1])
    for other in (0, 1, 2**255):
        slope = (share - other) % PRIME
        second = (other + 2 * slope) % PRIME
        points = {1: share.to_bytes(33), 2: second.to_bytes(33)}
        assert int.from_bytes(combine(points)) == other


def test_shares_differ_every_time():
    first, second = (split(bytes(32), 2, [1, 2, 3]) for _ in range(2))
    assert all(one != other for one, other in zip(first.values(), second.values(), strict=True))


def test_a_wrong_share_gives_another_secret():
    shares = split(b"\x01" * 32, 3, [1, 2, 3, 4])
    shares[2] = shares[1]
    right = [chosen for chosen in itertools.combinations(shares, 3) if 2 not in chosen]
    assert [combine({k: shares[k] for k in chosen}) for chosen in right] == [b"\x01" * 32]
    assert combined({k: shares[k] for k in (1, 2, 3)}) != b"\x01" * 32


@pytest.mark.parametrize(
    ("secret", "threshold", "holders"),
    [
        (bytes(31), 2, [1, 2]),
        (bytes(32), 3, [1, 2]),
        (bytes(32), 0, [1]),
        (bytes(32), 2, [1, 1]),
        (bytes(32), 1, [0]),
    ],
)
def test_what_cannot_be_shared_is_refused(secret, threshold, holders):
    with pytest.raises(ShareError):
        split(secret, threshold, holders)


@pytest.mark.parametrize("shares", [{}, {1: b"\xff" * 33}, {0: bytes(33)}])
def test_what_are_no_shares_is_refused(shares):
    with pytest.raises(ShareError):
        combine(shares)


def test_the_field_is_a_prime_above_all_secrets():
    # Fermat's test with several bases; 2²⁵⁶ + 297 is the next prime after 2²⁵⁶.
    assert PRIME > 2**256
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in (2, 3, 5, 7, 11, 13))

"""The masks of a member's vector, and which of them the server can take off.

Member i of a sum uploads

    x_i + own_i + Σ_{j > i} pair_ij − Σ_{j < i} pair_ij + blind_ir,

where the masks of pairs cancel in the sum, ``own_i`` comes off with i's seed, which its peers hold
shares of, and ``blind_ir``, if the sum has a receiver r, comes off at the receiver only.
"""

from fedegoists.federation.secure_sums.fixed_point import Ring
from fedegoists.federation.secure_sums.mask_streams import derived, stream


def own_mask(seed: bytes, agreement: bytes, index: int, length: int) -> Ring:
    """Return a member's own mask in the sum with an index."""
    return stream(derived(seed, agreement, f"own/{index}"), length)


def add_pair_mask(
    total: Ring, secret: bytes, agreement: bytes, index: int, one: str, other: str
) -> None:
    """Add the mask of a pair as `one` of them does; `other` subtracts the same.

    Parameters
    ----------
    secret : bytes
        That of the two members' mask keys.
    """
    first, second = sorted((one, other))
    mask = stream(derived(secret, agreement, f"pair/{index}/{first}/{second}"), len(total))
    if one == first:
        total += mask
    else:
        total -= mask


def blind(secret: bytes, agreement: bytes, index: int, contributor: str, length: int) -> Ring:
    """Return the mask between a contributor and the receiver of a sum.

    It is made with the keys of the session, of which nobody has a share: where the receiver drops
    out, the sum stays hidden. The receiver hides its own part likewise, with a secret of its key
    and itself: it may be the only one left.

    Parameters
    ----------
    secret : bytes
        That of the two members' keys of the session.
    """
    return stream(derived(secret, agreement, f"blind/{index}/{contributor}"), length)

"""Training, validation and test by a hash of each row's key, so that rows never change sides.

A row's split depends on its own key and the seed alone: not on the other rows, their order, or the
other organisations. Rows with the same key, such as those of one patient, are in the same split,
even at two organisations.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from fedegoists.learning.data import Indices, SiloIndices
from fedegoists.learning.partitioners import SPLIT_SHARES

FEWEST_KEYS = len(SPLIT_SHARES)
"""Keys of a class with which it is in every split; with fewer it stays where its hashes put it."""
LEAST_SHARE = 0.5
"""The fraction of its share of a class's keys that every split has at least, and at least one."""
BLOCK = 10_000
"""Rows that are hashed at a time, so that few are copied."""

Numbers = npt.NDArray[np.float64]
Shares = tuple[float, float, float]
"""The fractions of keys for training, validation and test."""


@dataclass(frozen=True, eq=False)
class KeySplit:
    """The division of one organisation's rows.

    Attributes
    ----------
    split : array of int
        0, 1 and 2 for training, validation and test, for each row.
    key_of : array of int
        Which of the different keys each row has.
    keys : int
        The number of different keys.
    moved : int
        Keys that are not where their hash puts them, so that no split has too little of a class.
    """

    split: Indices
    key_of: Indices
    keys: int
    moved: int

    def silo(self, name: str, start: int) -> SiloIndices:
        """Return the silo whose rows begin at a position among all samples."""
        parts = (start + np.flatnonzero(self.split == k) for k in range(len(SPLIT_SHARES)))
        return SiloIndices(name, *parts)


def joined_groups(divisions: Sequence[KeySplit]) -> Indices | None:
    """Return the groups of all organisations' rows, one after the other: rows with the same key.

    None if no organisation has two rows with the same key.

    Examples
    --------
    >>> one = split_by_key([b"a", b"b", b"a"], np.zeros(3, dtype=int), seed=0)
    >>> other = split_by_key([b"a", b"c"], np.zeros(2, dtype=int), seed=0)
    >>> joined_groups([one, other]).tolist(), joined_groups([other])
    ([0, 1, 0, 2, 3], None)
    """
    if all(one.keys == len(one.key_of) for one in divisions):
        return None
    starts = accumulate((one.keys for one in divisions), initial=0)
    return np.concatenate([s + one.key_of for s, one in zip(starts, divisions, strict=False)])


def row_keys(values: Numbers) -> list[bytes]:
    """Return a key for each row of a table that has none: a hash of the row's content.

    Parameters
    ----------
    values : array, rows × columns
        The numbers; all that are not measured (NaN) are alike.

    Examples
    --------
    >>> one, other, copy = row_keys(np.array([[1.0, np.nan], [2.0, 0.0], [1.0, np.nan]]))
    >>> one == copy, one == other
    (True, False)
    """
    keys: list[bytes] = []
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        # One NaN, one zero, and the same bytes on every machine.
        plain = np.ascontiguousarray((np.where(np.isnan(block), np.nan, block) + 0.0).astype("<f8"))
        keys += [hashlib.blake2b(row.data, digest_size=16).digest() for row in plain]
    return keys


def split_by_key(
    keys: Sequence[bytes], classes: Indices, seed: int, shares: Shares = SPLIT_SHARES
) -> KeySplit:
    """Divide rows by the hash of their keys, 70/15/15 unless other shares are given.

    The hash of a key is a number from 0 to 1: below 0.7 its rows are for training, from 0.85 for
    test. Sizes and class mixes are therefore met on average only. Where a split has less than half
    of its share of a class, or nothing of one that at least three keys have, the keys whose hashes
    are nearest move there, unless their old split would then lack a class. With many keys that
    never happens; a class of which there are 20 is in every split.

    Parameters
    ----------
    keys : sequence of bytes
        The key of each row.
    classes : array of int
        The class of each row; 0 for all where there are none.
    seed : int
        Another seed gives another division.
    shares : three floats
        The fractions for training, validation and test; they sum to 1.

    Examples
    --------
    >>> keys = [str(patient).encode() for patient in (7, 8, 9, 7)]
    >>> found = split_by_key(keys, np.zeros(4, dtype=int), seed=0)
    >>> found.split.tolist(), found.keys
    ([1, 0, 2, 1], 3)
    """
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    own = np.array([places[key] for key in keys], dtype=np.int64)
    hashes = np.array([_hash(key, seed) for key in places])
    natural = np.searchsorted(_ends(shares), hashes, side="right")
    # has[k, c]: whether key k has a row of class c
    has = np.zeros((len(places), int(classes.max(initial=0)) + 1), dtype=bool)
    has[own, classes] = True
    split = _with_all_classes(natural, hashes, has, shares)
    return KeySplit(split[own], own, len(places), int(np.sum(split != natural)))


def _hash(key: bytes, seed: int) -> float:
    digest = hashlib.blake2b(key, digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big") / 2**64


def _ends(shares: Shares) -> tuple[float, ...]:
    """Return the hashes, as numbers from 0 to 1, at which validation and test begin."""
    return tuple(accumulate(shares[:-1]))


def _with_all_classes(
    natural: Indices, hashes: Numbers, has: npt.NDArray[np.bool_], shares: Shares
) -> Indices:
    """Move keys until no split lacks keys of a class that it could have."""
    split = natural.astype(np.int64)
    keys_of = has.sum(axis=0)
    # least[k, c]: keys of class c that split k must have; none of a class with too few keys
    least = np.maximum(np.outer(shares, keys_of) * LEAST_SHARE, 1).astype(np.int64)
    least[:, keys_of < FEWEST_KEYS] = 0
    bounds = (0.0, *_ends(shares), 1.0)
    counts = np.stack([has[split == k].sum(axis=0) for k in range(len(shares))])
    for c in np.argsort(keys_of, kind="stable").tolist():  # the rarest first
        for k in np.flatnonzero(counts[:, c] < least[:, c]).tolist():
            while counts[k, c] < least[k, c]:
                # A key may leave if its split still has enough of all the classes of the key.
                spare = (counts > least) | (least == 0)
                leaves = (spare[split] | ~has).all(axis=1) & (split != k)
                may = np.flatnonzero(has[:, c] & leaves)
                if not len(may):
                    break
                away = np.maximum(bounds[k] - hashes[may], hashes[may] - bounds[k + 1])
                key = may[np.lexsort((hashes[may], away))[0]]
                counts[split[key]] -= has[key]
                counts[k] += has[key]
                split[key] = k
    return split

"""Division of samples among silos: pure functions of labels and a random generator.

Throughout, `labels` are the classes of all samples and `rng` is a random generator; the same state
gives the same division. Functions return positions in the labels, in ascending order.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedegoists.errors import SettingsError, shown
from fedegoists.graphs.participants import natural_order
from fedegoists.learning.data import DataError, Indices, SiloIndices

SPLIT_SHARES = (0.7, 0.15, 0.15)
"""The shares of a silo's samples for training, validation and test."""
REDRAWS = 50
"""Draws of `dirichlet` before it moves samples to participants with too few."""
LARGEST_BETA = 1e12
"""Above it, shares differ by less than a millionth, and numpy's draws start to overflow."""


def seeded(seed: object) -> np.random.Generator:
    """Return the random generator of a seed."""
    return np.random.default_rng(_whole_number("seed", seed, 0))


def consecutive_blocks(classes: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Return classes 0, 1, … in blocks of `size`; the last one may be smaller.

    Examples
    --------
    >>> consecutive_blocks(10, 5)
    ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    """
    return tuple(
        tuple(range(first, min(first + size, classes))) for first in range(0, classes, size)
    )


def pathological(
    labels: npt.ArrayLike,
    participants: int,
    blocks: Sequence[Sequence[int]],
    rng: np.random.Generator,
) -> tuple[Indices, ...]:
    """Give every participant one class from each block, and as many samples as the others.

    The classes of a block are dealt like cards: a class is dealt again only when all others have
    been dealt, so as few participants as possible share one. From each block all get the same
    number of samples, the largest for which participants that share a class get different ones.
    So participants differ in labels, not in quantity. All samples are used if classes are equally
    frequent and `participants` is a multiple of the size of the blocks.

    Raises
    ------
    SettingsError
        If a class is in the blocks twice.
    DataError
        If a class has no samples, or fewer than participants that would share it.

    Examples
    --------
    Ten participants share CIFAR-10 completely: two classes and 5,000 images for each.

    >>> labels = np.repeat(np.arange(10), 5000)
    >>> blocks = consecutive_blocks(10, 5)
    >>> parts = pathological(labels, 10, blocks, np.random.default_rng(0))
    >>> [len(part) for part in parts] == [5000] * 10
    True
    >>> len(np.unique(labels[parts[0]]))
    2
    """
    labels = _classes_of(labels)
    participants = _whole_number("participants", participants, 1)
    members = _members_by_class(labels, rng)
    _check_blocks(blocks, members)
    pieces: list[list[Indices]] = [[] for _ in range(participants)]
    for block in blocks:
        rounds = -(-participants // len(block))
        dealt = np.concatenate([rng.permutation(np.asarray(block)) for _ in range(rounds)])
        dealt = rng.permutation(dealt[:participants])
        classes, sharers = np.unique(dealt, return_counts=True)
        shares = [len(members[c]) // k for c, k in zip(classes.tolist(), sharers, strict=True)]
        size = min(shares)
        if size == 0:
            scarce = int(classes[np.argmin(shares)])
            raise DataError(
                f"class {scarce} has {len(members[scarce])} samples for "
                f"{sharers[np.argmin(shares)]} participants; take fewer participants or larger "
                "blocks"
            )
        taken = dict.fromkeys(classes.tolist(), 0)
        for piece, c in zip(pieces, dealt.tolist(), strict=True):
            piece.append(members[c][taken[c] : taken[c] + size])
            taken[c] += size
    return tuple(_joined(piece) for piece in pieces)


def _check_blocks(blocks: Sequence[Sequence[int]], members: dict[int, Indices]) -> None:
    if not len(blocks) or not all(len(block) for block in blocks):
        raise SettingsError("blocks: give at least one block, and at least one class in each")
    listed = [c for block in blocks for c in block]
    for k, c in enumerate(listed):
        if c in listed[:k]:
            raise SettingsError(f"blocks: class {c} is there twice; blocks must not overlap")
        if c not in members:
            raise DataError(f"blocks: class {c} has no samples; leave it out")


def dirichlet(
    labels: npt.ArrayLike,
    participants: int,
    beta: float,
    rng: np.random.Generator,
    min_size: int = 10,
) -> tuple[Indices, ...]:
    """Divide each class by shares drawn from a Dirichlet distribution, with a least size for all.

    For every class c a vector q_c over the participants is drawn from Dir(β), and participant i
    gets the share q_{c,i} of its samples, rounded so that every sample is given to one of them. If
    a participant has fewer than `min_size` samples, all is drawn again. For small β and many
    participants that never succeeds, so after 50 draws the last one is repaired: participants with
    too few samples get random ones of the participant with the most. They come from one donor as
    far as possible, since a mixture of many would give the poorest the most even labels.

    Parameters
    ----------
    beta : float
        The smaller, the more the participants' labels differ.

    Examples
    --------
    >>> labels = np.repeat(np.arange(10), 500)
    >>> parts = dirichlet(labels, 100, 0.01, np.random.default_rng(0))
    >>> sum(map(len, parts)), min(map(len, parts)) >= 10
    (5000, True)
    """
    labels = _classes_of(labels)
    participants = _whole_number("participants", participants, 1)
    min_size = _whole_number("min_size", min_size, 1)
    if not isinstance(beta, int | float | np.number) or not 0 < beta < math.inf:
        raise SettingsError(f"beta is {shown(beta)}; give a number above 0")
    if participants * min_size > len(labels):
        raise SettingsError(
            f"{len(labels)} samples are not enough for {participants} participants with at least "
            f"{min_size} each; lower one of the two"
        )
    concentration = np.full(participants, min(beta, LARGEST_BETA))
    owner = np.empty(len(labels), dtype=np.int64)
    for _ in range(REDRAWS):
        for members in _members_by_class(labels, rng).values():
            shares = rng.dirichlet(concentration)
            # Rounding the running total, not each share, gives every sample to exactly one owner.
            cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            sizes = np.diff(cuts, prepend=0, append=len(members))
            owner[members] = np.repeat(np.arange(participants), sizes)
        if np.bincount(owner, minlength=participants).min() >= min_size:
            break
    order = np.argsort(owner, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(owner, minlength=participants))[:-1])
    _fill_up(parts, min_size, rng)
    return tuple(np.sort(part) for part in parts)


def _fill_up(parts: list[Indices], min_size: int, rng: np.random.Generator) -> None:
    """Move samples until every part has the least size.

    The mean size is at least `min_size`, so while a part is below it the largest is above it. Each
    move fills a receiver or empties a donor's surplus, so there are fewer than twice as many moves
    as parts.
    """
    sizes = np.array([len(part) for part in parts])
    for poor in np.flatnonzero(sizes < min_size).tolist():
        while sizes[poor] < min_size:
            rich = int(np.argmax(sizes))
            moved = min(min_size - sizes[poor], sizes[rich] - min_size)
            shuffled = rng.permutation(parts[rich])
            parts[poor] = np.concatenate([parts[poor], shuffled[:moved]])
            parts[rich] = shuffled[moved:]
            sizes[poor] += moved
            sizes[rich] -= moved


def natural(groups: Iterable[str]) -> dict[str, Indices]:
    """Return the positions of each group's samples by its name.

    Examples
    --------
    >>> natural(["South", "North", "South"])
    {'North': array([1]), 'South': array([0, 2])}
    """
    members: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    return {name: np.array(members[name], dtype=np.int64) for name in natural_order(members)}


def matched_test(
    train_label_counts: npt.ArrayLike, test_labels: npt.ArrayLike, rng: np.random.Generator
) -> tuple[Indices, ...]:
    """Draw test samples for every silo in the class mix of its training samples.

    Each silo's samples are drawn without replacement from all test samples, as many as its mix
    allows until the first class is used up. Two silos may share some, which does no harm, as no
    model is trained on them.

    Parameters
    ----------
    train_label_counts : array, silos × classes
        The number of training samples of each class in each silo.

    Examples
    --------
    A silo with three quarters of class 0 can use all four test samples of that class.

    >>> tests = matched_test([[30, 10]], [0, 0, 0, 0, 1, 1, 1, 1], np.random.default_rng(0))
    >>> np.bincount(np.array([0, 0, 0, 0, 1, 1, 1, 1])[tests[0]])
    array([4, 1])
    """
    counts = np.asarray(train_label_counts, dtype=np.int64)
    labels = _classes_of(test_labels)
    if counts.ndim != 2:
        raise DataError(f"expected counts as silos × classes, not the shape {counts.shape}")
    available = np.bincount(labels, minlength=counts.shape[1])[: counts.shape[1]]
    found = []
    for k, mix in enumerate(counts):
        held = np.flatnonzero(mix)
        if not len(held):
            raise DataError(f"silo {k}: it has no training samples, so no class mix to follow")
        total = int(mix.sum())
        # The size at which class c is used up is available_c / (mix_c / total).
        sizes = available[held] * total // mix[held]
        size = int(sizes.min())
        if size == 0:
            scarce = int(held[np.argmin(sizes)])
            raise DataError(
                f"silo {k}: {100 * mix[scarce] / total:.3g} % of its samples are of class "
                f"{scarce}, of which there are {available[scarce]} test samples: too few for a test"
            )
        # Rounded down, and those with the largest remainders up, so that the sum is the size.
        ideal = size * (mix / total)
        drawn = np.floor(ideal + 1e-9).astype(np.int64)
        drawn[np.argsort(drawn - ideal, kind="stable")[: size - int(drawn.sum())]] += 1
        members = _members_by_class(labels, rng)
        found.append(_joined([members[c][: drawn[c]] for c in held.tolist()]))
    return tuple(found)


def train_validation(
    indices: npt.ArrayLike,
    labels: npt.ArrayLike | None,
    fraction: float,
    rng: np.random.Generator,
) -> tuple[Indices, Indices]:
    """Divide a silo's samples into training and validation samples.

    Parameters
    ----------
    indices : array of int
        Positions of the silo's samples.
    labels : array of int, or None
        Each class is divided alike, and a single sample of a class is for training. None, for a
        regression, divides at random.
    fraction : float
        The fraction for validation; at least one of two or more samples.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 10)
    >>> train, validation = train_validation(np.arange(20), labels, 0.1, np.random.default_rng(0))
    >>> labels[validation]
    array([0, 1])
    """
    positions = np.asarray(indices, dtype=np.int64)
    if not 0 < fraction < 1:
        raise SettingsError(f"fraction is {shown(fraction)}; give a number between 0 and 1")
    if labels is None:
        own = np.zeros(len(positions), dtype=np.int64)
    else:
        own = _classes_of(labels)[positions]
    train, validation = stratified(own, (1 - fraction, fraction), rng)
    if not len(validation) and len(train) > 1:
        train = rng.permutation(train)
        train, validation = train[1:], train[:1]
    return np.sort(positions[train]), np.sort(positions[validation])


def stratified(
    labels: npt.ArrayLike,
    shares: Sequence[float],
    rng: np.random.Generator,
    *,
    everywhere: bool = False,
) -> tuple[Indices, ...]:
    """Divide samples into parts of given shares with the same class mix.

    The size of a part, and its number of samples of a class, are their shares rounded up or down.
    A class with few samples goes into the first part first.

    Parameters
    ----------
    everywhere : bool
        Whether a class with at least as many samples as there are parts must be in all of them,
        as AUC needs, even if that takes more than its share.

    Examples
    --------
    >>> labels = np.repeat([0, 1], [91, 9])
    >>> parts = stratified(labels, (0.7, 0.15, 0.15), np.random.default_rng(0))
    >>> [np.bincount(labels[part]).tolist() for part in parts]
    [[64, 6], [14, 1], [13, 2]]
    """
    labels = _classes_of(labels)
    wanted = np.asarray(shares, dtype=np.float64)
    if wanted.ndim != 1 or not (wanted >= 0).all() or not abs(wanted.sum() - 1) <= 1e-9:
        raise SettingsError(f"shares are {shown(shares)}; give parts of at least 0 that sum to 1")
    pieces: list[list[Indices]] = [[] for _ in wanted]
    owed = np.zeros(len(wanted))  # how far each part is behind its share so far
    for members in _members_by_class(labels, rng).values():
        ideal = wanted * len(members)
        sizes = np.floor(ideal + 1e-9).astype(np.int64)
        owed += ideal - sizes
        rest = len(members) - int(sizes.sum())
        priority = np.where((sizes == 0) & (np.arange(len(sizes)) == 0), np.inf, owed)
        behind = np.argsort(-priority, kind="stable")[:rest]
        sizes[behind] += 1
        owed[behind] -= 1
        if everywhere and len(members) >= len(wanted):
            for part in np.flatnonzero(sizes == 0).tolist():
                largest = int(np.argmax(sizes))
                sizes[largest], sizes[part] = sizes[largest] - 1, 1
                owed[largest], owed[part] = owed[largest] + 1, owed[part] - 1
        for piece, some in zip(pieces, np.split(members, np.cumsum(sizes)[:-1]), strict=True):
            piece.append(some)
    return tuple(_joined(piece) for piece in pieces)


def split_silos(
    labels: Mapping[str, Indices], streams: Iterable[np.random.Generator]
) -> tuple[SiloIndices, ...]:
    """Split silos whose samples follow one another into training, validation and test, by class.

    Parameters
    ----------
    labels : mapping of str to array of int
        The classes of each silo's samples.
    streams : iterable of numpy.random.Generator
        One for each silo, so that samples of one do not change the split of another.
    """
    silos, start = [], 0
    for (name, own), rng in zip(labels.items(), streams, strict=True):
        parts = stratified(own, SPLIT_SHARES, rng, everywhere=True)
        silos.append(SiloIndices(name, *(start + part for part in parts)))
        start += len(own)
    return tuple(silos)


def _whole_number(name: str, value: object, smallest: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = smallest - 1
    if isinstance(value, bool) or number < smallest:
        raise SettingsError(f"{name} is {shown(value)}; give a whole number of at least {smallest}")
    return number


def _classes_of(labels: npt.ArrayLike) -> Indices:
    array = np.asarray(labels)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "biu"):
        raise DataError(
            f"labels must be a list of whole numbers, not {array.dtype} of the shape {array.shape}"
        )
    return array.astype(np.int64)


def _members_by_class(labels: Indices, rng: np.random.Generator) -> dict[int, Indices]:
    """Return the samples of each class in random order."""
    shuffled = rng.permutation(len(labels))
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    classes, first = np.unique(labels[ordered], return_index=True)
    pieces = np.split(ordered, first[1:])
    return dict(zip(classes.tolist(), pieces, strict=False))  # no labels: one empty piece


def _joined(pieces: Sequence[Indices]) -> Indices:
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *pieces]))

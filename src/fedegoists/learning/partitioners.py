"""Dividing samples among silos: pure functions of labels and a random generator.

Every function returns positions in the labels it was given, in ascending order.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fedegoists.errors import SettingsError
from fedegoists.graphs.participants import natural_order, shown
from fedegoists.learning.data import DataError, Indices
from fedegoists.learning.options import positive_number, whole_number

__all__ = [
    "consecutive_blocks",
    "dirichlet",
    "matched_test",
    "natural",
    "pathological",
    "stratified",
    "train_validation",
]

REDRAWS = 50
"""How often `dirichlet` draws again before it moves samples to those who have too few."""

LARGEST_BETA = 1e12
"""Beyond it shares differ by less than a millionth, and numpy's draws start to overflow."""


def consecutive_blocks(classes: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Return classes 0, 1, … in blocks of `size`; the last one may be smaller.

    Examples
    --------
    >>> consecutive_blocks(10, 5)
    ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    """
    classes = whole_number("classes", classes, 1)
    size = whole_number("size", size, 1)
    return tuple(
        tuple(range(first, min(first + size, classes))) for first in range(0, classes, size)
    )


def pathological(
    labels: npt.ArrayLike,
    participants: int,
    blocks: Sequence[Sequence[int]],
    rng: np.random.Generator,
) -> tuple[Indices, ...]:
    """Give every participant one class from each block, and as many samples as everybody else.

    The classes of a block are dealt like cards: a class goes out a second time only when all
    others have gone out once, so as few participants as possible share one. From each block all
    get the same number of samples, the largest for which those who share a class get different
    ones. That keeps this split what it is for, a difference in labels and not in quantity. Nothing
    is left over if classes are equally frequent and `participants` is a multiple of the size of
    the blocks; otherwise what is left over belongs to nobody.

    Parameters
    ----------
    labels : array of int
        The class of each sample.
    participants : int
        Any number; more than a class has samples cannot share it.
    blocks : sequence of sequences of int
        Classes that do not stand in any block are not used.
    rng : numpy.random.Generator
        The same state gives the same split.

    Raises
    ------
    SettingsError
        If a class stands twice in the blocks.
    DataError
        If a class has no samples, or fewer than participants who would share it.

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
    participants = whole_number("participants", participants, 1)
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
    seen: set[int] = set()
    if not len(blocks) or not all(len(block) for block in blocks):
        raise SettingsError("blocks: give at least one block, and at least one class in each")
    for block in blocks:
        for c in block:
            if c in seen:
                raise SettingsError(f"blocks: class {c} stands twice; blocks must not overlap")
            seen.add(c)
            if c not in members:
                raise DataError(f"blocks: class {c} has no samples; leave it out")


def dirichlet(
    labels: npt.ArrayLike,
    participants: int,
    beta: float,
    rng: np.random.Generator,
    min_size: int = 10,
) -> tuple[Indices, ...]:
    """Divide each class by shares drawn from a Dirichlet distribution; nobody gets too little.

    For every class c a vector q_c over the participants is drawn from Dir(β), and participant i
    gets the share q_{c,i} of its samples, rounded so that every sample goes to somebody. If
    somebody ends up with fewer than `min_size`, everything is drawn again. For small β and many
    participants that never succeeds, so after 50 draws the last one is repaired: whoever has too
    few is filled up with random samples of whoever has most. They come from one donor as far as
    possible, since a mixture from many would make the labels of the poorest the most even.

    Parameters
    ----------
    labels : array of int
        The class of each sample.
    participants : int
        Any number up to ``len(labels) / min_size``.
    beta : float
        The smaller, the more the participants' labels differ.
    rng : numpy.random.Generator
        The same state gives the same split.
    min_size : int
        The least number of samples for each participant.

    Raises
    ------
    SettingsError
        If there are not enough samples to give everybody `min_size`.

    Examples
    --------
    >>> labels = np.repeat(np.arange(10), 500)
    >>> parts = dirichlet(labels, 100, 0.01, np.random.default_rng(0))
    >>> sum(map(len, parts)), min(map(len, parts)) >= 10
    (5000, True)
    """
    labels = _classes_of(labels)
    participants = whole_number("participants", participants, 1)
    beta = positive_number("beta", beta)
    min_size = whole_number("min_size", min_size, 1)
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
            # Rounding the running total, not each share, gives every sample to exactly one.
            cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            sizes = np.diff(cuts, prepend=0, append=len(members))
            owner[members] = np.repeat(np.arange(participants), sizes)
        if np.bincount(owner, minlength=participants).min() >= min_size:
            break
    parts = _split_by(owner, participants)
    _fill_up(parts, min_size, rng)
    return tuple(np.sort(part) for part in parts)


def _fill_up(parts: list[Indices], min_size: int, rng: np.random.Generator) -> None:
    """Move samples until every part has the least size.

    As long as a part is below it, the largest is above it, because the mean is not below it. Each
    turn ends the need of a receiver or the surplus of a donor, so there are fewer than twice as
    many turns as parts.
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
    """Return the samples of each group under its name, as the data came.

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
    train_label_counts: npt.ArrayLike,
    test_labels: npt.ArrayLike,
    rng: np.random.Generator,
    size: int | None = None,
) -> tuple[Indices, ...]:
    """Draw test samples for every silo with the class mix of what it trains on.

    A silo's samples are drawn without replacement, each silo's from all test samples: two silos may
    share some, which does no harm, as nobody learns from them.

    Parameters
    ----------
    train_label_counts : array, silos × classes
        How many training samples of each class each silo has.
    test_labels : array of int
        The classes of the common test samples.
    rng : numpy.random.Generator
        The same state gives the same samples.
    size : int, optional
        How many for each silo; by default as many as its mix allows until the first class is used
        up.

    Raises
    ------
    DataError
        If there are too few test samples of a class.

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
    classes = counts.shape[1]
    available = np.bincount(labels, minlength=classes)[:classes]
    found = []
    for k, mix in enumerate(counts):
        held = np.flatnonzero(mix)
        if not len(held):
            raise DataError(f"silo {k}: it has no training samples, so no class mix to follow")
        total = int(mix.sum())
        # The size at which class c is used up is available_c / (mix_c / total).
        largest_by_class = available[held] * total // mix[held]
        largest = int(largest_by_class.min())
        wanted = largest if size is None else whole_number("size", size, 1)
        if not 0 < wanted <= largest:
            scarce = int(held[np.argmin(largest_by_class)])
            raise DataError(
                f"silo {k}: {100 * mix[scarce] / total:.3g} % of its samples are of class "
                f"{scarce}, of which there are {available[scarce]} test samples: enough for a test "
                f"of {largest}" + (f", not of {wanted}; lower the size" if wanted else "")
            )
        drawn = _rounded(wanted * (mix / total), wanted)
        members = _members_by_class(labels, rng)
        found.append(_joined([members[c][: drawn[c]] for c in held.tolist()]))
    return tuple(found)


def _rounded(ideal: npt.NDArray[np.float64], total: int) -> Indices:
    """Round numbers to whole ones with a given sum, those with the largest remainders up."""
    down = np.floor(ideal + 1e-9).astype(np.int64)
    up = np.argsort(down - ideal, kind="stable")[: total - int(down.sum())]
    down[up] += 1
    return down


def train_validation(
    indices: npt.ArrayLike,
    labels: npt.ArrayLike | None,
    fraction: float,
    rng: np.random.Generator,
) -> tuple[Indices, Indices]:
    """Divide a silo's samples into those to train and those to validate on.

    Parameters
    ----------
    indices : array of int
        Positions of the silo's samples.
    labels : array of int, or None
        The classes of all samples, not only of the silo's; each class is divided alike, and one
        with a single sample is trained on. None, for a regression, divides without regard to them.
    fraction : float
        The share to validate on, such as 0.1. Two or more samples give at least one to validate.
    rng : numpy.random.Generator
        The same state gives the same division.

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
    """Divide samples into parts of given shares so that each part has the same class mix.

    The size of a part, and its number of samples of a class, are their shares rounded up or down.
    A class with few samples goes into the first part first.

    Parameters
    ----------
    labels : array of int
        The class of each sample.
    shares : sequence of float
        Of each part; their sum is 1.
    rng : numpy.random.Generator
        The same state gives the same parts.
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
    owed = np.zeros(len(wanted))  # by which each part is behind its share so far
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


def _split_by(owner: Indices, parts: int) -> list[Indices]:
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owner, minlength=parts))[:-1])


def _joined(pieces: Sequence[Indices]) -> Indices:
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *pieces]))

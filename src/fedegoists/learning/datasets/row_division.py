"""The division of one organisation's samples by their keys, with remarks on what it found."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedegoists.learning.data import Array, DataError, Indices, TaskName
from fedegoists.learning.key_splits import FEWEST_KEYS, KeySplit, Shares, split_by_key
from fedegoists.learning.partitioners import SPLIT_SHARES

FEWEST_ROWS = 10
"""Different samples, or groups of samples, that every organisation needs."""
DOMINANT = 0.9
"""The fraction of samples of one class from which on accuracy says little."""
UNEVEN = 0.15
"""How far the fraction of samples for training may be from its share without a warning."""
FEWEST_TESTED = 10
"""Samples of the rarest class in the test split below which a metric says little."""


@dataclass(frozen=True)
class SampleWords:
    """How samples are called in errors and remarks.

    Attributes
    ----------
    noun : str
        The samples, such as ``rows``.
    copies : str
        What copies have, after their number.
    apart : str
        What to do if samples that look like copies are none.
    """

    noun: str
    copies: str
    apart: str


@dataclass(frozen=True, eq=False)
class KeyedSamples:
    """One organisation's samples with what they are divided by.

    Attributes
    ----------
    where, target_at : str
        The organisation and its file, and there the column of the target, as errors begin.
    words : SampleWords
        How samples are called.
    content : sequence of bytes
        A hash of each sample's content; copies have the same.
    groups : sequence of bytes, optional
        The key of each sample's group, such as a patient.
    group : str
        How different groups are called, such as ``different values of 'patient'``.
    targets : array
        Classes, numbers, or times with the sign of the event.
    class_names : tuple of str, optional
        The names of the classes, where there are any.
    event_at : str
        Where a survival task says whether the event happened, as errors begin.
    shares : three floats
        The fractions for training, validation and test.
    """

    where: str
    target_at: str
    words: SampleWords
    content: Sequence[bytes]
    groups: Sequence[bytes] | None
    group: str
    targets: Array
    task: TaskName
    class_names: tuple[str, ...] | None
    event_at: str = ""
    shares: Shares = SPLIT_SHARES

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys by which samples are divided."""
        return self.content if self.groups is None else self.groups

    @property
    def classes(self) -> Indices:
        """The class of each sample; of a survival task, whether the event happened."""
        if self.task == "survival":
            return (self.targets > 0).astype(np.int64)
        if self.class_names is None:
            return np.zeros(len(self.targets), dtype=np.int64)
        return self.targets


def divided(samples: KeyedSamples, seed: int, notes: list[str], warnings: list[str]) -> KeySplit:
    """Return the division of an organisation's samples; add remarks on it.

    Raises
    ------
    DataError
        If there are too few to divide, or they tell nothing.
    """
    noun, keys = samples.words.noun, samples.keys
    what = f"different {noun}" if samples.groups is None else samples.group
    count = len(set(keys))
    alike = count < len(keys) and samples.groups is None
    if count < FEWEST_ROWS:
        way = f"; {samples.words.apart}" if alike else ", so leave this organisation out"
        raise DataError(
            f"{samples.where}: {count} {what} are too few to divide into training, validation and "
            f"test; at least {FEWEST_ROWS} are needed{way}"
        )
    classes = samples.classes
    if samples.task == "survival":
        if len({key for key, one in zip(keys, classes, strict=True) if one}) < FEWEST_KEYS:
            raise DataError(
                f"{samples.event_at}: fewer than {FEWEST_KEYS} events are too few to divide into "
                "training, validation and test; leave this organisation out"
            )
    elif samples.class_names is not None:
        _check_classes(samples, notes)
        warnings += _on_imbalance(samples)
    division = split_by_key(keys, classes, seed, samples.shares)
    _remark_copies(samples, division, warnings)
    if division.moved:
        notes.append(
            f"{division.moved:,} of {count:,} {what} were moved to another split, so that each "
            "class is in every split"
        )
    trained = float(np.mean(division.split == 0))
    if alike and abs(trained - samples.shares[0]) > UNEVEN:
        warnings.append(
            f"{100 * trained:.0f} % of the {noun} are for training instead of "
            f"{100 * samples.shares[0]:.0f} %: "
            f"{samples.words.apart}"
        )
    test = division.split == 2  # where a patient counts once for a class
    once = set(zip(division.key_of[test].tolist(), classes[test].tolist(), strict=True))
    tested = np.bincount([one for _, one in once])
    rarest = int(np.argmin(np.where(tested > 0, tested, np.iinfo(np.int64).max)))
    if tested[rarest] < FEWEST_TESTED:
        names = samples.class_names
        of = "" if names is None else f" of the class {names[rarest]!r}"
        some = _counted(int(tested[rarest]), noun if count == len(keys) else what)
        notes.append(f"{some}{of} for test; its results are uncertain")
    return division


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun.removesuffix('s') if count == 1 else noun}"


def _on_imbalance(samples: KeyedSamples) -> list[str]:
    """Return a warning where accuracy would not notice that a rare class is never found."""
    counts, names = np.bincount(samples.classes), samples.class_names
    share, most = counts.max() / len(samples.classes), int(counts.argmax())
    if samples.task != "classification" or names is None or share < DOMINANT:
        return []
    two = 'set task = "binary", which is judged by AUC, and ' if len(names) == 2 else ""
    return [
        f"{100 * share:.0f} % of the {samples.words.noun} are of the class {names[most]!r}: who "
        f"always predicts it has an accuracy of {share:.2f}; {two}consider class_weights = "
        '"balanced" under [training]'
    ]


def _remark_copies(samples: KeyedSamples, division: KeySplit, warnings: list[str]) -> None:
    copies = len(samples.content) - len(set(samples.content))
    if not copies:
        return
    together = ""
    if samples.groups is None:
        together = "; copies are in the same split"
    else:
        # Copies under the names of two patients would be learned and tested on.
        placed = set(zip(samples.content, division.split.tolist(), strict=True))
        apart = len(placed) - len({content for content, _ in placed})
        if apart:
            together = f"; {apart:,} of them are in another split, under another group"
    some = f"{_counted(copies, samples.words.noun)} {'has' if copies == 1 else 'have'}"
    warnings.append(f"{some} {samples.words.copies}{together}")
    if samples.class_names is not None and samples.groups is None:
        labelled = set(zip(samples.content, samples.classes.tolist(), strict=True))
        torn = len(labelled) - len({content for content, _ in labelled})
        if torn:
            warnings.append(f"{torn:,} of the copies are of another class than the first one")


def _check_classes(samples: KeyedSamples, notes: list[str]) -> None:
    assert samples.class_names is not None
    noun, names = samples.words.noun, samples.class_names
    # A patient counts once for a class.
    once = np.array([c for _, c in set(zip(samples.keys, samples.classes.tolist(), strict=True))])
    counts = np.bincount(once, minlength=len(names))
    if np.count_nonzero(counts) < 2:
        raise DataError(
            f"{samples.target_at}: all {len(samples.targets)} {noun} are of the class "
            f"{names[int(counts.argmax())]!r}; with one class there is nothing to learn, so leave "
            "this organisation out"
        )
    if samples.task == "binary" and counts.min() < FEWEST_KEYS:
        raise DataError(
            f"{samples.target_at}: {counts.min()} different {noun} of the class "
            f"{names[int(counts.argmin())]!r} are too few to divide into training, validation and "
            f"test; at least {FEWEST_KEYS} are needed"
        )
    lacking = [repr(name) for name, own in zip(names, counts, strict=True) if not own]
    if lacking:
        notes.append(f"it has no {noun} of the class {', '.join(lacking)}")

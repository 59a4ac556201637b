"""Samples, and which of them belong to which silo."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedegoists.errors import FedEgoistsError, SettingsError, shown
from fedegoists.graphs.participants import index_of, validated_name, validated_names
from fedegoists.learning.preparation import Preparation, TargetScale

if TYPE_CHECKING:
    from fedegoists.learning.datasets.image_schema import ImageSchema
    from fedegoists.learning.datasets.schema import Schema

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
TaskName = Literal["classification", "binary", "regression", "survival"]
Split = Literal["train", "validation", "test"]


class DataError(FedEgoistsError, ValueError):
    """Data that is missing, damaged, or not what its description says."""


class SplitSizes(NamedTuple):
    """The number of a silo's samples in each split."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True, eq=False)
class Samples:
    """All samples of a data set, held once for all silos.

    Parameters
    ----------
    inputs : tuple of arrays
        The inputs of a model; the first axis of each array counts the samples. NaN stands for a
        value that was not measured.
    targets : array
        The class of each sample as ``int64``, or the number to predict as ``float32``.
    weights : array, optional
        How much each sample counts in the loss, above 0; only ratios within a split of a silo
        matter.
    groups : array of int, optional
        The group of each sample, such as its patient: samples of a group, or copies of a sample,
        are no independent evidence. None if every sample is a group by itself.

    Raises
    ------
    DataError
        If the arrays do not have the same length.

    Examples
    --------
    >>> samples = Samples((np.zeros((3, 20), np.float32),), np.array([0, 1, 1]))
    >>> len(samples)
    3
    """

    inputs: tuple[Array, ...]
    targets: Array
    weights: Array | None = None
    groups: Array | None = None

    def __post_init__(self) -> None:
        inputs = tuple(np.asarray(array) for array in self.inputs)
        targets = np.asarray(self.targets)
        if not inputs:
            raise DataError("samples: no inputs; give at least one array")
        if targets.ndim != 1:
            raise DataError(f"samples: targets must be one-dimensional, not {targets.shape}")
        if targets.dtype.kind not in "biuf":
            raise DataError(f"samples: targets hold {targets.dtype}, not numbers")
        for k, array in enumerate(inputs):
            if array.dtype.kind not in "biuf":
                raise DataError(f"samples: input {k} holds {array.dtype}, not numbers")
            if array.ndim < 2 or len(array) != len(targets):
                raise DataError(
                    f"samples: input {k} has the shape {array.shape}; expected "
                    f"({len(targets)}, …), one entry for each of the {len(targets)} targets"
                )
        kind = np.float32 if targets.dtype.kind == "f" else np.int64
        object.__setattr__(self, "inputs", tuple(_read_only(array) for array in inputs))
        object.__setattr__(self, "targets", _read_only(targets.astype(kind, copy=False)))
        if self.weights is not None:
            object.__setattr__(self, "weights", _read_only(_checked(self.weights, len(targets))))
        if self.groups is not None:
            groups = np.asarray(self.groups)
            if groups.shape != targets.shape or groups.dtype.kind not in "iu":
                raise DataError(
                    f"samples: groups of the shape {groups.shape} hold {groups.dtype}; expected a "
                    f"whole number for each of the {len(targets)} targets"
                )
            object.__setattr__(self, "groups", _read_only(groups.astype(np.int64, copy=False)))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays."""
        optional = (one for one in (self.weights, self.groups) if one is not None)
        return (*self.inputs, self.targets, *optional)

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, positions: Indices) -> "Samples":
        """Return a copy of some of the samples."""
        return Samples(
            tuple(array[positions] for array in self.inputs),
            self.targets[positions],
            None if self.weights is None else self.weights[positions],
            None if self.groups is None else self.groups[positions],
        )


@dataclass(frozen=True, eq=False)
class SiloIndices:
    """Positions of one silo's samples for training, validation and test in `Samples`.

    Raises
    ------
    DataError
        If a sample is there twice, in one split or in two.
    """

    name: str
    train: Indices
    validation: Indices
    test: Indices

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", validated_name(self.name, "silos"))
        for split in get_args(Split):
            positions = np.asarray(getattr(self, split))
            if positions.ndim != 1 or (len(positions) and positions.dtype.kind not in "iu"):
                raise DataError(
                    f"silo {self.name!r}: the {split} samples must be a list of positions, not "
                    f"{positions.dtype} of the shape {positions.shape}"
                )
            object.__setattr__(self, split, _read_only(positions.astype(np.int64)))
        ordered = np.sort(self.all)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            splits = [split for split in get_args(Split) if repeated[0] in self.of(split)]
            raise DataError(
                f"silo {self.name!r}: sample {repeated[0]} is there twice, in "
                f"{' and '.join(splits)}; a model must be tested on samples that are new to it"
            )

    @property
    def parts(self) -> tuple[Indices, Indices, Indices]:
        """The positions of the samples for training, validation and test."""
        return self.train, self.validation, self.test

    @property
    def all(self) -> Indices:
        """The positions of all samples of this silo."""
        return np.concatenate(self.parts)

    def of(self, split: Split) -> Indices:
        """Return the positions of one split."""
        if split not in get_args(Split):
            splits = ", ".join(get_args(Split))
            raise SettingsError(f"unknown split {shown(split)}; splits are {splits}")
        positions: Indices = getattr(self, split)
        return positions

    @property
    def sizes(self) -> SplitSizes:
        """The number of samples in each split."""
        return SplitSizes(len(self.train), len(self.validation), len(self.test))


@dataclass(frozen=True, eq=False)
class SiloedData:
    """A data set and its division among silos.

    Parameters
    ----------
    name : str
        The data set's name.
    task : {"classification", "binary", "regression", "survival"}
        Binary is a classification into 0 and 1 that is judged by AUC. The targets of survival are
        times: positive ones to an event, negative ones if it has not happened until then.
    samples : Samples
        All samples of all silos.
    silos : sequence of SiloIndices
        Silos may share test samples, but no samples for training or validation; and no silo may
        test on another's, because its model could have been trained on them.
    classes : int or None
        The number of classes; 2 for a binary task, None for a regression and for survival.
    description : str
        A sentence about the task.
    notes : sequence of str
        Decisions on the way from the files to the samples, such as values filled in.
    competition_pairs : sequence of pairs of names
        The competitors, where the publication of the data set names them.
    preparation : sequence of Preparation
        How raw values became the inputs, one for each array; empty if that is not known.
    class_names : sequence of str
        The names of the classes, if they have any.
    target_scales : sequence of TargetScale
        For a regression whose targets are scaled: the scale of each silo.
    warnings : sequence of str
        Remarks that the owner of the data should look at, such as rows that are copies.
    schema : Schema or ImageSchema, optional
        How columns of tables, or files of images, became the inputs, where they did.

    Raises
    ------
    DataError
        If a position or a class is out of range, a silo has no training samples, or silos share
        samples that they must not share.

    Examples
    --------
    >>> samples = Samples((np.zeros((6, 2)),), np.array([0, 1, 0, 1, 0, 1]))
    >>> north = SiloIndices("North", np.array([0, 1]), np.array([2]), np.array([5]))
    >>> south = SiloIndices("South", np.array([3]), np.array([4]), np.array([5]))
    >>> data = SiloedData("tiny", "binary", samples, (north, south), 2, "", ())
    >>> data.sizes()["North"]
    SplitSizes(train=2, validation=1, test=1)
    >>> data.restricted_to(["South"]).label_counts("train")
    array([[0, 1]])
    """

    name: str
    task: TaskName
    samples: Samples
    silos: tuple[SiloIndices, ...]
    classes: int | None
    description: str
    notes: tuple[str, ...]
    competition_pairs: tuple[tuple[str, str], ...] = ()
    preparation: tuple[Preparation, ...] = ()
    class_names: tuple[str, ...] = ()
    target_scales: tuple[TargetScale, ...] = ()
    warnings: tuple[str, ...] = ()
    schema: "Schema | ImageSchema | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "silos", tuple(self.silos))
        object.__setattr__(self, "notes", tuple(self.notes))
        pairs = tuple((first, second) for first, second in self.competition_pairs)
        object.__setattr__(self, "competition_pairs", pairs)
        if not self.silos:
            raise DataError(f"{self.name}: no silos; give at least one")
        names = validated_names((silo.name for silo in self.silos), f"silos of {self.name}")
        for k, pair in enumerate(pairs):
            for name in pair:
                index_of(name, names, f"{self.name}, competition pair {k}")
        self._check_classes()
        self._check_targets()
        self._check_ownership()
        self._check_preparation()

    def _check_classes(self) -> None:
        if self.task not in get_args(TaskName):
            tasks = ", ".join(get_args(TaskName))
            raise DataError(f"{self.name}: unknown task {shown(self.task)}; tasks are {tasks}")
        count = self.classes or 0
        if self.task in ("regression", "survival"):
            if self.classes is not None:
                raise DataError(f"{self.name}: a {self.task} task has no classes; give None")
        elif count < 2 or (self.task == "binary" and count != 2):
            expected = "2" if self.task == "binary" else "2 or more"
            raise DataError(
                f"{self.name}: a task of the kind {self.task} has {expected} classes, "
                f"not {self.classes}"
            )
        if self.class_names and len(self.class_names) != self.classes:
            raise DataError(
                f"{self.name}: {len(self.class_names)} names for {self.classes} classes"
            )

    def _check_targets(self) -> None:
        targets = self.samples.targets
        if self.classes is None:
            bad = np.flatnonzero(~np.isfinite(targets))
            if targets.dtype.kind != "f" or len(bad):
                where = f"; sample {bad[0]} has {targets[bad[0]]}" if len(bad) else ""
                raise DataError(
                    f"{self.name}: the targets of a {self.task} task are finite floating-point "
                    f"numbers, not {targets.dtype}{where}"
                )
            if self.task == "survival" and not targets.all():
                raise DataError(f"{self.name}: a time of 0 tells nothing; times are above 0")
            return
        if targets.dtype.kind != "i":
            raise DataError(f"{self.name}: classes are whole numbers, not {targets.dtype}")
        bad = np.flatnonzero((targets < 0) | (targets >= self.classes))
        if len(bad):
            raise DataError(
                f"{self.name}: sample {bad[0]} has the class {targets[bad[0]]}; classes are 0 to "
                f"{self.classes - 1}"
            )

    def _check_preparation(self) -> None:
        shapes = [(len(self.silos), array.shape[-1]) for array in self.samples.inputs]
        found = [(*one.center.shape[:1], len(one.columns)) for one in self.preparation]
        if found and found != shapes:
            raise DataError(
                f"{self.name}: preparations for (silos, columns) {found}, but the inputs have "
                f"{shapes}"
            )
        scales = len(self.target_scales)
        if scales and (scales != len(self.silos) or self.task != "regression"):
            raise DataError(
                f"{self.name}: {scales} scales of targets; a regression has one for each of its "
                f"{len(self.silos)} silos, other tasks have none"
            )

    def _check_ownership(self) -> None:
        """Check that positions exist, and that no silo tests on samples of anyone's training."""
        free = -1
        owner = np.full(len(self.samples), free, dtype=np.int64)
        for k, silo in enumerate(self.silos):
            where = f"{self.name}, silo {silo.name!r}"
            positions = silo.all
            bad = positions[(positions < 0) | (positions >= len(owner))]
            if len(bad):
                last = len(owner) - 1
                raise DataError(f"{where}: there is no sample {bad[0]}; positions are 0 to {last}")
            if not len(silo.train):
                raise DataError(f"{where}: no training samples; give it some, or leave it out")
            learned = np.concatenate([silo.train, silo.validation])
            taken = learned[owner[learned] != free]
            if len(taken):
                raise DataError(
                    f"{self.name}: sample {taken[0]} belongs to the silos "
                    f"{self.silos[owner[taken[0]]].name!r} and {silo.name!r}; only test samples "
                    "may be shared"
                )
            owner[learned] = k
        for silo in self.silos:
            seen = silo.test[owner[silo.test] != free]
            if len(seen):
                raise DataError(
                    f"{self.name}: silo {silo.name!r} tests on sample {seen[0]}, which silo "
                    f"{self.silos[owner[seen[0]]].name!r} trains or validates on"
                )

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of one sample in each input array."""
        return tuple(array.shape[1:] for array in self.samples.inputs)

    @property
    def participants(self) -> tuple[str, ...]:
        """The names of the silos."""
        return tuple(silo.name for silo in self.silos)

    def silo(self, reference: str | int) -> SiloIndices:
        """Return a silo by its name or position."""
        return self.silos[index_of(reference, self.participants, f"silos of {self.name}")]

    def restricted_to(self, names: Sequence[str]) -> "SiloedData":
        """Return the data of some silos only, in this order."""
        chosen = [index_of(name, self.participants, f"silos of {self.name}") for name in names]
        return replace(
            self,
            silos=tuple(self.silos[k] for k in chosen),
            competition_pairs=tuple(
                pair for pair in self.competition_pairs if set(pair) <= set(names)
            ),
            preparation=tuple(one.only(chosen) for one in self.preparation),
            target_scales=tuple(self.target_scales[k] for k in chosen if self.target_scales),
        )

    def part(self, reference: str | int, split: Split) -> Samples:
        """Return a copy of the samples of one silo and split."""
        return self.samples.take(self.silo(reference).of(split))

    def sizes(self) -> dict[str, SplitSizes]:
        """Return the number of samples of each silo in each split."""
        return {silo.name: silo.sizes for silo in self.silos}

    def group_sizes(self) -> dict[str, SplitSizes]:
        """Return the number of groups of each silo, such as patients, in each split."""
        groups = self.samples.groups
        if groups is None:
            return self.sizes()
        return {
            silo.name: SplitSizes(*(len(np.unique(groups[rows])) for rows in silo.parts))
            for silo in self.silos
        }

    def label_counts(self, split: Split = "train") -> Indices:
        """Return the number of samples of each class (column) in each silo (row) of a split.

        Raises
        ------
        DataError
            For a regression, which has no classes.
        """
        if self.classes is None:
            raise DataError(f"{self.name}: a regression has no classes to count")
        targets = self.samples.targets
        counts = [np.bincount(targets[s.of(split)], minlength=self.classes) for s in self.silos]
        return np.array(counts, dtype=np.int64)


def _checked(weights: object, count: int) -> Array:
    """Return the weights of samples as numbers.

    Raises
    ------
    DataError
        If they are not one number above 0 for each sample.
    """
    own = np.asarray(weights)
    if own.shape != (count,) or own.dtype.kind not in "biuf":
        raise DataError(
            f"samples: weights of the shape {own.shape} and type {own.dtype}; expected one number "
            f"for each of the {count} samples"
        )
    bad = np.flatnonzero(~(np.isfinite(own) & (own > 0)))
    if len(bad):
        raise DataError(
            f"samples: sample {bad[0]} has the weight {own[bad[0]]}; weights are finite and above "
            "0 (leave out a sample that shall not count)"
        )
    return own.astype(np.float32)


def _read_only(array: Array) -> Array:
    """Return a view that cannot be written to; the samples are not copied for it."""
    view = array.view()
    view.flags.writeable = False
    return view

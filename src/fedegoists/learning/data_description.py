"""Facts about a consortium's data without any sample of it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedegoists.learning.data import DataError, SiloedData, SplitSizes, TaskName
from fedegoists.learning.preparation import Preparation, TargetScale

if TYPE_CHECKING:
    from fedegoists.learning.datasets.image_schema import ImageSchema
    from fedegoists.learning.datasets.schema import Schema


@dataclass(frozen=True)
class DataDescription:
    """Description of a consortium's data: participants, sizes, task and input shapes.

    A run at the organisations knows no more of their data than this.

    Attributes
    ----------
    name : str
        The data set's name.
    task, classes
        As in `SiloedData`.
    sizes : mapping of str to SplitSizes
        Numbers of samples for training, validation and test, by participant.
    shapes : tuple of tuple of int
        Shape of one sample, for each input array.
    kinds : tuple of str
        Number type of each input array, such as ``f4``.
    digest : str
        Hash that changes whenever the data of any participant does.
    fingerprints : mapping of str to str
        Hash of each participant's own samples.
    description, class_names, preparation, competition_pairs, target_scales, schema
        As in `SiloedData`; empty where only the silos know them.

    Examples
    --------
    >>> sizes = {"North": SplitSizes(8, 1, 1), "South": SplitSizes(4, 1, 1)}
    >>> data = DataDescription("banks", "binary", 2, sizes, ((3,),), ("f4",), "")
    >>> data.participants
    ('North', 'South')
    """

    name: str
    task: TaskName
    classes: int | None
    sizes: Mapping[str, SplitSizes]
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    digest: str
    description: str = ""
    class_names: tuple[str, ...] = ()
    preparation: tuple[Preparation, ...] = ()
    competition_pairs: tuple[tuple[str, str], ...] = ()
    target_scales: tuple[TargetScale, ...] = ()
    schema: "Schema | ImageSchema | None" = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: SiloedData, digest: str) -> "DataDescription":
        """Describe data that is in this process."""
        return cls(
            name=data.name,
            task=data.task,
            classes=data.classes,
            sizes=data.sizes(),
            shapes=data.shapes,
            kinds=tuple(
                f"{array.dtype.kind}{array.dtype.itemsize}" for array in data.samples.inputs
            ),
            digest=digest,
            description=data.description,
            class_names=data.class_names,
            preparation=data.preparation,
            competition_pairs=data.competition_pairs,
            target_scales=data.target_scales,
            schema=data.schema,
            fingerprints=silo_fingerprints(data),
        )

    @property
    def participants(self) -> tuple[str, ...]:
        """The names of the participants."""
        return tuple(self.sizes)


def silo_fingerprints(data: SiloedData) -> dict[str, str]:
    """Return a hash of each silo's samples and of their division, whatever the others have."""
    found = {}
    for silo in data.silos:
        content = hashlib.sha256()
        for rows in (silo.train, silo.validation, silo.test):
            for array in data.samples.arrays:
                content.update(np.ascontiguousarray(array[rows]).tobytes())
            content.update(len(rows).to_bytes(8, "big"))
        found[silo.name] = content.hexdigest()
    return found


DataFacts = SiloedData | DataDescription
"""Enough to choose a network and its settings."""


def published_competition(data: DataFacts) -> tuple[tuple[str, str], ...]:
    """Return the competition graph that was published with a data set.

    Raises
    ------
    DataError
        If none was published. To assume no competition instead could show a competitor models
        that it must not see.
    """
    if not data.competition_pairs:
        raise DataError(
            f"{data.name} comes with no published competition; say who competes, as pairs or "
            "in a file"
        )
    return data.competition_pairs

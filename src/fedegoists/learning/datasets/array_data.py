"""Arrays and data frames of each organisation as one data set."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np

from fedegoists.errors import shown
from fedegoists.graphs.participants import validated_names
from fedegoists.learning.concordance import survival_targets
from fedegoists.learning.data import (
    Array,
    DataError,
    Indices,
    Samples,
    SiloedData,
    SiloIndices,
    TaskName,
)
from fedegoists.learning.datasets.data_tables import whole
from fedegoists.learning.datasets.feature_encoding import Problems
from fedegoists.learning.datasets.image_schema import COLOURS
from fedegoists.learning.datasets.row_division import KeyedSamples, SampleWords, divided
from fedegoists.learning.datasets.table_files import is_frame
from fedegoists.learning.key_splits import BLOCK, joined_groups, row_keys
from fedegoists.learning.preparation import Preparation
from fedegoists.learning.scaling import prepared, scaled_targets

PARTS = ("inputs", "targets", "groups", "weights")
"""What an organisation may give."""
SAMPLES = SampleWords(
    noun="samples",
    copies="the same inputs as another sample",
    apart="samples with the same inputs may be copies and are kept together: if they are not, give "
    "groups that tell them apart",
)


@dataclass(frozen=True, eq=False)
class _OrganisationArrays:
    """One organisation's arrays, checked.

    Attributes
    ----------
    columns : tuple of tuple of str, optional
        The names of the columns of each input that is a data frame; empty for others.
    """

    inputs: tuple[Array, ...]
    columns: tuple[tuple[str, ...], ...]
    targets: Array
    groups: list[bytes] | None
    weights: Array | None


def load_arrays(
    organisations: Mapping[str, Any],
    task: TaskName | None,
    *,
    classes: Sequence[object] | int | None = None,
    standardise: bool = True,
    seed: int = 0,
    name: str = "own",
) -> SiloedData:
    """Make a data set of arrays that are in memory, one set for each organisation.

    Each organisation's samples are divided 70/15/15 into training, validation and test by a hash of
    their group or, without groups, of their inputs, see `split_by_key`. For data frames with
    columns of several kinds, use `load_own` with a `Schema`.

    Parameters
    ----------
    organisations : mapping of str to mapping
        For each organisation a dictionary with ``inputs``, an array or data frame, or a tuple of
        several; ``targets``; and optionally ``groups``, such as patients, and ``weights``. The
        first axis of each counts the samples. Numbers with a fraction are features along the last
        axis, and NaN stands for a missing one; whole numbers, such as tokens, stay as they are;
        bytes (``uint8``) are images, height × width × colours.
    task : {"classification", "binary", "regression", "survival"}
        The targets of survival are a tuple of times and of events (1 if it happened).
    classes : sequence or int, optional
        The classes as they are in the targets; of two the second is positive. A number stands for
        0, 1 and so on.
    standardise : bool
        Whether features, and numbers to predict, are scaled by each organisation's own training
        samples.
    seed : int
        The same seed gives the same division.
    name : str
        The name of the data set.

    Raises
    ------
    DataError
        With the organisation and part of everything that does not fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def stays(count):
    ...     hourly, static = rng.normal(size=(count, 24, 3)), rng.normal(size=(count, 2))
    ...     return {"inputs": (hourly, static), "targets": rng.integers(0, 2, count)}
    >>> data = load_arrays({"North": stays(50), "South": stays(40)}, "binary", classes=2)
    >>> data.shapes, data.sizes()["South"]
    (((24, 3), (2,)), SplitSizes(train=27, validation=7, test=6))
    """
    names = _class_names(task, classes)
    assert task is not None  # refused
    if not isinstance(organisations, Mapping) or not organisations:
        raise DataError(
            f"organisations is {shown(organisations)}; expected a dictionary of names and arrays"
        )
    problems = Problems()
    found: dict[str, _OrganisationArrays] = {}
    for organisation in validated_names(organisations, "organisations"):
        given = organisations[organisation]
        own = problems.attempt(partial(_checked, organisation, given, task, names))
        if own is not None:
            found[organisation] = own
    problems.attempt(lambda: _check_alike(found))
    problems.tell()
    silos, groups, notes, warnings = _divided(found, task, names, seed)
    targets: Array = np.concatenate([own.targets for own in found.values()])
    scaled = task == "regression" and standardise
    targets, scales = scaled_targets(targets, silos) if scaled else (targets, ())
    inputs, preparation = _inputs(list(found.values()), silos, standardise=standardise)
    weights = [own.weights for own in found.values() if own.weights is not None]
    what = {"regression": "a number", "survival": "the time to an event"}
    return SiloedData(
        name,
        task,
        Samples(inputs, targets, np.concatenate(weights) if weights else None, groups),
        tuple(silos),
        None if names is None else len(names),
        f"Predict {what.get(task, 'a class')} from arrays; a silo is an organisation.",
        tuple(notes),
        preparation=preparation,
        class_names=names or (),
        target_scales=scales,
        warnings=tuple(warnings),
    )


def _class_names(task: object, classes: Sequence[object] | int | None) -> tuple[str, ...] | None:
    if task not in get_args(TaskName):
        raise DataError(f"task is {shown(task)}; tasks are {', '.join(get_args(TaskName))}")
    if task in ("regression", "survival"):
        if classes is not None:
            raise DataError(f"a {task} task has no classes; leave them out")
        return None
    if isinstance(classes, int) and not isinstance(classes, bool):
        classes = range(classes)
    if not isinstance(classes, Sequence) or isinstance(classes, str):
        raise DataError(
            f"classes is {shown(classes)}; a {task} task needs their number, or a list of all of "
            "them as they are in the targets"
        )
    names = tuple(whole(str(one)) for one in classes)
    if len(set(names)) < len(names):
        raise DataError(f"classes: one of {', '.join(names[:12])} is there twice; remove one")
    return names


def _checked(
    organisation: str, given: Any, task: TaskName, names: tuple[str, ...] | None
) -> _OrganisationArrays:
    """Return an organisation's arrays.

    Raises
    ------
    DataError
        If they are not as expected.
    """
    owner = f"organisation {organisation!r}"
    if not isinstance(given, Mapping) or not {"inputs", "targets"} <= set(given):
        keys = f" with the keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else ""
        raise DataError(
            f"{owner}: a {type(given).__name__}{keys}; expected a dictionary with inputs and "
            "targets, and optionally groups and weights"
        )
    unknown = [key for key in given if key not in PARTS]
    if unknown:
        raise DataError(f"{owner}: unknown key {shown(unknown[0])}; keys are {', '.join(PARTS)}")
    several = isinstance(given["inputs"], tuple | list)
    parts = tuple(given["inputs"]) if several else (given["inputs"],)
    if not parts:
        raise DataError(f"{owner}: no inputs; give at least one array")
    inputs = tuple(checked_input(f"{owner}, input {k}", part) for k, part in enumerate(parts))
    targets = _targets(owner, given["targets"], task, names)
    for k, array in enumerate(inputs):
        _check_length(f"{owner}, input {k}", len(array), len(targets))
    groups = given.get("groups")
    weights = given.get("weights")
    return _OrganisationArrays(
        inputs,
        tuple(tuple(map(str, part.columns)) if is_frame(part) else () for part in parts),
        targets,
        None if groups is None else _groups(owner, groups, len(targets)),
        None if weights is None else _weights(owner, weights, len(targets)),
    )


def checked_input(where: str, given: Any) -> Array:
    """Return an array whose first axis counts samples; refuse one that holds no numbers."""
    array = np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{where}: it holds {array.dtype}, not numbers; encode texts and categories, or use a "
            "data frame with a schema"
        )
    if array.ndim < 2:
        raise DataError(
            f"{where}: the shape {array.shape}; expected one row for each sample, as (samples, "
            "features)"
        )
    if array.dtype == np.uint8 and array.ndim != 4:
        raise DataError(
            f"{where}: bytes (uint8) of the shape {array.shape} are no images, which are (samples, "
            "height, width, colours); convert other whole numbers to int64"
        )
    if array.dtype.kind == "b":
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and np.isinf(array).any():
        place = tuple(int(axis[0]) for axis in np.nonzero(np.isinf(array)))
        raise DataError(f"{where}: infinity at {place}; use NaN for a missing number")
    return array


def _check_length(where: str, found: int, samples: int) -> None:
    if found != samples:
        raise DataError(f"{where}: {found} entries, but there are {samples} targets")


def _targets(owner: str, given: Any, task: TaskName, names: tuple[str, ...] | None) -> Array:
    if task == "survival":
        if not isinstance(given, tuple) or len(given) != 2:
            raise DataError(
                f"{owner}, targets: a {type(given).__name__}; survival needs a tuple of times and "
                "events"
            )
        times, events = (_numbers(f"{owner}, {what}", part) for what, part in
                         zip(("times", "events"), given, strict=True))  # fmt: skip
        _check_length(f"{owner}, events", len(events), len(times))
        bad = np.flatnonzero(times <= 0)
        if len(bad):
            raise DataError(f"{owner}, times: {times[bad[0]]:g} at {bad[0]}; times are above 0")
        bad = np.flatnonzero(~np.isin(events, (0, 1)))
        if len(bad):
            raise DataError(f"{owner}, events: {events[bad[0]]:g} at {bad[0]}; events are 0 or 1")
        return survival_targets(times, events)
    if names is None:
        return _numbers(f"{owner}, targets", given)
    values = np.asarray(given)
    if values.ndim != 1:
        raise DataError(f"{owner}, targets: the shape {values.shape}; expected one class each")
    codes = {name: code for code, name in enumerate(names)}
    found = [codes.get(whole(str(value))) for value in values.tolist()]
    if None in found:
        k = found.index(None)
        raise DataError(
            f"{owner}, targets: the class {shown(values[k].item())} at {k} is not declared; "
            f"classes are {', '.join(map(repr, names[:12]))}"
        )
    return np.array(found, dtype=np.int64)


def _numbers(where: str, given: Any) -> Array:
    values = np.asarray(given)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise DataError(
            f"{where}: {values.dtype} of the shape {values.shape}; expected one number for each "
            "sample"
        )
    values = values.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(f"{where}: {values[bad[0]]} at {bad[0]}; leave out such samples")
    return values


def _groups(owner: str, given: Any, samples: int) -> list[bytes]:
    groups = np.asarray(given)
    _check_length(f"{owner}, groups", len(groups), samples)
    texts = [whole(str(value)) for value in groups.tolist()]
    for k, text in enumerate(texts):
        if text in ("", "nan", "None", "NaT", "<NA>"):
            raise DataError(f"{owner}, groups: the one at {k} is missing; fill it in")
    return [text.encode() for text in texts]


def _weights(owner: str, given: Any, samples: int) -> Array:
    values = _numbers(f"{owner}, weights", given)
    _check_length(f"{owner}, weights", len(values), samples)
    bad = np.flatnonzero(values <= 0)
    if len(bad):
        raise DataError(f"{owner}, weights: {values[bad[0]]:g} at {bad[0]}; weights are above 0")
    return values


def _check_alike(found: Mapping[str, _OrganisationArrays]) -> None:
    """Refuse organisations whose arrays differ in kind."""
    if not found:
        return
    (first, reference), *others = found.items()
    for name, own in others:
        for what, here, there in (
            ("inputs", len(own.inputs), len(reference.inputs)),
            ("shapes of a sample", _shapes(own), _shapes(reference)),
            ("kinds of numbers", _kinds(own), _kinds(reference)),
            ("columns", own.columns, reference.columns),
            ("weights", own.weights is not None, reference.weights is not None),
        ):
            if here != there:
                raise DataError(
                    f"organisation {name!r} differs from {first!r} in {what}: {here} and {there}; "
                    "all need the same"
                )


def _shapes(own: _OrganisationArrays) -> list[tuple[int, ...]]:
    return [array.shape[1:] for array in own.inputs]


def _kinds(own: _OrganisationArrays) -> list[str]:
    """Return what is to become of each input."""
    return [
        "images" if array.dtype == np.uint8 else "features" if array.dtype.kind == "f" else "whole"
        for array in own.inputs
    ]


def _divided(
    found: Mapping[str, _OrganisationArrays],
    task: TaskName,
    names: tuple[str, ...] | None,
    seed: int,
) -> tuple[list[SiloIndices], Indices | None, list[str], list[str]]:
    """Return the silos and the groups of samples, with notes and warnings about them."""
    problems, silos, notes, warnings, start = Problems(), [], [], [], 0
    divisions = []
    for organisation, own in found.items():
        where = f"organisation {organisation!r}"
        keyed = KeyedSamples(
            where=where,
            target_at=where,
            words=SAMPLES,
            content=content_keys(own.inputs),
            groups=own.groups,
            group="different groups",
            targets=own.targets,
            task=task,
            class_names=names,
            event_at=where,
        )
        remarks: tuple[list[str], list[str]] = ([], [])
        division = problems.attempt(partial(divided, keyed, seed, *remarks))
        if division is not None:
            silos.append(division.silo(organisation, start))
            divisions.append(division)
        notes += [f"{organisation}: {text}" for text in remarks[0]]
        warnings += [f"{organisation}: {text}" for text in remarks[1]]
        start += len(own.targets)
    problems.tell()
    return silos, joined_groups(divisions), notes, warnings


def content_keys(inputs: Sequence[Array]) -> list[bytes]:
    """Return a key for each sample: a hash of its inputs.

    Examples
    --------
    >>> one, other, copy = content_keys([np.array([[1], [2], [1]]), np.array([[0.5]] * 3)])
    >>> one == copy, one == other
    (True, False)
    """
    if len(inputs) == 1 and inputs[0].ndim == 2 and inputs[0].dtype.kind == "f":
        return row_keys(inputs[0])
    hashes = [hashlib.blake2b(digest_size=16) for _ in inputs[0]]
    for array in inputs:
        flat = array.reshape(len(array), -1)
        for start in range(0, len(flat), BLOCK):
            block = flat[start : start + BLOCK]
            rows = row_keys(block) if block.dtype.kind == "f" else [row.tobytes() for row in block]
            for own, row in zip(hashes[start:], rows, strict=False):
                own.update(row)
    return [own.digest() for own in hashes]


def _inputs(
    found: Sequence[_OrganisationArrays], silos: Sequence[SiloIndices], *, standardise: bool
) -> tuple[tuple[Array, ...], tuple[Preparation, ...]]:
    """Return all inputs, scaled where they are features, and how they were prepared."""
    kinds, columns = _kinds(found[0]), found[0].columns
    # Networks for several inputs see for themselves which numbers are missing.
    filled = len(kinds) == 1 and found[0].inputs[0].ndim == 2
    arrays, ways = [], []
    for k, (kind, name) in enumerate(zip(kinds, _input_names(found[0]), strict=True)):
        parts = [own.inputs[k] for own in found]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        width = array.shape[-1]
        own = columns[k] or tuple(f"{name} {n + 1}" for n in range(width))
        if kind == "features":
            array, way = prepared(
                name, own, array, silos, scaled=None if standardise else (), filled=filled
            )
        elif kind == "images":
            half = np.full((len(silos), width), 127.5)
            shown_as = next((c for c in COLOURS.values() if len(c) == width), own)
            way = Preparation(name, shown_as, half, 1 / half, half + np.nan, kind="images")
        else:
            array = array.astype(np.int64)
            way = Preparation.unchanged(name, own, len(silos), "whole")
        arrays.append(array)
        ways.append(way)
    return tuple(arrays), tuple(ways)


def _input_names(own: _OrganisationArrays) -> list[str]:
    """Return names of the inputs, the usual ones for tables, images, and steps beside features."""
    kinds, dimensions = _kinds(own), [array.ndim for array in own.inputs]
    if kinds == ["features", "features"] and dimensions == [3, 2]:
        return ["hourly", "static"]
    if kinds == ["features"]:
        return ["features"]
    if kinds == ["images"]:
        return ["pixels"]
    return [f"input{k}" for k in range(len(kinds))]

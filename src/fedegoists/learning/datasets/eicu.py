"""eICU demo: outcomes of intensive-care stays, where a silo is a group of hospitals.

The open demo of the eICU Collaborative Research Database has 2,520 stays in 186 hospitals, ten to
forty in each: too few to train on in one hospital. Hospitals are grouped by their region and by
whether they are large (250 beds or more, or teaching), not by outcomes. The paper's ten hospitals
come from the full database, which is not open.

Hourly values and outcomes are those that YAIB-cohorts (van de Water et al., ICLR 2024) extracts.

Which values a prediction may use
---------------------------------
``mortality24``: does the patient die in the unit? YAIB keeps stays of at least 30 hours, so the 25
hourly values 0 to 24 lie at least five hours before any death.

``aki``: does acute kidney injury begin later in the stay? YAIB labels every hour, 1 from six hours
before the onset to six hours after it, and ends the record there. So the onset is six hours after
the first 1. The length of a record, and any value close to its end, would leak the outcome.
Therefore every stay is predicted from its first `hours` hours alone. Stays that are over by then,
and stays in which the injury has begun by then, are left out, as there is nothing to predict; all
in which it begins at that moment or later are positive.
"""

import csv
import gzip
import io
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedegoists.learning.data import Array, DataError, Indices, Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.dataset_registry import DATASETS, DatasetOptions
from fedegoists.learning.datasets.location import dataset_folder, missing_files
from fedegoists.learning.datasets.npz import opened_npz
from fedegoists.learning.partitioners import SPLIT_SHARES, natural, seeded, stratified
from fedegoists.learning.preparation import Preparation
from fedegoists.learning.scaling import prepared

ONSET_AFTER_FIRST_LABEL = 6
STATIC_FEATURES = ("age", "sex", "height", "weight")
NUMBERS = (0, 2, 3)
"""Positions of the static features that are scaled: all but sex."""
LARGE_BEDS = ("250 - 499", ">= 500")
OUTLIER = 10.0
"""Scaled hourly values are cut to ±10 deviations: few measurements make a poor scale."""

ARCHIVE = "eicu_demo_core.tar"
Groups = Literal["region-size", "region"]
TargetName = Literal["aki", "mortality24"]
SeriesForm = Literal["hourly", "summary"]
SUMMARIES = ("mean", "smallest", "largest", "last")


@dataclass(frozen=True)
class _Outcome:
    """An outcome to predict: its file, and from how many hours, by default and at most."""

    file: str
    question: str
    hours: int
    most_hours: int


TARGETS: dict[TargetName, _Outcome] = {
    "aki": _Outcome("yaib_aki.npz", "whether acute kidney injury begins later in the stay", 12, 48),
    "mortality24": _Outcome("yaib_mortality24.npz", "whether the patient dies in the unit", 25, 25),
}


class EicuOptions(DatasetOptions):
    """Options of the eICU demo."""

    target: TargetName = "aki"
    """Acute kidney injury, or death in the unit."""
    groups: Groups = "region-size"
    """Eight silos, or five with more outcomes each."""
    hours: int | None = Field(default=None, ge=1)
    """How many hours to predict from; 12 for aki, 25 for mortality24."""
    series: SeriesForm = "hourly"
    """Hourly: all values of all hours, for a network over time; summary: a table with the mean,
    smallest, largest and last value of each, for linear models and trees."""
    standardise: bool = True
    """Whether to scale values by each silo's training stays."""

    @model_validator(mode="after")
    def _hours_of_the_target(self) -> "EicuOptions":
        most = TARGETS[self.target].most_hours
        if self.hours is not None and self.hours > most:
            raise ValueError(f"hours is {self.hours}; for {self.target} give 1 to {most}")
        return self


def hospital_group(region: str, beds: str, teaching: bool, groups: Groups = "region-size") -> str:
    """Return the silo of a hospital.

    With ``region-size`` the three large regions are divided into large hospitals (250 beds or more,
    or teaching) and small ones (fewer beds, or an unknown number); the Northeast and the hospitals
    of unknown region have too few stays to be divided.

    Examples
    --------
    >>> hospital_group("South", "100 - 249", False), hospital_group("South", "100 - 249", True)
    ('South small', 'South large')
    >>> hospital_group("", ">= 500", False)
    'Unknown region'
    """
    name = region or "Unknown region"
    if groups == "region" or name in ("Northeast", "Unknown region"):
        return name
    return f"{name} {'large' if teaching or beds in LARGE_BEDS else 'small'}"


def load_eicu(
    options: EicuOptions, *, data_dir: str | os.PathLike[str] | None = None, seed: int = 0
) -> SiloedData:
    """Load stays with 48 hourly and 4 static features; NaN stands for what was not measured.

    As a table (``series="summary"``), what was not measured is the silo's mean, and one more column
    for each feature says so.

    Patients, not stays, are divided 70/15/15 by silo and outcome: all stays of a patient are for
    the same purpose, even if they are in different silos. Sex is 0 or 1 and never scaled.

    Raises
    ------
    DataError
        If files are missing or damaged, or a split of a silo has only one outcome, so that AUC
        is not defined.
    """
    target = TARGETS[options.target]
    window = target.hours if options.hours is None else options.hours
    needs = (
        f"{ARCHIVE} (the tables patient and hospital of {DATASETS['eicu-demo'].source} as .csv.gz) "
        f"and {target.file} (what https://github.com/rvandewater/YAIB-cohorts makes of them, as "
        "NumPy arrays)"
    )
    folder = dataset_folder("eicu_demo", data_dir, needs)
    for name in (target.file, ARCHIVE):
        if not (folder / name).is_file():
            raise missing_files("eicu-demo", folder, f"no file {name}", needs)
    stays = _read_stays(folder / target.file, options.target, window)
    hospitals = _table(folder / ARCHIVE, "hospital", "hospitalid")
    patients = _table(folder / ARCHIVE, "patient", "patientunitstayid")
    silo_of_stay = []
    for number in stays.hospital:
        hospital = hospitals.get(str(number), {})
        facts = [hospital.get(key, "") for key in ("region", "numbedscategory", "teachingstatus")]
        silo_of_stay.append(hospital_group(facts[0], facts[1], facts[2] == "t", options.groups))
    persons = [
        patients.get(str(stay), {}).get("uniquepid") or f"stay {stay}" for stay in stays.stay
    ]
    silos = _split_by_patient(silo_of_stay, persons, stays.outcome, seeded(seed))
    _check_outcomes(silos, stays.outcome, options.target)
    scale = options.standardise
    prepare = _prepared_series if options.series == "hourly" else _prepared_table
    inputs, preparation = prepare(stays, silos, scale=scale)
    return SiloedData(
        "eicu-demo",
        "binary",
        Samples(inputs, stays.outcome),
        tuple(silos),
        2,
        f"Predict {target.question} from its first {window} hours; a silo is a group of hospitals.",
        (
            *stays.notes,
            f"hourly features: {', '.join(stays.features)}"
            + ("" if options.series == "hourly" else f"; of each the {', '.join(SUMMARIES)}"),
            f"static features: {', '.join(STATIC_FEATURES)} (sex: 1 male, 0 female; ages above 89 "
            "are 90)",
            f"values are scaled by each silo's own training stays, hourly ones cut to ±{OUTLIER:g}"
            if scale
            else "values are as measured, in their own units",
            "all stays of a patient are for the same purpose",
        ),
        preparation=preparation,
        class_names=("no", "yes"),
    )


@dataclass(frozen=True)
class _Stays:
    stay: Indices
    hospital: Indices
    hourly: npt.NDArray[np.float32]
    static: npt.NDArray[np.float32]
    outcome: Indices
    features: tuple[str, ...]
    notes: tuple[str, ...]


def _prepared_series(
    stays: _Stays, silos: list[SiloIndices], *, scale: bool
) -> tuple[tuple[Array, ...], tuple[Preparation, ...]]:
    """Return the values of all hours and the static features, each with its preparation."""
    hourly, of_hours = prepared(
        "hourly",
        stays.features,
        stays.hourly,
        silos,
        scaled=None if scale else (),
        filled=False,
        clip=OUTLIER if scale else None,
    )
    static, of_static = prepared(
        "static",
        STATIC_FEATURES,
        stays.static,
        silos,
        scaled=NUMBERS if scale else (),
        filled=False,
    )
    return (hourly, static), (of_hours, of_static)


def _prepared_table(
    stays: _Stays, silos: list[SiloIndices], *, scale: bool
) -> tuple[tuple[Array, ...], tuple[Preparation, ...]]:
    """Return one table of summaries, static features, and columns that say what is missing."""
    measured = ~np.isnan(stays.hourly)
    count = measured.sum(axis=1)
    known = np.where(count > 0, 1.0, np.nan)
    hours = np.arange(stays.hourly.shape[1])[None, :, None]
    last = np.max(np.where(measured, hours, 0), axis=1, keepdims=True)
    summaries = [
        np.where(measured, stays.hourly, 0).sum(axis=1) / np.maximum(count, 1),
        np.where(measured, stays.hourly, np.inf).min(axis=1),
        np.where(measured, stays.hourly, -np.inf).max(axis=1),
        np.take_along_axis(stays.hourly, last, axis=1)[:, 0],
    ]
    # infinity · NaN is NaN, and so is what was never measured
    values = np.concatenate(
        [
            *(known * one for one in summaries),
            stays.static,
            count == 0,
            np.isnan(stays.static),
        ],
        axis=1,
    )
    features = (*stays.features, *STATIC_FEATURES)
    columns = (
        *(f"{name} {what}" for what in SUMMARIES for name in stays.features),
        *STATIC_FEATURES,
        *(f"{name} missing" for name in features),
    )
    numbers = len(SUMMARIES) * len(stays.features)
    scaled = (*range(numbers), *(numbers + k for k in NUMBERS))
    inputs, preparation = prepared(
        "features",
        columns,
        values,
        silos,
        scaled=scaled if scale else (),
        clip=OUTLIER if scale else None,
    )
    return (inputs,), (preparation,)


def _read_stays(path: Path, target: TargetName, window: int) -> _Stays:
    """Return the first hours of the stays in which there is something to predict."""
    arrays = _arrays(path)
    ids = arrays["sta_stay_id"].astype(np.int64)
    row = _positions(arrays["stay_id"], ids, path)
    hour = arrays["hour"].astype(np.int64)
    label_row = _positions(arrays["outc_stay_id"], ids, path)
    label = arrays["outc_label"] > 0
    outcome = np.zeros(len(ids), dtype=np.int64)
    outcome[label_row[label]] = 1
    notes: tuple[str, ...]
    if target == "aki":
        never = np.iinfo(np.int64).max
        first = np.full(len(ids), never)
        np.minimum.at(first, label_row[label], arrays["outc_hour"][label].astype(np.int64))
        onset = np.where(first < never, first + ONSET_AFTER_FIRST_LABEL, never)
        last = np.full(len(ids), -1)
        np.maximum.at(last, row, hour)
        over, begun = last < window, onset < window
        kept = ~(over | begun)
        notes = (
            f"positive: kidney injury begins at hour {window} or later; only hours 0 to "
            f"{window - 1} are seen",
            f"left out: {np.sum(over & ~begun)} stays over by then, {np.sum(begun)} with an "
            "injury by then",
        )
    else:
        kept = np.ones(len(ids), dtype=bool)
        notes = (f"positive: the patient dies in the unit; only hours 0 to {window - 1} are seen",)
    place = np.cumsum(kept) - 1  # position of a kept stay among the kept
    features = arrays["x"]
    hourly = np.full((int(kept.sum()), window, features.shape[1]), np.nan, dtype=np.float32)
    seen = kept[row] & (hour < window)
    hourly[place[row[seen]], hour[seen]] = features[seen]
    sex = arrays["sta_sex"]
    static = np.stack(
        [
            arrays["sta_age"],
            np.select([sex == "Male", sex == "Female"], [1.0, 0.0], np.nan),
            arrays["sta_height"],
            arrays["sta_weight"],
        ],
        axis=1,
    ).astype(np.float32)
    return _Stays(
        ids[kept],
        arrays["sta_hospitalid"].astype(np.int64)[kept],
        hourly,
        static[kept],
        outcome[kept],
        tuple(map(str, arrays["features"])),
        notes,
    )


def _arrays(path: Path) -> dict[str, Array]:
    names = ["stay_id", "hour", "x", "features", "outc_stay_id", "outc_label"]
    names += [f"sta_{name}" for name in ("stay_id", "hospitalid", *STATIC_FEATURES)]
    if path.name == TARGETS["aki"].file:
        names.append("outc_hour")
    with opened_npz(path, f"eicu-demo, {path}") as file:
        for name in names:
            if name not in file.files:
                raise DataError(
                    f"eicu-demo, {path}: it has no array {name!r}; it must hold {', '.join(names)}"
                )
        return {name: file[name] for name in names}


def _positions(stays: Array, ids: Indices, path: Path) -> Indices:
    """Return the position of each stay in `ids`."""
    order = np.argsort(ids, kind="stable")
    places = np.searchsorted(ids, stays, sorter=order)
    found = order[np.minimum(places, len(order) - 1)]
    unknown = np.flatnonzero(ids[found] != stays)
    if len(unknown):
        raise DataError(
            f"eicu-demo, {path}: row {unknown[0]} is of stay {stays[unknown[0]]}, which is not in "
            "sta_stay_id; the file is damaged"
        )
    return found


def _table(archive: Path, name: str, key: str) -> dict[str, dict[str, str]]:
    """Return a table of the archive by one of its columns; nothing is unpacked to disk."""
    source = DATASETS["eicu-demo"].source
    try:
        with tarfile.open(archive) as files:
            for member in files:
                file = files.extractfile(member)
                if file is not None and Path(member.name).name == f"{name}.csv.gz":
                    text = gzip.decompress(file.read()).decode()
                    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
                    return {row[key]: row for row in rows}
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, csv.Error, KeyError) as e:
        raise DataError(
            f"eicu-demo, {archive}: {name}.csv.gz cannot be read ({type(e).__name__}: {e}); "
            f"download it again from {source}"
        ) from None
    raise DataError(
        f"eicu-demo, {archive}: it has no {name}.csv.gz; take it from {source} and add it"
    )


def _split_by_patient(
    silo_of_stay: list[str], persons: list[str], outcome: Indices, rng: np.random.Generator
) -> list[SiloIndices]:
    """Divide patients by the silo of their first stay and by whether any stay was positive."""
    first: dict[str, int] = {}
    person_of_stay = np.array([first.setdefault(person, len(first)) for person in persons])
    first_stay = np.unique(person_of_stay, return_index=True)[1]
    positive = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(positive, person_of_stay, outcome)
    purpose = np.empty(len(first), dtype=np.int64)
    for group in natural([silo_of_stay[stay] for stay in first_stay]).values():
        for k, part in enumerate(stratified(positive[group], SPLIT_SHARES, rng, everywhere=True)):
            purpose[group[part]] = k
    silos = []
    for name, stays in natural(silo_of_stay).items():
        theirs = purpose[person_of_stay[stays]]
        silos.append(SiloIndices(name, *(stays[theirs == k] for k in range(len(SPLIT_SHARES)))))
    return silos


def _check_outcomes(silos: list[SiloIndices], outcome: Indices, target: str) -> None:
    for silo in silos:
        purposes = {"training": silo.train, "validation": silo.validation, "test": silo.test}
        for split, positions in purposes.items():
            found = np.unique(outcome[positions])
            if len(found) < 2:
                raise DataError(
                    f"eicu-demo, silo {silo.name!r}: its {len(positions)} stays for {split} are "
                    f"all {'positive' if 1 in found else 'negative'} for {target}, so AUC is not "
                    "defined; choose groups='region', fewer hours, or another seed"
                )

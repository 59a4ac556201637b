"""Fed-TCGA-BRCA: survival of breast cancer patients, where a silo is a region.

The division is that of FLamby (Ogier du Terrail et al., NeurIPS 2022): six regions of the sites
that collected the tissue, and a test set of each.
"""

import os
from typing import Literal

import numpy as np

from fedegoists.learning.concordance import survival_targets
from fedegoists.learning.data import DataError, Samples, SiloedData, SiloIndices
from fedegoists.learning.datasets.csv_tables import read_csv
from fedegoists.learning.datasets.data_tables import WantedColumns
from fedegoists.learning.datasets.dataset_registry import DATASETS, DatasetOptions
from fedegoists.learning.datasets.location import dataset_folder, missing_files
from fedegoists.learning.key_splits import split_by_key
from fedegoists.learning.scaling import prepared

REGIONS = ("USA Northeast", "USA South", "USA West", "USA Midwest", "Europe", "Canada")
"""The regions in FLamby's order, in which it numbers its centers."""
PATIENTS, DIVISION = "brca.csv", "train_test_split.csv"
KEY, TIME, EVENT, FOLD = "pid", "T", "E", "fold2"
AGE = "age_at_index"
NOWHERE = (-1, 0)
"""The region of patients that are not in the division."""
SHORTEST = 0.5
"""Days that stand for a time of 0, whose sign could not say whether an event happened."""


class TcgaBrcaOptions(DatasetOptions):
    """Options of the survival data."""

    test: Literal["published", "hash"] = "published"
    """The test patients of FLamby, or those that a hash of patient and seed chooses."""


def load_tcga_brca(
    options: TcgaBrcaOptions, *, data_dir: str | os.PathLike[str] | None = None, seed: int = 0
) -> SiloedData:
    """Load the patients of six regions, with the days to their death or to the last news.

    Validation patients are chosen by a hash of patient and seed. The age is scaled by each region's
    own training patients; all other features are 0 or 1. Patients of whom nothing is known after
    day 0 are kept with half a day, as in FLamby's division; they come before all comparisons.
    """
    needs = f"{PATIENTS} and {DIVISION} from {DATASETS['tcga-brca'].source}"
    folder = dataset_folder("tcga_brca", data_dir, needs)
    for name in (PATIENTS, DIVISION):
        if not (folder / name).is_file():
            raise missing_files("tcga-brca", folder, f"no file {name}", needs)
    patients = read_csv("tcga-brca", folder / PATIENTS, WantedColumns((), everything=True))
    if not {KEY, TIME, EVENT, AGE} <= set(patients.names):
        raise DataError(f"{patients.where}: it needs columns {KEY}, {TIME}, {EVENT} and {AGE}")
    features = tuple(name for name in patients.names if name not in (KEY, TIME, EVENT))
    division = read_csv("tcga-brca", folder / DIVISION, WantedColumns((KEY, FOLD)))
    folds = dict(zip(division.texts(KEY), division.texts(FOLD), strict=True))
    keys = patients.texts(KEY)
    center, test = np.array([_fold(folds[key], key) if key in folds else NOWHERE for key in keys]).T
    times, events = patients.numbers(TIME), patients.numbers(EVENT)
    silos = []
    for k, name in enumerate(REGIONS):
        published = options.test == "published"
        rows = np.flatnonzero((center == k) & (test == 0) if published else center == k)
        names = [keys[row].encode() for row in rows]
        split = split_by_key(names, events[rows].astype(np.int64), seed).split
        if published:  # what a hash would take for test is for training
            tested = np.flatnonzero((center == k) & (test == 1))
            silos.append(SiloIndices(name, rows[split != 1], rows[split == 1], tested))
        else:
            silos.append(SiloIndices(name, *(rows[split == part] for part in range(3))))
    values = np.stack([patients.numbers(name) for name in features], axis=1)
    targets = survival_targets(np.maximum(times, SHORTEST), events)
    inputs, preparation = prepared(
        "features", features, values, silos, scaled=[features.index(AGE)]
    )
    return SiloedData(
        "tcga-brca",
        "survival",
        Samples((inputs,), targets),
        tuple(silos),
        None,
        "Predict the survival of breast cancer patients; a silo is a region.",
        (
            f"{len(features)} columns: {', '.join(features)}",
            f"{int(np.sum(center < 0))} patients who are not in {DIVISION} are left out",
            f"{int(np.sum(events[center >= 0]))} of {int(np.sum(center >= 0))} patients died",
            "the age is scaled by each region's own training patients",
        ),
        preparation=(preparation,),
    )


def _fold(fold: str, key: str) -> tuple[int, int]:
    """Return the number of a region, and 1 for test; as in ``test_3``."""
    part, _, number = fold.partition("_")
    if part not in ("train", "test") or number not in map(str, range(len(REGIONS))):
        raise DataError(
            f"tcga-brca: patient {key!r} has the fold {fold!r} in {DIVISION}; expected train_0 to "
            f"test_{len(REGIONS) - 1}"
        )
    return int(number), int(part == "test")

"""Data sets that can be loaded by name, and an organisation's own files.

Real data is not part of this package. It is looked for in the folder given as `data_dir` or in the
environment variable ``FEDEGOISTS_DATA``, with the sub-folders ``cifar10``, ``cifar100``,
``eicu_demo``, ``heart`` and ``tcga_brca``.
"""

from fedegoists.learning.datasets.array_data import load_arrays
from fedegoists.learning.datasets.dataset_registry import (
    DATASETS,
    DatasetEntry,
    DatasetOptions,
    available,
    load,
)
from fedegoists.learning.datasets.image_schema import ImageSchema
from fedegoists.learning.datasets.own import load_own
from fedegoists.learning.datasets.schema import Schema

__all__ = [
    "DATASETS",
    "DatasetEntry",
    "DatasetOptions",
    "ImageSchema",
    "Schema",
    "available",
    "load",
    "load_arrays",
    "load_own",
]

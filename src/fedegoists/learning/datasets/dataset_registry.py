"""Registry of the data sets that can be loaded by name. Needs no PyTorch.

To add a data set, write a module with its options, a subclass of `DatasetOptions`, and its loader,
and add one `DatasetEntry` here.
"""

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import ConfigDict

from fedegoists.errors import SettingsError, shown
from fedegoists.learning.data import SiloedData, TaskName
from fedegoists.learning.datasets.loader_files import load_by_function
from fedegoists.learning.datasets.own import load_own
from fedegoists.learning.model_registry import OWN
from fedegoists.learning.typed_settings import TypedSettings, validated


class DatasetOptions(TypedSettings):
    """Base of the options of a data set; each has a default and a description."""

    model_config = ConfigDict(strict=True)


Options = TypeVar("Options", bound=DatasetOptions, contravariant=True)


class Loader(Protocol[Options]):
    """A function that reads or generates a data set and divides it among silos."""

    def __call__(
        self, options: Options, *, data_dir: str | os.PathLike[str] | None, seed: int
    ) -> SiloedData:
        """Return the data; the same options and seed give the same samples to the same silos."""


@dataclass(frozen=True)
class DatasetEntry:
    """A data set with the facts that a user can know before loading it.

    Attributes
    ----------
    summary : str
        One line about it.
    licence, source : str
        Its licence, and where its files come from.
    module, options, loader : str
        The module, imported when it is needed, and the names in it of the subclass of
        `DatasetOptions` and of the `Loader`.
    """

    name: str
    summary: str
    task: TaskName
    licence: str
    source: str
    module: str
    options: str
    loader: str

    def options_type(self) -> type[DatasetOptions]:
        """Return the type of the options."""
        kind: type[DatasetOptions] = getattr(import_module(self.module), self.options)
        return kind

    def load(
        self, options: DatasetOptions, *, data_dir: str | os.PathLike[str] | None, seed: int
    ) -> SiloedData:
        """Return the data, see `Loader`."""
        loader: Loader[DatasetOptions] = getattr(import_module(self.module), self.loader)
        return loader(options, data_dir=data_dir, seed=seed)


_HERE = "fedegoists.learning.datasets"
_CIFAR_LICENCE = "none stated by its authors"
_CIFAR_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"

DATASETS: dict[str, DatasetEntry] = {
    entry.name: entry
    for entry in (
        DatasetEntry(
            "synthetic-weak",
            "eight regressions alike, four with 2,000 samples and four with 100",
            "regression",
            "none needed: generated",
            "FedEgoists, Appendix B",
            f"{_HERE}.synthetic",
            "SyntheticOptions",
            "load_weak",
        ),
        DatasetEntry(
            "synthetic-strong",
            "eight regressions, four with the opposite sign of the others",
            "regression",
            "none needed: generated",
            "FedEgoists, Appendix B",
            f"{_HERE}.synthetic",
            "SyntheticOptions",
            "load_strong",
        ),
        DatasetEntry(
            "cifar10",
            "60,000 colour images of 32 × 32 points in 10 classes",
            "classification",
            _CIFAR_LICENCE,
            _CIFAR_SOURCE,
            f"{_HERE}.cifar",
            "CifarOptions",
            "load_cifar10",
        ),
        DatasetEntry(
            "cifar100",
            "60,000 colour images of 32 × 32 points in 100 classes",
            "classification",
            _CIFAR_LICENCE,
            _CIFAR_SOURCE,
            f"{_HERE}.cifar",
            "CifarOptions",
            "load_cifar100",
        ),
        DatasetEntry(
            "eicu-demo",
            "outcomes of intensive-care stays from hourly measurements, in groups of US hospitals",
            "binary",
            "ODbL 1.0",
            "https://physionet.org/content/eicu-crd-demo/2.0.1/",
            f"{_HERE}.eicu",
            "EicuOptions",
            "load_eicu",
        ),
        DatasetEntry(
            "heart",
            "heart disease or not, from 13 features of patients of four hospitals",
            "binary",
            "CC BY 4.0",
            "https://archive.ics.uci.edu/dataset/45/heart+disease",
            f"{_HERE}.heart",
            "HeartOptions",
            "load_heart",
        ),
        DatasetEntry(
            "tcga-brca",
            "survival of breast cancer patients from 39 clinical features, in six regions",
            "survival",
            "open data of the GDC; no attempt may be made to identify participants",
            "https://github.com/owkin/FLamby (Fed-TCGA-BRCA)",
            f"{_HERE}.tcga_brca",
            "TcgaBrcaOptions",
            "load_tcga_brca",
        ),
    )
}


def available() -> tuple[DatasetEntry, ...]:
    """Return the data sets that can be loaded by name."""
    return tuple(DATASETS.values())


def load(
    name: str, *, data_dir: str | os.PathLike[str] | None = None, seed: int = 0, **options: object
) -> SiloedData:
    """Load a data set, divided among silos.

    Parameters
    ----------
    name : str
        A name of `DATASETS`; a folder with one file per organisation, see `load_own`; or a
        function in a file such as ``data.py:load``, see `load_by_function`.
    data_dir : path, optional
        The folder with the files of real data sets; by default that of ``FEDEGOISTS_DATA``.
    seed : int
        The same seed gives the same samples to the same silos.
    **options
        Options of this data set.

    Raises
    ------
    SettingsError
        If the name, an option or its value is not known.
    DataError
        If files are missing or damaged.

    Examples
    --------
    >>> data = load("synthetic-strong", seed=1)
    >>> data.participants
    ('v1', 'v2', 'v3', 'v4', 'v5', 'v6', 'v7', 'v8')
    """
    entry = DATASETS.get(name) if isinstance(name, str) else None
    if entry is None:
        if isinstance(name, str) and OWN.fullmatch(name):
            folder = None if data_dir is None else os.fspath(data_dir)
            return load_by_function(name, folder=folder, seed=seed, **options)  # type: ignore[arg-type]
        if not isinstance(name, str) or not Path(name).is_dir():
            raise SettingsError(
                f"unknown data set {shown(name)}; {_hint(name, DATASETS, 'data sets')}; "
                "there is no folder of this name either; a function in a file is named like "
                "data.py:load"
            )
        if options:
            raise SettingsError("a folder of files has no options; its schema.toml describes them")
        return load_own(name, seed=seed)
    kind = entry.options_type()
    for option in options:
        if option not in kind.model_fields:
            known = sorted(kind.model_fields)
            raise SettingsError(
                f"{name} has no option {option!r}; {_hint(option, known, 'its options')}"
            )
    return entry.load(validated(kind, options, name), data_dir=data_dir, seed=seed)


def _hint(given: object, known: Iterable[str], what: str) -> str:
    close = difflib.get_close_matches(str(given)[:100], list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"{what} are {', '.join(known)}"

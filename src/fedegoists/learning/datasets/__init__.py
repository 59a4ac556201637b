"""The data sets that can be loaded by name, and a user's own.

Real data is not part of this package. It is looked for in a folder given as `data_dir` or in the
environment variable ``FEDEGOISTS_DATA``, with the sub-folders ``cifar10``, ``cifar100``,
``eicu_demo`` and ``heart``.
"""

import difflib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fedegoists.errors import SettingsError
from fedegoists.graphs.participants import shown
from fedegoists.learning.data import SiloedData
from fedegoists.learning.datasets import cifar, eicu, heart, synthetic
from fedegoists.learning.datasets.cifar_files import CIFAR10, CIFAR100
from fedegoists.learning.datasets.info import DatasetInfo, Option
from fedegoists.learning.datasets.own import load_own
from fedegoists.learning.datasets.schema import Schema

__all__ = ["DatasetInfo", "Option", "Schema", "available", "load", "load_own"]

_LOADERS: dict[str, tuple[DatasetInfo, Callable[..., SiloedData]]] = {
    info.name: (info, loader)
    for info, loader in (
        (synthetic.WEAK.info, partial(synthetic.load_synthetic, synthetic.WEAK)),
        (synthetic.STRONG.info, partial(synthetic.load_synthetic, synthetic.STRONG)),
        (cifar.CIFAR10_INFO, partial(cifar.load_cifar, CIFAR10)),
        (cifar.CIFAR100_INFO, partial(cifar.load_cifar, CIFAR100)),
        (eicu.INFO, eicu.load_eicu),
        (heart.INFO, heart.load_heart),
    )
}
_GENERATED = (synthetic.WEAK.info.name, synthetic.STRONG.info.name)


def available() -> tuple[DatasetInfo, ...]:
    """Return what can be loaded by name.

    Examples
    --------
    >>> [info.name for info in available()][:3]
    ['synthetic-weak', 'synthetic-strong', 'cifar10']
    """
    return tuple(info for info, _ in _LOADERS.values())


def load(
    name: str, *, data_dir: str | os.PathLike[str] | None = None, seed: int = 0, **options: Any
) -> SiloedData:
    """Load a data set, divided among silos.

    Parameters
    ----------
    name : str
        One of those that `available` lists, or a folder with one's own silos, see `load_own`.
    data_dir : path, optional
        The folder with the files of real data sets; by default that of ``FEDEGOISTS_DATA``.
    seed : int
        The same seed gives the same samples to the same silos.
    **options
        Those that `available` lists for this data set.

    Raises
    ------
    SettingsError
        If the name, an option or its value is not known.
    DataError
        If the files are not there, with what to put where, or are not what they should be.

    Examples
    --------
    >>> data = load("synthetic-strong", seed=1)
    >>> data.participants
    ('v1', 'v2', 'v3', 'v4', 'v5', 'v6', 'v7', 'v8')
    """
    if isinstance(name, str) and name not in _LOADERS and Path(name).is_dir():
        if options:
            raise SettingsError("one's own silos have no options; the schema.toml describes them")
        return load_own(name, seed=seed)
    if not isinstance(name, str) or name not in _LOADERS:
        raise SettingsError(
            f"unknown data set {shown(name)}; {_hint(name, _LOADERS, 'data sets')}; "
            "there is no folder of this name either"
        )
    info, loader = _LOADERS[name]
    known = {option.name for option in info.options}
    for option in options:
        if option not in known:
            raise SettingsError(
                f"{name} has no option {option!r}; {_hint(option, sorted(known), 'its options')}"
            )
    if name in _GENERATED:
        return loader(seed=seed, **options)
    return loader(data_dir=data_dir, seed=seed, **options)


def _hint(given: object, known: Any, what: str) -> str:
    close = difflib.get_close_matches(str(given)[:100], known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"{what} are {', '.join(known)}"

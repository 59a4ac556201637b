"""Reading coalition values from files."""

import os
from collections.abc import Mapping
from pathlib import Path

from fedegoists.errors import GraphError, SettingsError, shown
from fedegoists.files import json_value, read_text
from fedegoists.graphs.coalition_values import CoalitionValues
from fedegoists.graphs.curve_values import CurveValues
from fedegoists.graphs.uncertain_benefits import UncertainBenefits

KINDS: dict[str, type[CurveValues] | type[UncertainBenefits]] = {
    CurveValues.KIND: CurveValues,
    UncertainBenefits.KIND: UncertainBenefits,
}
"""The classes of coalition values that files and certificates may hold, by ``kind``."""


def values_from_dict(data: object, where: str = "coalition values") -> CoalitionValues:
    """Make coalition values of any known kind from the mapping that their `to_dict` returns."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise GraphError(
            f"{where}: expected an object with 'kind', one of {', '.join(map(repr, KINDS))}; "
            f"got {shown(kind if isinstance(data, Mapping) else data)}"
        )
    return KINDS[kind].from_dict(data, where)


def read_values(
    path: str | os.PathLike[str], rates: str | os.PathLike[str] | None = None, *, unit: str = ""
) -> CoalitionValues:
    """Read coalition values: a JSON file, or a CSV file of curves and one of exchange rates.

    Parameters
    ----------
    path : path
        A file that ends in ``.json`` is read as JSON, any other as CSV with the columns
        ``participant,samples,slope,slope_error,power``.
    rates : path, optional
        With a CSV file of curves: the CSV file ``source,target,rate,rate_error``.
    unit : str
        With CSV files, which do not say it: the metric, such as ``AUC``.
    """
    if Path(path).suffix.casefold() == ".json":
        if rates is not None:
            raise SettingsError(f"{path} has exchange rates of its own; leave out {rates}")
        return values_from_dict(json_value(read_text(path), str(path)), str(path))
    if rates is None:
        raise SettingsError(
            f"{path}: learning curves in a CSV file need a second CSV file of exchange rates "
            "(source,target,rate,rate_error); or give one JSON file with both"
        )
    return CurveValues.from_csv(path, rates, unit=unit)

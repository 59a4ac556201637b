"""Runs side by side: their results, and the settings in which they differ."""

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedegoists.errors import FileError
from fedegoists.files import read_text
from fedegoists.training.summary import EVERYBODY, Summary

UNREADABLE = "not readable"


@dataclass(frozen=True)
class ListedRun:
    """The content of a run's folder.

    Attributes
    ----------
    state, stage : str
        ``finished``, ``running`` or ``interrupted`` with the stage, or ``not readable``; a run
        that was killed still counts as running.
    coalitions : tuple of tuples of str
        All coalitions, also those of one participant; empty before they are formed.
    metric : str
        The name of the test metric.
    means : mapping of str to (float, float, int)
        By method: mean of the metric over all participants, standard deviation, repetitions.
    settings : mapping of str to value
        By their whole names, such as ``training.seeds``.
    """

    name: str
    state: str
    stage: str = ""
    seconds: float = 0.0
    coalitions: tuple[tuple[str, ...], ...] = ()
    welfare: float | None = None
    metric: str = ""
    means: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def together(self) -> tuple[tuple[str, ...], ...]:
        """The coalitions of two or more."""
        return tuple(group for group in self.coalitions if len(group) > 1)

    def as_dict(self) -> dict[str, object]:
        """Return all values for JSON."""
        own = asdict(self)
        means, settings = own.pop("means"), own.pop("settings")
        methods = {
            method: dict(zip(("mean", "std", "seeds"), values, strict=True))
            for method, values in means.items()
        }
        return {**own, "methods": methods, "settings": settings}


def read_runs(folder: str | os.PathLike[str]) -> list[ListedRun]:
    """Return all runs in a folder, by name.

    Raises
    ------
    FileError
        If there is no such folder, or no run in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder; `fedegoists run` makes one")
    found = [read_run(marker.parent) for marker in sorted(folder.glob("[!.]*/run.json"))]
    if not found:
        raise FileError(f"{folder}: no runs in it; `fedegoists run` makes one")
    return found


def read_run(folder: Path) -> ListedRun:
    """Return the content of a run's folder; a damaged one is not readable."""
    summary, certificate = folder / "summary.csv", folder / "certificate.json"
    try:
        marker = json.loads(read_text(folder / "run.json"))
        decision = json.loads(read_text(certificate)) if certificate.exists() else {}
        values = {claim["claim"]: claim.get("value") for claim in decision.get("claims", ())}
        results = Summary.read(summary) if summary.exists() else Summary(())
        return ListedRun(
            folder.name,
            str(marker["state"]),
            str(marker["stage"]),
            float(sum(marker["seconds"].values())),
            tuple(tuple(map(str, group)) for group in decision.get("coalitions", ())),
            values.get("welfare"),
            results.metric,
            {
                row.method: (row.mean, row.std, row.n)
                for row in results.about(EVERYBODY).rows
                if row.metric == results.metric
            },
            _flat(tomllib.loads(read_text(folder / "config.toml"))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, FileError):
        return ListedRun(folder.name, UNREADABLE)


def differing_settings(runs: Sequence[ListedRun]) -> dict[str, list[object]]:
    """Return the settings that differ between runs, with the value in every run.

    Their names are left out.

    Examples
    --------
    >>> first = ListedRun("a", "finished", settings={"training.seeds": 3, "name": "x"})
    >>> second = ListedRun("b", "finished", settings={"training.seeds": 5, "name": "y"})
    >>> differing_settings([first, second])
    {'training.seeds': [3, 5]}
    """
    keys = dict.fromkeys(key for run in runs for key in run.settings if key != "name")
    values = {key: [run.settings.get(key) for run in runs] for key in keys}
    return {key: own for key, own in values.items() if any(one != own[0] for one in own)}


def _flat(table: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Return a table's settings by their whole names."""
    found: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[before + key] = value
    return found

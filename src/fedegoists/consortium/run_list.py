"""Runs beside one another: what each came to, and in which settings they differ."""

import csv
import io
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedegoists.errors import FileError
from fedegoists.files import read_text
from fedegoists.training.summary import COSTS, EVERYBODY

__all__ = ["RunRecord", "differing_settings", "read_run", "read_runs"]

UNREADABLE = "not readable"


@dataclass(frozen=True)
class RunRecord:
    """What a run's folder says.

    Attributes
    ----------
    state, stage : str
        ``finished``, ``running`` or ``interrupted`` with the stage, or ``not readable``; one that
        was killed is still said to be running.
    coalitions : tuple of tuples of str
        Who trains with whom, those alone included; none as long as nothing is decided.
    metric : str
        The name of the test metric.
    means : mapping of str to (float, float, int)
        By method, of the metric over all participants: mean, standard deviation, number of seeds.
    settings : mapping of str to value
        By their names in the file, such as ``training.seeds``.
    """

    name: str
    state: str
    stage: str = ""
    seconds: float = 0.0
    coalitions: tuple[tuple[str, ...], ...] = ()
    welfare: float | None = None
    metric: str = ""
    means: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def together(self) -> tuple[tuple[str, ...], ...]:
        """The coalitions of two or more."""
        return tuple(group for group in self.coalitions if len(group) > 1)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "name": self.name,
            "state": self.state,
            "stage": self.stage,
            "seconds": self.seconds,
            "coalitions": self.coalitions,
            "welfare": self.welfare,
            "metric": self.metric,
            "methods": {
                method: {"mean": mean, "std": std, "seeds": seeds}
                for method, (mean, std, seeds) in self.means.items()
            },
            "settings": dict(self.settings),
        }


def read_runs(folder: str | os.PathLike[str]) -> list[RunRecord]:
    """Return all runs in a folder, by name.

    Raises
    ------
    FileError
        If there is no such folder, or no run in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder; `fedegoists run` makes one")
    found = [read_run(marker.parent) for marker in sorted(folder.glob("*/run.json"))]
    if not found:
        raise FileError(f"{folder}: no runs in it; `fedegoists run` makes one")
    return found


def read_run(folder: Path) -> RunRecord:
    """Return what a run's folder says; one that is damaged is said to be."""
    try:
        marker = json.loads(read_text(folder / "run.json"))
        state, stage = str(marker["state"]), str(marker["stage"])
        seconds = float(sum(marker["seconds"].values()))
        settings = _flat(tomllib.loads(read_text(folder / "config.toml")))
        decision = _optional_json(folder / "certificate.json")
        coalitions = tuple(tuple(map(str, group)) for group in decision.get("coalitions", ()))
        values = {claim["claim"]: claim.get("value") for claim in decision.get("claims", ())}
        metric, means = _means(folder / "summary.csv")
    except (ValueError, KeyError, TypeError, AttributeError, FileError):
        return RunRecord(folder.name, UNREADABLE)
    return RunRecord(
        folder.name,
        state,
        stage,
        seconds,
        coalitions,
        values.get("welfare"),
        metric,
        means,
        settings,
    )


def differing_settings(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Return settings that are not the same in all runs, each with the value in every run.

    Their names, by which runs are told apart, are left out.

    Examples
    --------
    >>> first = RunRecord("a", "finished", settings={"training.seeds": 3, "name": "x"})
    >>> second = RunRecord("b", "finished", settings={"training.seeds": 5, "name": "y"})
    >>> differing_settings([first, second])
    {'training.seeds': [3, 5]}
    """
    keys = dict.fromkeys(key for run in runs for key in run.settings if key != "name")
    values = {key: [run.settings.get(key) for run in runs] for key in keys}
    return {key: own for key, own in values.items() if any(one != own[0] for one in own)}


def _optional_json(path: Path) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(read_text(path)) if path.exists() else {}
    return content


def _means(path: Path) -> tuple[str, dict[str, tuple[float, float, int]]]:
    if not path.exists():
        return "", {}
    rows = [
        row
        for row in csv.DictReader(io.StringIO(read_text(path), newline=""))
        if row["participant"] == EVERYBODY and row["metric"] not in COSTS
    ]
    return (rows[0]["metric"] if rows else ""), {
        row["method"]: (float(row["mean"]), float(row["std"]), int(row["n"])) for row in rows
    }


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return a table's settings by their whole names."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[before + key] = value
    return found

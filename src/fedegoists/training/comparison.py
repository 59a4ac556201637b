"""Methods side by side on one data set: several trials at once, metrics and a summary as CSV."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedegoists.errors import FileError, SettingsError
from fedegoists.files import read_text, write_all, write_bytes
from fedegoists.methods import Outcome
from fedegoists.methods.method_run import Observer
from fedegoists.training.decisions import decide
from fedegoists.training.repetitions import (
    Repetitions,
    Wanted,
    data_digest,
    load_trainable,
    method_of,
    train_methods,
)
from fedegoists.training.summary import failures_csv, metrics_csv, summary_csv
from fedegoists.version import __version__

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What to compare. The same comparison gives the same numbers on the same machine.

    Attributes
    ----------
    data : str
        A data set's name, see `fedegoists.learning.datasets.available`, or a folder with one's own
        silos, see `fedegoists.learning.datasets.load_own`.
    methods : tuple of str
        Names of `fedegoists.methods.METHODS`; ``+ft`` behind one adds fine-tuning on own data.
    coalitions : str
        ``all`` together, ``none`` (everybody alone), a CSV file with ``participant,coalition``, or
        a way to form them: ``published``, ``stable`` or ``best`` for everybody, or ``cliques``, as
        the paper compares: FedEgoists (and EgoMix) in published coalitions, all others in cliques
        of independent participants.
    benefit : str
        Who benefits whom, for forming coalitions and for FedEgoists: a CSV file with
        ``source,target,weight``; ``learn``, or ``learn:`` and an estimator, to learn it in every
        trial; or nothing, and everybody benefits everybody.
    competition : str
        A CSV file with ``a,b``; the probability with which any two compete, drawn anew for each
        seed; ``published`` for what the data set comes with; or nothing for none.
    seeds : tuple of int
        One trial each: its own partition, competition, initial model and batches.
    steps : int, optional
        Training steps in all; a default that suits the data if left out.
    options : mapping
        For the data set, such as ``partition`` and ``beta``.
    personal : tuple of str, optional
        Parameters whose names start so never leave a silo, such as ``output.``; see `Wanted`.
    method_settings : mapping of str to mapping
        Settings of methods other than their defaults, such as ``{"fedprox": {"mu": 0.1}}``.
    """

    data: str
    methods: tuple[str, ...] = ("local", "fedavg", "fedavg+ft")
    coalitions: str = "all"
    benefit: str = ""
    competition: str = ""
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    personal: tuple[str, ...] | None = None
    method_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    device: str = "cpu"

    def __post_init__(self) -> None:
        _ = self.wanted
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SettingsError("name at least one seed, and none twice")

    @property
    def wanted(self) -> Wanted:
        """The methods, with their settings."""
        return Wanted(self.methods, self.method_settings, self.personal)


def compare(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    observers: tuple[Observer, ...] = (),
) -> dict[str, Outcome]:
    """Run a comparison and write ``metrics.csv`` and ``summary.csv`` to a folder.

    Parameters
    ----------
    resume : bool
        Continue what an earlier call with the same comparison left in the folder.

    Returns
    -------
    dict of Outcome by method
    """
    out = Path(out)
    data = {
        seed: load_trainable(comparison.data, data_dir=data_dir, seed=seed, **comparison.options)
        for seed in comparison.seeds
    }
    trials = Repetitions.simulated(data, steps=comparison.steps, device=comparison.device)
    decisions = decide(comparison, data, trials.federation)
    for name in comparison.wanted.bases:
        method_of(name, comparison.wanted, trials, decisions)  # reports what is wrong with it
    # Only now: a command that failed so far leaves nothing behind.
    digest = hashlib.sha256(f"{decisions}{data_digest(*data.values())}".encode()).hexdigest()
    _claim(out, comparison, digest, resume)
    outcomes = train_methods(
        comparison.wanted,
        trials,
        decisions,
        lambda name: out / "checkpoint" / f"{name}.safetensors",
        observers,
    )
    wanted = {name: outcomes[name] for name in comparison.methods}
    write_all(
        [
            (out / "coalitions.csv", decisions.coalitions_csv()),
            *([(out / "benefit.csv", decisions.benefit_csv())] if comparison.benefit else []),
            (out / "failures.csv", failures_csv(wanted)),
            (out / "metrics.csv", metrics_csv(wanted, outcomes)),
            (out / "summary.csv", summary_csv(wanted, outcomes, trials.federation)),
        ],
        private=True,  # who trains with whom, or with nobody, lets one guess who competes
    )
    return wanted


def _claim(out: Path, comparison: Comparison, digest: str, resume: bool) -> None:
    """Take a folder for a comparison; one that holds another comparison is left alone.

    What is compared includes the samples and the coalitions themselves, not only the names of the
    files they came from: these may have changed since.
    """
    about = {**asdict(comparison), "sha256": digest, "fedegoists": __version__}
    fingerprint = json.dumps(about, sort_keys=True, indent=1) + "\n"
    path = out / "comparison.json"
    if path.exists():
        if not resume:
            raise FileError(f"{out} holds results already; use --resume or another folder")
        if read_text(path) != fingerprint:
            raise FileError(
                f"{path}: written for other settings, data or coalitions than these; resume with "
                "what it names, or use another folder"
            )
    write_bytes(path, fingerprint.encode())

"""Methods side by side on one data set, over several repetitions."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedegoists.errors import FileError, SettingsError
from fedegoists.files import read_text, write_all, write_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_registry import AUTO, model_named
from fedegoists.methods import Outcome
from fedegoists.methods.method_run import Observer
from fedegoists.training.decisions import decide
from fedegoists.training.gains import Gain, gains_csv, gains_over_local
from fedegoists.training.repetitions import (
    Repetitions,
    Wanted,
    data_digest,
    load_trainable,
    method_of,
    train_methods,
)
from fedegoists.training.summary import Summary, failures_csv, metrics_csv
from fedegoists.version import __version__

Value = str | int | float | bool


@dataclass(frozen=True)
class Comparison:
    """A comparison of methods. It gives the same numbers again on the same machine.

    Attributes
    ----------
    data : str
        A data set's name, see `fedegoists.learning.datasets.available`, or a folder with one file
        per organisation, see `fedegoists.learning.datasets.load_own`.
    methods : tuple of str
        Names of `fedegoists.methods.METHODS`; ``+ft`` behind one adds fine-tuning on own data.
    coalitions : str
        ``all`` for one coalition, ``none`` (every participant alone), a CSV file with
        ``participant,coalition``, or a formation method: ``published``, ``stable`` or ``best`` for
        all methods, or ``cliques``, as the paper compares: FedEgoists (and EgoMix) in published
        coalitions, all others in cliques of independent participants.
    benefit : str
        The benefit graph, for forming coalitions and for FedEgoists: a CSV file with
        ``source,target,weight``; ``learn``, or ``learn:`` and an estimator, to learn it in every
        repetition; or empty, and every participant benefits every other.
    competition : str
        A CSV file with ``a,b``; the probability that any two compete, drawn for each seed;
        ``published`` for the data set's own competitors; or empty for none.
    seeds : tuple of int
        One repetition each, with its own partition, competition, initial model and batches.
    steps : int, optional
        Training steps in all; the default suits the data.
    options : mapping
        Options of the data set, such as ``partition`` and ``beta``.
    personal : tuple of str, optional
        Prefixes of parameters that never leave a silo, such as ``output.``; see `Wanted`.
    method_settings : mapping of str to mapping
        Settings of methods other than their defaults, such as ``{"fedprox": {"mu": 0.1}}``.
    model : str
        A name of `fedegoists.learning.model_registry.MODELS`, or ``auto`` for the one that suits
        the data.
    """

    data: str
    methods: tuple[str, ...] = ("local", "fedavg", "fedavg+ft")
    coalitions: str = "all"
    benefit: str = ""
    competition: str = ""
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    options: Mapping[str, Value] = field(default_factory=dict)
    personal: tuple[str, ...] | None = None
    method_settings: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    device: str = "cpu"
    model: str = AUTO

    def __post_init__(self) -> None:
        _ = self.wanted
        if self.model != AUTO:
            model_named(self.model)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SettingsError("name at least one seed, and none twice")

    @property
    def wanted(self) -> Wanted:
        """The methods, with their settings."""
        return Wanted(self.methods, self.method_settings, self.personal)


@dataclass(frozen=True)
class ComparisonResult:
    """The outcome of each method, their summary, and the gains over training alone."""

    outcomes: dict[str, Outcome]
    summary: Summary
    gains: list[Gain] = field(default_factory=list)

    def to_frame(self) -> Any:
        """Return the summary as a pandas data frame."""
        return self.summary.to_frame()

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()


def compare(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    observers: tuple[Observer, ...] = (),
) -> ComparisonResult:
    """Run a comparison and write ``metrics.csv`` and ``summary.csv`` to a folder.

    Parameters
    ----------
    resume : bool
        Continue an earlier call with the same comparison and folder.
    """
    out = Path(out)
    data = {
        seed: load_trainable(comparison.data, data_dir=data_dir, seed=seed, **comparison.options)
        for seed in comparison.seeds
    }
    repetitions = Repetitions.simulated(
        data,
        steps=comparison.steps,
        device=comparison.device,
        model=comparison.model,
        methods=comparison.methods,
    )
    decisions = decide(comparison, data, repetitions.federation)
    for name in comparison.wanted.bases:
        method_of(name, comparison.wanted, repetitions, decisions)  # reports wrong settings
    # Only now: a command that failed before this line leaves nothing behind.
    digest = hashlib.sha256(f"{decisions}{data_digest(*data.values())}".encode()).hexdigest()
    _claim(out, comparison, digest, resume)
    outcomes = train_methods(
        comparison.wanted,
        repetitions,
        decisions,
        lambda name: out / "checkpoint" / f"{name}.safetensors",
        observers,
    )
    wanted = {name: outcomes[name] for name in comparison.methods}
    summary = Summary.of(wanted, outcomes, repetitions.federation)
    gains = gains_over_local(wanted, repetitions.federation, ratio=_ratios(data))
    write_all(
        [
            (out / "coalitions.csv", decisions.coalitions_csv()),
            *([(out / "benefit.csv", decisions.benefit_csv())] if comparison.benefit else []),
            (out / "failures.csv", failures_csv(wanted)),
            (out / "metrics.csv", metrics_csv(wanted, outcomes)),
            (out / "summary.csv", summary.csv()),
            (out / "gains.csv", gains_csv(gains)),
        ],
        private=True,  # coalitions let one guess who competes
    )
    return ComparisonResult(wanted, summary, gains)


def _ratios(data: Mapping[int, SiloedData]) -> dict[str, float]:
    """Return each participant's test samples divided by its training samples, over all seeds."""
    sizes = [one.sizes() for one in data.values()]
    return {
        name: sum(own[name].test for own in sizes) / sum(own[name].train for own in sizes)
        for name in sizes[0]
    }


def _claim(out: Path, comparison: Comparison, digest: str, resume: bool) -> None:
    """Reserve a folder for a comparison; a folder with another comparison is left alone.

    The digest covers the samples and the coalitions themselves, not only the names of their files,
    because the files may have changed.
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
                "the ones it names, or use another folder"
            )
    write_bytes(path, fingerprint.encode())

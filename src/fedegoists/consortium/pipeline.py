"""From data to decision to models: the stages of a run, each kept by what it depends on."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedegoists.benefit import ESTIMATOR_ENTRIES, BenefitEstimate, learn
from fedegoists.coalitions import Formation, form
from fedegoists.consortium.consortium_settings import (
    ConsortiumSettings,
    checked_name,
    read_settings,
)
from fedegoists.consortium.engine import Engine, SimulatedEngine
from fedegoists.consortium.gains import Gain, gains_over_local
from fedegoists.consortium.participant_models import chosen_models, delivered, write_models
from fedegoists.consortium.run_folder import (
    Clock,
    Progress,
    interrupted,
    remove_results,
    state,
)
from fedegoists.consortium.stage_cache import StageStore
from fedegoists.consortium.toml_text import config_toml
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation import Participant
from fedegoists.federation.pool import checked_device
from fedegoists.files import write_all, write_bytes
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.graphs.interchange import csv_bytes
from fedegoists.learning.data import SiloedData
from fedegoists.learning.model_files import MODELS
from fedegoists.methods import Outcome
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import defaults_for, learn_settings, model_options
from fedegoists.training.repetitions import (
    Repetitions,
    Wanted,
    method_of,
    train_methods,
)
from fedegoists.training.summary import metrics_csv, summary_csv

__all__ = ["STAGES", "Consortium", "ConsortiumRun", "Progress"]

STAGES = ("data", "benefit", "formation", "training", "report")


@dataclass(frozen=True)
class LearnedBenefit:
    """Who benefits whom, as far as it is known.

    Attributes
    ----------
    graph : BenefitGraph
        The edges that count.
    weights, spread : array, optional
        All weights before the rule for edges, and their deviations over repeats; only where the
        graph was learned.
    estimate : BenefitEstimate, optional
        Everything that is known of how sure they are.
    """

    graph: BenefitGraph
    weights: np.ndarray[Any, np.dtype[np.float64]] | None = None
    spread: np.ndarray[Any, np.dtype[np.float64]] | None = None
    cost: Mapping[str, int] | None = None
    failures: tuple[str, ...] = ()
    estimate: BenefitEstimate | None = None


@dataclass(frozen=True)
class ConsortiumRun:
    """What came of a run.

    Attributes
    ----------
    folder : Path
        Where everything was written.
    formation : Formation
        The decision, with its certificate.
    gains : list of Gain
        What each participant gains against training alone.
    outcomes : dict of Outcome by method
        Everything measured; with a method that is only fine-tuned, also what it was tuned from.
    absent : tuple of str
        Members of the consortium that were away and left out.
    undelivered : tuple of str
        Participants whose silos have not got their models.
    """

    folder: Path
    settings: ConsortiumSettings
    data: SiloedData
    benefit: LearnedBenefit
    formation: Formation
    gains: list[Gain]
    outcomes: dict[str, Outcome]
    trials: Repetitions
    seconds: dict[str, float]
    absent: tuple[str, ...] = ()
    undelivered: tuple[str, ...] = ()


class Consortium:
    """A consortium described in a file: learn who benefits whom, decide, train, report.

    Examples
    --------
    >>> from fedegoists.consortium.consortium_settings import ConsortiumSettings
    >>> consortium = Consortium(ConsortiumSettings(data={"source": "synthetic-weak"}))
    >>> consortium.data.participants[:2]
    ('v1', 'v2')
    """

    def __init__(self, settings: ConsortiumSettings, engine: Engine | None = None) -> None:
        self.settings = settings
        self.engine = SimulatedEngine(settings) if engine is None else engine
        training = settings.training
        try:
            checked_device(training.device)  # before anything is loaded or written
        except SettingsError as error:
            raise SettingsError(f"training.device: {error}") from None
        self.wanted = Wanted(training.methods, training.settings, training.personal)
        self.data = self.engine.data
        self.competition = self._competition()
        self.store = StageStore(Path(settings.output.folder))
        self._digest = self.engine.digest

    @classmethod
    def read(cls, path: str | os.PathLike[str], changes: Sequence[str] = ()) -> "Consortium":
        """Read a consortium.toml; changes like ``training.seeds=5`` go before what it says."""
        return cls(read_settings(path, changes))

    def _competition(self) -> CompetitionGraph:
        section, names = self.settings.competition, self.data.participants
        everybody = (*names, *self.engine.absent)
        if section.file is not None:
            whole = CompetitionGraph.from_csv(section.file, everybody)
        else:
            pairs = self.data.published_competition() if section.published else section.pairs
            whole = CompetitionGraph(pairs, everybody)
        return whole.restricted_to(names)

    def _of_the_data(self) -> list[Any]:
        """Return what every stage depends on: the same numbers may be another task."""
        return [self._digest, self.data.task, model_options(self.data)]

    def learn_benefit(self, progress: Progress | None = None) -> LearnedBenefit:
        """Learn who benefits whom, read it, or take everybody to benefit everybody."""
        section, names = self.settings.benefit, self.data.participants
        if section.estimator == "everybody":
            return LearnedBenefit(BenefitGraph(1.0 - np.eye(len(names)), names))
        if section.estimator == "file":
            assert section.file is not None  # checked with the settings
            whole = BenefitGraph.from_csv(section.file, (*names, *self.engine.absent))
            return LearnedBenefit(whole.restricted_to(names))
        defaults = defaults_for(self.data)
        given = section.model_dump(include={"repeats", "steps", "clip", "noise"})
        chosen = {name: value for name, value in given.items() if value is not None}
        here = isinstance(self.engine, SimulatedEngine)
        # Silos at their organisations are kept from competitors, unless it is asked for otherwise.
        automatic = None if here else "transfer"
        estimator = automatic if section.estimator == "auto" else section.estimator
        settings = learn_settings(self.data, estimator, seed=section.seed, **chosen)
        # Competitors count where models are shown to others, and only there.
        apart = self.competition.pairs if ESTIMATOR_ENTRIES[settings.estimator].hides else ()
        inputs = [*self._of_the_data(), defaults.model, settings.model_dump(), apart]
        key = self.store.key("benefit", inputs)
        known = self.store.read("benefit", key)
        if known is None:
            federation = self.engine.federation(defaults.model)
            report = progress or (lambda *_: None)
            estimate = learn(
                federation,
                settings,
                apart=apart,
                secret="" if here else self.store.secret(),
                progress=lambda what, done, total, loss: report(
                    "benefit", what, done, total, f"loss {loss:.3f}" if math.isfinite(loss) else ""
                ),
            )
            known = _plain(estimate)
            self.store.write("benefit", key, known)
        estimate = _estimate(known, self.data.participants)
        graph = (
            estimate.graph(section.threshold)
            if section.threshold is not None
            else estimate.graph(confidence=section.confidence)
        )
        return LearnedBenefit(
            graph,
            estimate.weights,
            estimate.spread,
            known["cost"],
            tuple(known["failures"]),
            estimate,
        )

    def form(self, benefit: LearnedBenefit) -> Formation:
        """Decide who trains with whom."""
        section = self.settings.formation
        return form(
            benefit.graph,
            self.competition,
            section.method,
            seed=section.seed,
            time_limit=section.time_limit,
        )

    def train(
        self, formation: Formation, progress: Progress | None = None
    ) -> tuple[Repetitions, dict[str, Outcome], Decisions]:
        """Train with all methods in the coalitions; each is kept by what it depends on."""
        training = self.settings.training
        trials = Repetitions.over(
            self.engine.federation(defaults_for(self.data).model, training.seeds),
            self.data,
            range(training.seeds),
            steps=training.steps,
        )
        groups = [
            group
            for seed in range(training.seeds)
            for group in Participant.groups(formation.coalitions, seed)
        ]
        edges = tuple(
            (Participant(source, seed), Participant(target, seed), weight)
            for seed in range(training.seeds)
            for source, target, weight in formation.benefit.edges()
        )
        decisions = Decisions(groups, groups, edges)

        def checkpoint(name: str) -> Path:
            base = name.removesuffix("+ft")
            method = method_of(base, self.wanted, trials, decisions)
            inputs = [
                *self._of_the_data(),
                {
                    **vars(trials.defaults),
                    "train": trials.defaults.train.model_dump(),
                    "tune": trials.defaults.tune.model_dump(),
                },
                repr(method),
                None if base == "local" else groups,
                training.seeds,
                trials.federation.device.type,
            ]
            return self.store.path(
                "training", self.store.key("training", inputs), f"{name}.safetensors"
            )

        report = progress or (lambda *_: None)
        before, rounds = 0, {}
        for name in self.wanted.with_bases:
            rounds[name] = before
            tuned = name.endswith("+ft")
            before += trials.defaults.tune_rounds if tuned else trials.defaults.rounds

        def observe(name: str, done: int, total: int, outcome: Outcome) -> None:
            remark = f"round {done} of {total}  {_remark(outcome)}"
            report("training", name, rounds[name] + done, before, remark)

        outcomes = train_methods(self.wanted, trials, decisions, checkpoint, (observe,))
        return trials, outcomes, decisions

    def run(
        self,
        name: str | None = None,
        *,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> ConsortiumRun:
        """Go through all stages and write a run's folder.

        Parameters
        ----------
        name : str, optional
            The run's name; the consortium's by default.
        resume : bool
            Continue a run that was interrupted.
        """
        from fedegoists.consortium.report import write_report

        name = self.settings.name if name is None else checked_name(name)
        # Whoever runs what was resolved again means this run, not the one the file names.
        settings = self.settings.model_copy(update={"name": name})
        folder = self.store.folder / name
        marker = folder / "run.json"
        if marker.exists() and not resume and interrupted(marker):
            raise FileError(
                f"{folder} was interrupted; add --resume to go on, or use another --name"
            )
        write_bytes(marker, state("running", STAGES[0], {}))
        # It says who competes with whom, which is nobody else's business.
        write_bytes(folder / "config.toml", config_toml(settings).encode(), private=True)
        remove_results(folder)
        clock = Clock(folder, marker, progress or (lambda *_: None))
        with clock.stage("data"):
            clock.log(f"{self.data.name}: {len(self.data.participants)} participants")
            for absent in self.engine.absent:
                clock.log(f"{absent}: is away and is left out")
        with clock.stage("benefit"):
            benefit = self.learn_benefit(progress)
        with clock.stage("formation"):
            formation = self.form(benefit)
        # Between competitors nothing is learned, so weights of zero would give them away.
        write_all(
            [(folder / "benefit.csv", benefit.graph.csv_bytes()), *_weights(folder, benefit)],
            private=True,
        )
        formation.certificate.save(folder / "certificate.json")
        with clock.stage("training"):
            trials, outcomes, decisions = self.train(formation, progress)
        wanted = {method: outcomes[method] for method in self.wanted.methods}
        for method, outcome in wanted.items():
            for failure in sorted({str(failure) for _, failure in outcome.failures}):
                clock.log(f"{method}: left out {failure}")
        personal = {
            method: method_of(method.removesuffix("+ft"), self.wanted, trials, decisions).personal
            for method in wanted
        }
        gains = gains_over_local(wanted, trials.federation)
        with clock.stage("report"):
            models = chosen_models(self.data, wanted, personal, trials)
            # What it cost tells who is alone, and everybody's results are its own business.
            write_all(
                [
                    (folder / "metrics.csv", metrics_csv(wanted, outcomes)),
                    (folder / "summary.csv", summary_csv(wanted, outcomes, trials.federation)),
                    (folder / "gains.csv", _gains_csv(gains)),
                ],
                private=True,
            )
            write_models(folder / MODELS, models, self.data.participants)
            lost = delivered(models, trials.federation)
            for who, failed in lost.items():
                clock.log(f"{who}: has not got its model ({failed.detail})")
            result = ConsortiumRun(
                folder,
                settings,
                self.data,
                benefit,
                formation,
                gains,
                outcomes,
                trials,
                clock.seconds,
                absent=self.engine.absent,
                undelivered=tuple(lost),
            )
            write_report(result)
        write_bytes(marker, state("finished", "", clock.seconds))
        return result


def _plain(estimate: BenefitEstimate) -> dict[str, Any]:
    """Return an estimate as values for JSON."""
    return {
        "estimator": estimate.estimator,
        "runs": estimate.runs.tolist(),
        "gains": estimate.gains.tolist(),
        "savings": estimate.savings.tolist(),
        "cost": asdict(estimate.cost),
        "failures": list(estimate.failures),
        "absent": list(estimate.absent),
    }


def _estimate(known: Mapping[str, Any], participants: tuple[str, ...]) -> BenefitEstimate:
    return BenefitEstimate(
        participants,
        known["estimator"],
        np.array(known["runs"]),
        np.array(known["gains"]),
        np.array(known["savings"]),
        absent=tuple(known["absent"]),
    )


def _remark(outcome: Outcome) -> str:
    values = [row for row in outcome.rows[-400:] if row.split == "validation"]
    if not values:
        return ""
    last = values[-1]
    own = [row.value for row in values if (row.round, row.metric) == (last.round, last.metric)]
    return f"{last.metric} {sum(own) / len(own):.3f}"


def _weights(folder: Path, benefit: LearnedBenefit) -> list[tuple[Path, bytes]]:
    if benefit.weights is None:
        return []
    names = benefit.graph.participants
    rows = [
        (source, target, repr(float(benefit.weights[j, i])))
        for j, source in enumerate(names)
        for i, target in enumerate(names)
        if i != j
    ]
    return [(folder / "weights.csv", csv_bytes(("source", "target", "weight"), rows))]


def _gains_csv(gains: Sequence[Gain]) -> bytes:
    columns = ("method", "participant", "value", "alone", "gain", "low", "high")
    return csv_bytes(columns, [tuple(asdict(gain).values()) for gain in gains])

"""The stages of a run: data, benefit graph, coalitions, training, report.

Each stage is kept by a hash of its inputs, so that a run that was interrupted, or differs from an
earlier one in its later stages only, repeats nothing.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedegoists.benefit import ESTIMATOR_ENTRIES, BenefitEstimate, LearnSettings, learn
from fedegoists.coalitions import Formation, form
from fedegoists.consortium.consortium_run import ConsortiumRun, LearnedBenefit
from fedegoists.consortium.consortium_settings import (
    ConsortiumSettings,
    checked_name,
    read_settings,
)
from fedegoists.consortium.engine import Engine
from fedegoists.consortium.gains import gains_csv, gains_over_local
from fedegoists.consortium.participant_models import chosen_models, delivered, write_models
from fedegoists.consortium.progress import SILENT, Progress
from fedegoists.consortium.run_folder import RunFolder
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.consortium.stage_cache import StageStore
from fedegoists.consortium.toml_text import config_toml
from fedegoists.errors import SettingsError
from fedegoists.federation import Participant
from fedegoists.federation.pool import checked_device
from fedegoists.graphs import BenefitGraph, CompetitionGraph
from fedegoists.learning.data_description import published_competition
from fedegoists.learning.model_files import MODELS_FOLDER
from fedegoists.learning.model_registry import model_for
from fedegoists.methods import Outcome
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import learn_settings
from fedegoists.training.repetitions import Repetitions, Wanted, method_of, train_methods
from fedegoists.training.summary import metrics_csv

STAGES = ("data", "benefit", "formation", "training", "report")


class Consortium:
    """A consortium described in a file: learn the benefit graph, form coalitions, train, report.

    Parameters
    ----------
    engine : Engine, optional
        Connected silos; by default all are in this process.
    competition : CompetitionGraph, optional
        The competition graph; by default as the settings say.
    decision : Formation, optional
        A decision made before. Benefits are then not learned, nor coalitions formed.

    Examples
    --------
    >>> from fedegoists.consortium.consortium_settings import ConsortiumSettings
    >>> consortium = Consortium(ConsortiumSettings(data={"source": "synthetic-weak"}))
    >>> consortium.data.participants[:2]
    ('v1', 'v2')
    """

    def __init__(
        self,
        settings: ConsortiumSettings,
        engine: Engine | None = None,
        *,
        competition: CompetitionGraph | None = None,
        decision: Formation | None = None,
    ) -> None:
        self.settings = settings
        self.engine = SimulatedEngine(settings) if engine is None else engine
        self.data = self.engine.data
        training = settings.training
        try:
            checked_device(training.device)
        except SettingsError as error:
            raise SettingsError(f"training.device: {error}") from None
        self.wanted = Wanted(training.methods, training.settings, training.personal)
        try:
            self.model = model_for(self.data, training.model)
        except SettingsError as error:
            raise SettingsError(f"training.model: {error}") from None
        self.competition = self._competition() if competition is None else competition
        self.decision = decision
        self.store = StageStore(Path(settings.output.folder))

    @classmethod
    def read(cls, path: str | os.PathLike[str], changes: Sequence[str] = ()) -> "Consortium":
        """Read a consortium.toml; changes like ``training.seeds=5`` override it."""
        return cls(read_settings(path, changes))

    def _competition(self) -> CompetitionGraph:
        section, names = self.settings.competition, self.data.participants
        members = (*names, *self.engine.absent)
        if section.file is not None:
            whole = CompetitionGraph.from_csv(section.file, members)
        else:
            pairs = published_competition(self.data) if section.published else section.pairs
            whole = CompetitionGraph(pairs, members)
        return whole.restricted_to(names)

    def _data_key(self) -> list[object]:
        """Return the inputs of every stage; the same numbers may be another task."""
        return [self.data.digest, self.data.task, self.model.options(self.data)]

    def learn_benefit(self, progress: Progress = SILENT) -> LearnedBenefit:
        """Learn or read the benefit graph, or take every participant to benefit every other."""
        if self.decision is not None:
            return LearnedBenefit(self.decision.benefit)
        section, names = self.settings.benefit, self.data.participants
        if section.estimator == "everybody":
            return LearnedBenefit(BenefitGraph(1.0 - np.eye(len(names)), names))
        if section.file is not None:
            whole = BenefitGraph.from_csv(section.file, (*names, *self.engine.absent))
            return LearnedBenefit(whole.restricted_to(names))
        # Models of silos at their organisations are not shown to competitors unless asked for.
        automatic = None if self.engine.local else "transfer"
        given = section.model_dump(include={"repeats", "steps", "clip", "noise", "seed"})
        settings = learn_settings(
            self.data,
            automatic if section.estimator == "auto" else section.estimator,
            **{name: value for name, value in given.items() if value is not None},
        )
        # Competition matters only to the estimator that shows models to other silos.
        apart = self.competition.pairs if ESTIMATOR_ENTRIES[settings.estimator].hides else ()
        key = self.store.key(
            "benefit", [*self._data_key(), self.model.name, settings.model_dump(), apart]
        )
        estimate = self.store.read(
            "benefit", key, lambda text: BenefitEstimate.from_json(names, text)
        )
        if estimate is None:
            secret = "" if self.engine.local else self.store.secret()
            estimate = self._learned(settings, apart, secret, progress)
            self.store.write("benefit", key, estimate.to_json())
        by_confidence = section.threshold is None
        graph = estimate.graph(
            section.threshold, confidence=section.confidence if by_confidence else None
        )
        return LearnedBenefit(graph, estimate)

    def _learned(
        self,
        settings: LearnSettings,
        apart: Sequence[tuple[str, str]],
        secret: str,
        progress: Progress,
    ) -> BenefitEstimate:
        return learn(
            self.engine.federation(self.model.name),
            settings,
            apart=apart,
            secret=secret,
            progress=lambda what, done, total, loss: progress(
                "benefit", what, done, total, f"loss {loss:.3f}" if math.isfinite(loss) else ""
            ),
        )

    def form(self, benefit: LearnedBenefit) -> Formation:
        """Form the coalitions."""
        if self.decision is not None:
            return self.decision
        section = self.settings.formation
        return form(
            benefit.graph,
            self.competition,
            section.method,
            seed=section.seed,
            time_limit=section.time_limit,
        )

    def train(
        self, formation: Formation, progress: Progress = SILENT
    ) -> tuple[Repetitions, dict[str, Outcome], Decisions]:
        """Train with all methods in the coalitions; each method is kept by its inputs."""
        training = self.settings.training
        seeds = range(training.seeds)
        repetitions = Repetitions.over(
            self.engine.federation(self.model.name, training.seeds),
            self.data,
            seeds,
            steps=training.steps,
            model=self.model.name,
        )
        groups = [
            group for seed in seeds for group in Participant.groups(formation.coalitions, seed)
        ]
        edges = tuple(
            (Participant(source, seed), Participant(target, seed), weight)
            for seed in seeds
            for source, target, weight in formation.benefit.edges()
        )
        decisions = Decisions(groups, groups, edges)

        def checkpoint(name: str) -> Path:
            base = name.removesuffix("+ft")
            inputs = [
                *self._data_key(),
                {
                    **vars(repetitions.defaults),
                    "train": repetitions.defaults.train.model_dump(),
                    "tune": repetitions.defaults.tune.model_dump(),
                },
                repr(method_of(base, self.wanted, repetitions, decisions)),
                None if base == "local" else groups,
                training.seeds,
                repetitions.federation.device.type,
            ]
            key = self.store.key("training", inputs)
            return self.store.path("training", key, f"{name}.safetensors")

        # One progress bar for all methods: the rounds of those before are done.
        before, rounds = 0, {}
        for name in self.wanted.with_bases:
            rounds[name] = before
            tuned = name.endswith("+ft")
            before += repetitions.defaults.tune_rounds if tuned else repetitions.defaults.rounds

        def observe(name: str, done: int, total: int, outcome: Outcome) -> None:
            remark = f"round {done} of {total}  {_validation(outcome)}"
            progress("training", name, rounds[name] + done, before, remark)

        outcomes = train_methods(self.wanted, repetitions, decisions, checkpoint, (observe,))
        return repetitions, outcomes, decisions

    def run(
        self,
        name: str | None = None,
        *,
        resume: bool = False,
        progress: Progress = SILENT,
    ) -> ConsortiumRun:
        """Go through all stages and write the run's folder.

        Parameters
        ----------
        name : str, optional
            The run's name; the consortium's by default.
        resume : bool
            Continue a run that was interrupted.
        """
        from fedegoists.consortium.report import write_report

        name = self.settings.name if name is None else checked_name(name)
        # The resolved settings carry the run's name, so that running them repeats this run.
        settings = self.settings.model_copy(update={"name": name})
        folder = RunFolder(self.store.folder / name, progress)
        folder.begin(config_toml(settings), STAGES[0], resume=resume)
        with folder.stage("data"):
            folder.log(f"{self.data.name}: {len(self.data.participants)} participants")
            for absent in self.engine.absent:
                folder.log(f"{absent}: did not answer and is left out")
        with folder.stage("benefit"):
            benefit = self.learn_benefit(progress)
        with folder.stage("formation"):
            formation = self.form(benefit)
            # Nothing is learned between competitors, so weights of zero would reveal them.
            learned = {"benefit.csv": benefit.graph.csv_bytes()}
            if benefit.estimate is not None:
                learned["weights.csv"] = benefit.estimate.weights_csv()
            folder.write(learned)
            formation.certificate.save(folder.path / "certificate.json")
        with folder.stage("training"):
            repetitions, outcomes, decisions = self.train(formation, progress)
            for method in self.wanted.methods:
                for failure in sorted({str(one) for _, one in outcomes[method].failures}):
                    folder.log(f"{method}: left out {failure}")
        with folder.stage("report"):
            wanted = {method: outcomes[method] for method in self.wanted.methods}
            undelivered = self._hand_over(folder, wanted, repetitions, decisions)
            result = ConsortiumRun(
                folder.path,
                settings,
                self.data,
                benefit,
                formation,
                gains_over_local(wanted, repetitions.federation),
                outcomes,
                repetitions,
                folder.seconds,
                absent=self.engine.absent,
                undelivered=undelivered,
            )
            # Costs tell who trains alone, and results are confidential to each participant.
            folder.write(
                {
                    "metrics.csv": metrics_csv(wanted, outcomes),
                    "summary.csv": result.summary.csv(),
                    "gains.csv": gains_csv(result.gains),
                }
            )
            write_report(result)
        folder.finish()
        return result

    def _hand_over(
        self,
        folder: RunFolder,
        wanted: dict[str, Outcome],
        repetitions: Repetitions,
        decisions: Decisions,
    ) -> tuple[str, ...]:
        """Write the participants' models and deliver them; return who did not get its model."""
        personal = {
            method: method_of(
                method.removesuffix("+ft"), self.wanted, repetitions, decisions
            ).personal
            for method in wanted
        }
        models = chosen_models(self.data, wanted, personal, repetitions)
        write_models(folder.path / MODELS_FOLDER, models, self.data.participants)
        undelivered = delivered(models, repetitions.federation)
        for participant, failure in undelivered.items():
            folder.log(f"{participant}: its model was not delivered ({failure.detail})")
        return tuple(undelivered)


def _validation(outcome: Outcome) -> str:
    """Return the mean validation metric of the last evaluation, as a remark."""
    values = [row for row in outcome.rows[-400:] if row.split == "validation"]
    if not values:
        return ""
    last = values[-1]
    own = [row.value for row in values if (row.round, row.metric) == (last.round, last.metric)]
    return f"{last.metric} {sum(own) / len(own):.3f}"

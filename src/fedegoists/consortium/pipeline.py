"""The stages of a run: data, benefit graph, coalitions, training, report.

Each stage is kept by a hash of its inputs, so that a run that was interrupted, or differs from an
earlier one in its later stages only, repeats nothing.
"""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedegoists.benefit import ESTIMATOR_ENTRIES, BenefitEstimate, LearnSettings, learn
from fedegoists.benefit.estimator_registry import CURVES, check_estimator_suits
from fedegoists.benefit.learning_benefit import check_mingling
from fedegoists.coalitions import Formation, form
from fedegoists.consortium.consortium_run import ConsortiumRun, LearnedBenefit, alone_in
from fedegoists.consortium.consortium_settings import (
    ConsortiumSettings,
    checked_name,
    read_settings,
)
from fedegoists.consortium.engine import Engine
from fedegoists.consortium.estimator_choice import (
    check_answers,
    chosen_estimator,
    learning_changes,
)
from fedegoists.consortium.evaluations import Evaluations, evaluated
from fedegoists.consortium.everybody_together import EverybodyTogether, train_everybody
from fedegoists.consortium.exposure import (
    Exposure,
    MaskedSums,
    check_estimator_consent,
    check_methods,
    exposures,
    masked_sums,
)
from fedegoists.consortium.model_choice import (
    chosen_model,
    fitting_methods,
    remarks_on,
    searches_decay,
    training_changes,
    training_steps,
)
from fedegoists.consortium.participant_models import (
    ChosenModel,
    candidate_words,
    deliver_models,
    told_choices,
    write_models,
)
from fedegoists.consortium.progress import SILENT, Progress
from fedegoists.consortium.result_files import training_remarks, write_results
from fedegoists.consortium.run_folder import RunFolder
from fedegoists.consortium.simulated_engine import SimulatedEngine
from fedegoists.consortium.stage_cache import StageStore
from fedegoists.consortium.toml_text import config_toml
from fedegoists.consortium.tree_yardstick import TreeYardstick, trees_alone
from fedegoists.consortium.warm_start import StartedMember, WarmStart
from fedegoists.errors import SettingsError
from fedegoists.federation import Failure, Participant, SimulatedFederation
from fedegoists.federation.delivery import OWN
from fedegoists.federation.pool import checked_device
from fedegoists.federation.robust_sums import RobustSettings
from fedegoists.graphs import BenefitGraph, CompetitionGraph, UncertainBenefits
from fedegoists.graphs.coalition_values import Benefits, pair_graph
from fedegoists.graphs.uncertain_benefits import has_errors
from fedegoists.learning.boosting import require_lightgbm
from fedegoists.learning.data_description import published_competition
from fedegoists.learning.metric_words import metric_words
from fedegoists.learning.model_registry import model_options
from fedegoists.learning.own_models import OwnModelEntry, model_parts
from fedegoists.learning.parameters import digest_of
from fedegoists.learning.safe_choice import ChooseBy
from fedegoists.methods import Outcome
from fedegoists.methods.failed_rounds import FailedRunError
from fedegoists.methods.method_registry import base_of
from fedegoists.methods.method_run import Observer
from fedegoists.training.contributions import (
    Ledger,
    accounted_among,
    contributions,
    left_out_in_turn,
)
from fedegoists.training.decay_search import searched_decays, searched_decays_together
from fedegoists.training.decisions import Decisions
from fedegoists.training.defaults import learn_settings
from fedegoists.training.gains import gains_over_local
from fedegoists.training.rate_search import with_searched_rate
from fedegoists.training.redundancy import redundant_members
from fedegoists.training.repetitions import Repetitions, Wanted, method_of, train_methods

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
        self.engine = SimulatedEngine(settings) if engine is None else engine
        self.data = self.engine.data
        self.decision, training = decision, settings.training
        try:
            checked_device(training.device)
        except SettingsError as error:
            raise SettingsError(f"training.device: {error}") from None
        try:
            self.model, self.model_reason = chosen_model(
                training, self.data, settings.benefit.steps
            )
            self.model_kind = self.model.kind
            if isinstance(self.model, OwnModelEntry):
                self.model_kind = model_parts(self.data, self.model.name).kind
        except SettingsError as error:
            raise SettingsError(f"training.model: {error}") from None
        training = fitting_methods(training, self.model_kind)
        if training.everybody and not self.engine.local:
            raise SettingsError(
                "training.everybody is for simulations: at their organisations, competitors would "
                "train together; remove it"
            )
        self.settings = settings.model_copy(update={"training": training})
        self.accounted = self._accounted()
        if self.model_kind == "trees" and self.engine.local:
            require_lightgbm()
        self.competition = self._competition() if competition is None else competition
        self.chosen = chosen_estimator(
            self.settings,
            self.engine,
            self.model.name,
            self.model_kind,
            competition=bool(self.competition.pairs),
        )
        if self.estimator is not None:
            check_estimator_suits(self.estimator, self.model_kind)
        self.wanted = Wanted(training.methods, training.settings, training.personal)
        self.start = self._start()
        self.store = StageStore(Path(settings.output.folder))

    @classmethod
    def read(cls, path: str | os.PathLike[str], changes: Sequence[str] = ()) -> "Consortium":
        """Read a consortium.toml; changes like ``training.seeds=5`` override it."""
        return cls(read_settings(path, changes))

    @property
    def estimator(self) -> str | None:
        """The estimator of benefits; None where they are given."""
        return None if self.decision is not None else self.chosen.name

    def _accounted(self) -> str | None:
        """Return the method whose contributions are measured, after a check that it can be."""
        training = self.settings.training
        if not training.contributions:
            return None
        if not self.engine.local:
            raise SettingsError(
                "training.contributions is for simulations: at their organisations, sums with and "
                "without a member would show its updates; remove it"
            )
        try:
            return accounted_among(
                training.methods, training.personal, split=self.data.task == "classification"
            )
        except SettingsError as error:
            raise SettingsError(f"training.contributions: {error}") from None

    def _start(self) -> WarmStart | None:
        """Return the earlier run's models to start from, after a check that they fit."""
        folder = self.settings.training.start
        if folder is None:
            return None
        if not self.engine.local:
            raise SettingsError(
                "--from: models of silos at their organisations are there, not in a run's folder; "
                "this works in simulations only"
            )
        if self.model_kind == "trees":
            raise SettingsError(
                "--from: trees of an earlier run fill their places, so that no new ones could be "
                "added; train from scratch, which takes seconds"
            )
        start = WarmStart.read(Path(folder))
        start.check(self.data, self.model.name, model_options(self.data, self.model.name))
        return start

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
        code = self.model.digest if isinstance(self.model, OwnModelEntry) else ""
        options = model_options(self.data, self.model.name)
        return [self.data.digest, self.data.task, options, *([code] if code else [])]

    def learn_benefit(self, progress: Progress = SILENT) -> LearnedBenefit:
        """Learn or read the benefit graph, or take every participant to benefit every other."""
        if self.decision is not None:
            return LearnedBenefit(self.decision.benefit)
        section, names = self.settings.benefit, self.data.participants
        if section.estimator == "everybody":
            return LearnedBenefit(BenefitGraph(1.0 - np.eye(len(names)), names))
        if section.file is not None:
            members = (*names, *self.engine.absent)
            if has_errors(section.file):
                known = UncertainBenefits.from_csv(section.file, members)
                known = known.restricted_to(names).relearned()
                return LearnedBenefit(known.graph, uncertain=known)
            whole = BenefitGraph.from_csv(section.file, members)
            return LearnedBenefit(whole.restricted_to(names))
        if self.estimator == CURVES and self.settings.formation.method != "best":
            raise SettingsError(
                f"formation.method is {self.settings.formation.method!r}; with benefit.estimator = "
                "'curves', only 'best' decides by expected gains"
            )
        settings = self._learn_settings(progress)
        # Competition matters only to estimators that show models to other silos.
        entry = ESTIMATOR_ENTRIES[settings.estimator]
        apart = self.competition.pairs if entry.hides or entry.mingles else ()
        check_mingling(settings, competition=bool(apart))
        key = self.store.key(
            "benefit", [*self._data_key(), self.model.name, settings.model_dump(), apart]
        )
        estimate = self.store.read(
            "benefit", key, lambda text: BenefitEstimate.from_json(names, text)
        )
        if estimate is None:
            secret = ""
            if not self.engine.local:
                secret = self.store.secret()
                federation = self.engine.federation(self.model.name)
                check_answers(settings, self.engine)
                check_estimator_consent(settings, federation)
            estimate = self._learned(settings, apart, secret, progress)
            _check_known(estimate)  # before it is kept: another run should ask the silos again
            self.store.write("benefit", key, estimate.to_json())
        if estimate.values is not None:
            return LearnedBenefit(pair_graph(estimate.values), estimate)
        by_confidence = section.threshold is None
        graph = estimate.graph(
            section.threshold, confidence=section.confidence if by_confidence else None
        )
        return LearnedBenefit(graph, estimate)

    def _learn_settings(self, progress: Progress) -> LearnSettings:
        """Return the estimator's settings; its steps are those of local training, if it has any."""
        section = self.settings.benefit
        settings = learn_settings(
            self.data,
            self.estimator,
            model=self.model.name,
            training=self._training_changes("benefit", progress),
            # Coalitions then have a weight decay of their own, too.
            ridge=searches_decay(self.settings.training, self.model, simulated=self.engine.local),
            **learning_changes(section),
        )
        if section.steps is None or "local" not in ESTIMATOR_ENTRIES[settings.estimator].settings:
            return settings
        local = settings.local.changed(steps=section.steps, total_steps=section.steps)
        return settings.model_copy(update={"local": local})

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
        benefits = self._decided_by(benefit)
        return form(
            benefits,
            self.competition,
            section.method,
            seed=section.seed,
            time_limit=section.time_limit,
            fewest_members=section.fewest_members,
            confidence=None if isinstance(benefits, BenefitGraph) else section.confidence,
            risk=section.risk if isinstance(benefits, UncertainBenefits) else None,
        )

    def _decided_by(self, benefit: LearnedBenefit) -> Benefits:
        """Return what decides: expected gains, benefits with their errors, or benefits alone."""
        estimate, section = benefit.estimate, self.settings.formation
        if estimate is not None and estimate.values is not None:
            return estimate.values
        known = benefit.uncertain
        if known is None and estimate is not None and estimate.certain:
            known = estimate.uncertain()
        # Who sets a rule for single benefits, or another method, wants these to decide.
        by_rule = self.settings.benefit.model_fields_set & {"threshold", "confidence"}
        wanted = section.risk is not None or not (by_rule and benefit.uncertain is None)
        if known is None or section.method != "best" or section.risk == "ignore" or not wanted:
            if section.risk not in (None, "ignore"):
                raise SettingsError(
                    f"formation.risk is {section.risk!r}, but these benefits have no standard "
                    "errors, or formation.method is not best; leave risk out"
                )
            return benefit.graph
        return known

    def train(
        self,
        formation: Formation,
        progress: Progress = SILENT,
        observers: tuple[Observer, ...] = (),
    ) -> tuple[Repetitions, dict[str, Outcome], Decisions]:
        """Train with all methods in the coalitions; each method is kept by its inputs."""
        training = self.settings.training
        seeds = range(training.seeds)
        changes = self._training_changes("training", progress)
        repetitions = self._with_decay_together(
            self._repetitions(training.seeds, changes), changes, formation, progress
        )
        begun = self.begun(formation, repetitions)
        warm = _warm(repetitions, begun) if begun else None
        repetitions = dataclasses.replace(repetitions, warm=warm)
        if training.learning_rate == "auto":
            repetitions = with_searched_rate(repetitions, progress.message)
        groups = [
            group for seed in seeds for group in Participant.groups(formation.coalitions, seed)
        ]
        edges = tuple(
            (Participant(source, seed), Participant(target, seed), weight)
            for seed in seeds
            for source, target, weight in formation.benefit.edges()
        )
        decisions = Decisions(groups, groups, edges)
        robust = self._robust()

        def checkpoint(name: str) -> Path:
            return self._training_path(name, self.wanted, repetitions, decisions, robust)

        # One progress bar for all methods: the rounds of those before are done.
        before, rounds = 0, {}
        for name in self.wanted.with_bases:
            rounds[name] = before
            tuned = name.endswith("+ft")
            before += repetitions.defaults.tune_rounds if tuned else repetitions.defaults.rounds

        def observe(name: str, done: int, total: int, outcome: Outcome) -> None:
            remark = f"round {done} of {total}  {_validation(outcome)}"
            progress("training", name, rounds[name] + done, before, remark)

        outcomes = train_methods(
            self.wanted,
            repetitions,
            decisions,
            checkpoint,
            (observe, *observers),
            robust,
            training.early_stopping,
            training.choose_by,
        )
        return repetitions, outcomes, decisions

    def _training_path(
        self,
        name: str,
        wanted: Wanted,
        repetitions: Repetitions,
        decisions: Decisions,
        robust: RobustSettings | None,
        choose_by: ChooseBy | None = None,
    ) -> Path:
        """Return the file of a method's models, by all that they depend on."""
        choose_by = choose_by or self.settings.training.choose_by
        training, warm = self.settings.training, repetitions.warm
        base, groups = name.removesuffix("+ft"), decisions.final
        inputs = [
            *self._data_key(),
            {
                **vars(repetitions.defaults),
                "together_decay": None if base == OWN else repetitions.defaults.together_decay,
                "train": repetitions.defaults.train.model_dump(),
                "tune": repetitions.defaults.tune.model_dump(),
            },
            repr(method_of(base, wanted, repetitions, decisions)),
            # What stays in the silos is not in a file that was written without that.
            [repetitions.federation.masks(group) for group in (*groups, groups[0][:1])],
            None if base == "local" else groups,
            training.seeds,
            repetitions.federation.device.type,
            None if robust is None else robust.model_dump(),
            *([] if warm is None or base == "local" else [digest_of({"warm": warm})]),
            *([] if training.early_stopping is None else [training.early_stopping]),
            *([] if choose_by == "metric" else [choose_by]),
        ]
        key = self.store.key("training", inputs)
        return self.store.path("training", key, f"{name}.safetensors")

    def _everybody(
        self, repetitions: Repetitions, outcomes: Mapping[str, Outcome], progress: Progress
    ) -> EverybodyTogether | None:
        """Return the comparison with training all together, where it was asked for."""
        if not self.settings.training.everybody:
            return None
        return train_everybody(
            self.model_kind,
            repetitions,
            outcomes[OWN],
            lambda name, wanted, decisions: self._training_path(
                name, wanted, repetitions, decisions, None
            ),
            lambda done, all_: progress("training", "everybody together", done, all_, ""),
            self.settings.training.choose_by,
        )

    def _repetitions(self, seeds: int, changes: Mapping[str, object]) -> Repetitions:
        training = self.settings.training
        return Repetitions.over(
            self.engine.federation(self.model.name, seeds),
            self.data,
            range(seeds),
            steps=training_steps(training, self.data, self.model.name),
            model=self.model.name,
            changes=changes,
        )

    def _training_changes(self, stage: str, progress: Progress) -> dict[str, object]:
        """Return the settings of local training that differ from the defaults of the model."""
        training = self.settings.training
        changes = training_changes(training, self.data, self.model.name)
        if searches_decay(training, self.model, simulated=self.engine.local):
            changes["weight_decay"] = self._searched_decay(changes, stage, progress)
        return changes

    def _searched_decay(
        self, changes: Mapping[str, object], stage: str, progress: Progress
    ) -> float:
        """Return the weight decay that silos prefer; it is kept by its inputs."""
        repetitions = self._repetitions(1, changes)
        settings = {**vars(repetitions.defaults), "train": repetitions.defaults.train.model_dump()}
        key = self.store.key("decay", [*self._data_key(), {**settings, "tune": None}])
        known = self.store.read("decay", key, float)
        if known is None:
            (known,) = searched_decays(
                repetitions, lambda done, all_: progress(stage, "weight decay", done, all_, "")
            ).values()
            self.store.write("decay", key, repr(known))
        return known

    def _with_decay_together(
        self,
        repetitions: Repetitions,
        changes: Mapping[str, object],
        formation: Formation,
        progress: Progress,
    ) -> Repetitions:
        """Return repetitions with the weight decay that coalitions prefer, if one is searched."""
        groups = [group for group in formation.coalitions if len(group) > 1]
        training, in_company = self.settings.training, set(self.wanted.bases) - {OWN}
        searched = searches_decay(training, self.model, simulated=self.engine.local)
        if not (groups and in_company and searched):
            return repetitions
        settings = {**vars(repetitions.defaults), "train": repetitions.defaults.train.model_dump()}
        key = self.store.key("decay", [*self._data_key(), {**settings, "tune": None}, groups])
        known = self.store.read("decay", key, float)
        if known is None:
            (known,) = searched_decays_together(
                self._repetitions(1, changes),
                Participant.groups(formation.coalitions, 0),
                lambda done, all_: progress("training", "weight decay together", done, all_, ""),
            ).values()
            self.store.write("decay", key, repr(known))
        defaults = dataclasses.replace(repetitions.defaults, together_decay=known)
        return dataclasses.replace(repetitions, defaults=defaults)

    def begun(self, formation: Formation, repetitions: Repetitions) -> dict[str, StartedMember]:
        """Return how participants start from an earlier run; none do without one."""
        if self.start is None:
            return {}
        pairs = frozenset(frozenset(pair) for pair in self.competition.pairs)
        return self.start.begin(formation.coalitions, pairs, repetitions.federation.schema)

    def _robust(self) -> RobustSettings | None:
        """Return what protects coalitions from one bad member: in a simulation there is none."""
        training = self.settings.training
        guard = not self.engine.local if training.guard is None else training.guard
        if not guard:
            return None
        return RobustSettings(factor=training.norm_bound, audit=training.audit, rule=training.rule)

    def _check_before(self, folder: RunFolder) -> None:
        """Refuse what cannot be run, before there is a run to resume."""
        start = self.settings.training.start
        if start is not None and Path(start).resolve() == folder.path.resolve():
            raise SettingsError(
                f"--from {start}: this run has the same folder and would replace those models; "
                "use another --name"
            )
        if self.engine.local and isinstance(self.model, OwnModelEntry):
            self.engine.federation(self.model.name)  # refuses a module that does not fit the data

    def run(
        self,
        name: str | None = None,
        *,
        resume: bool = False,
        replace: bool = False,
        progress: Progress = SILENT,
        observers: tuple[Observer, ...] = (),
    ) -> ConsortiumRun:
        """Go through all stages and write the run's folder.

        Parameters
        ----------
        name : str, optional
            The run's name; the consortium's by default.
        resume : bool
            Continue a run that was interrupted.
        replace : bool
            Put the run in the place of a finished one of the same name, when it is complete.
        observers : tuple of Observer
            Called after every round, such as those of `fedegoists.training.run_logs`.
        """
        name = self.settings.name if name is None else checked_name(name)
        # The resolved settings carry the run's name, so that running them repeats this run.
        settings = self.settings.model_copy(update={"name": name})
        folder = RunFolder(self.store.folder / name, progress)
        self._check_before(folder)
        folder.begin(config_toml(settings), STAGES[0], resume=resume, replace=replace)
        with folder.stage("data"):
            self._describe(folder)
        with folder.stage("benefit"):
            if self.estimator is not None:
                folder.log(f"estimator {self.estimator}: {self.chosen.reason}")
            benefit = self.learn_benefit(progress)
        with folder.stage("formation"):
            formation = self.form(benefit)
            folder.write(_learned_files(benefit))
            formation.certificate.save(folder.path / "certificate.json")
        with folder.stage("training"):
            seen: tuple[Exposure, ...] = ()
            masked: tuple[MaskedSums, ...] = ()
            if not self.engine.local:
                federation = self.engine.federation(self.model.name)
                seen = exposures(self.wanted, federation, formation.coalitions)
                masked = masked_sums(self.wanted, federation, formation.coalitions)
            for one in seen:
                folder.log(str(one))
            repetitions, outcomes, decisions = self.train(formation, progress, observers)
            everybody = self._everybody(repetitions, outcomes, progress)
            ledger = self._ledger(repetitions, outcomes, decisions, progress)
            folder.log_all(() if ledger is None else ledger.remarks)
            begun = self.begun(formation, repetitions)
            started = {participant: one.words for participant, one in begun.items()}
            for participant, words in started.items():
                folder.log(f"{participant}: starts {words}")
            folder.log_all(training_remarks(outcomes, self.wanted.methods))
            folder.log_all(remarks_on(repetitions, self.wanted.bases, benefit.estimate))
        with folder.stage("report"):
            wanted = {method: outcomes[method] for method in self.wanted.methods}
            personal = self._personal(repetitions, decisions)
            alone = alone_in(formation)
            by = settings.training.choose_by
            models, lost = deliver_models(self.data, outcomes, personal, repetitions, alone, by)
            self._hand_over(folder, models, lost, repetitions)
            result = ConsortiumRun(
                folder.path,
                settings,
                self.data,
                benefit,
                formation,
                gains_over_local(wanted, repetitions.federation, alone=alone),
                outcomes,
                repetitions,
                folder.seconds,
                absent=self.engine.absent,
                undelivered=tuple(lost),
                seen=seen,
                evaluations=self._evaluated(wanted, personal, models, repetitions, alone),
                begun=started,
                masked=masked,
                yardstick=self._yardstick(repetitions),
                delivered={one.card.participant: one for one in models},
                everybody=everybody,
                ledger=ledger,
                made=folder.made,
                decided=self.decision is not None,
            )
            write_results(folder, result, models, begun)
        folder.finish()
        return dataclasses.replace(result, folder=folder.path)

    def _describe(self, folder: RunFolder) -> None:
        """Log the data, the model and who is away; refuse methods that silos do not allow."""
        folder.log(f"{self.data.name}: {len(self.data.participants)} participants")
        folder.log(f"model {self.model_reason}")
        for absent in self.engine.absent:
            folder.log(f"{absent}: did not answer and is left out")
        if not self.engine.local:
            check_methods(self.wanted, self.engine.federation(self.model.name))

    def _personal(
        self, repetitions: Repetitions, decisions: Decisions
    ) -> dict[str, tuple[str, ...]]:
        """Return prefixes of the parameters that each method keeps in the silos."""
        return {
            method: method_of(
                method.removesuffix("+ft"), self.wanted, repetitions, decisions
            ).personal
            for method in self.wanted.with_bases
        }

    def _evaluated(
        self,
        wanted: dict[str, Outcome],
        personal: dict[str, tuple[str, ...]],
        models: Sequence[ChosenModel],
        repetitions: Repetitions,
        alone: tuple[str, ...],
    ) -> Evaluations:
        """Return the evaluations over single test samples, where these are in this process."""
        federation, thresholds = repetitions.federation, self.settings.output.thresholds
        if not isinstance(federation, SimulatedFederation):
            return Evaluations()
        return evaluated(federation, wanted, personal, models, alone=alone, thresholds=thresholds)

    def _ledger(
        self,
        repetitions: Repetitions,
        outcomes: Mapping[str, Outcome],
        decisions: Decisions,
        progress: Progress,
    ) -> Ledger | None:
        """Return what each member gave, by training without it, where that was asked for."""
        method, federation = self.accounted, repetitions.federation
        if method is None or not isinstance(federation, SimulatedFederation):
            return None
        training, robust = self.settings.training, self._robust()
        own = {name: one for name, one in training.settings.items() if name == base_of(method)}
        wanted = Wanted((method,), own, training.personal)
        # An earlier run's models may have something of the member that is left out.
        repetitions = dataclasses.replace(repetitions, warm=None)
        # Where few samples choose a round by the metric, losses jump from one training to another.
        turns, found = [decisions.final, *left_out_in_turn(decisions.final)], []
        for k, groups in enumerate(turns):
            changed = Decisions(groups, groups, decisions.benefit)

            def observe(_: str, done: int, total: int, __: Outcome, k: int = k) -> None:
                progress("training", "without a member", k * total + done, len(turns) * total, "")

            trained = train_methods(
                wanted,
                repetitions,
                changed,
                lambda name, changed=changed: self._training_path(  # type: ignore[misc]
                    name, wanted, repetitions, changed, robust, "loss"
                ),
                (observe,),
                robust,
                training.early_stopping,
                "loss",
            )
            found.append(trained[method])
        personal = self._personal(repetitions, decisions)
        whole = torch.cat([one.best for name, one in outcomes.items() if not personal[name]])
        first = [group for group in decisions.final if group[0].repetition == 0]
        alike = redundant_members(federation, first, whole)
        gave = contributions(federation, decisions.final, found[0], found[1:], alike)
        return Ledger(method, tuple(gave))

    def _yardstick(self, repetitions: Repetitions) -> TreeYardstick:
        """Return the results of boosted trees that each participant trains alone."""
        seeds, metric = self.settings.training.seeds, repetitions.federation.task.metric
        key = self.store.key("training", ["trees alone", self.data.digest, self.data.task, seeds])
        kept = self.store.path("training", key, "trees-alone.safetensors")
        return trees_alone(self.engine, seeds, self.model.name, metric, kept)

    def _hand_over(
        self,
        folder: RunFolder,
        models: Sequence[ChosenModel],
        lost: Mapping[str, Failure],
        repetitions: Repetitions,
    ) -> None:
        """Write the participants' models, and what each of them has chosen."""
        write_models(folder.path, models, self.data.participants)
        told = candidate_words(self.wanted.with_bases, repetitions.federation)
        folder.log(f"every participant chose at home among: {told}")
        for participant, words in told_choices(models).items():
            folder.log(f"{participant}: keeps {words}")
        for participant, failure in lost.items():
            folder.log(f"{participant}: its model was not delivered ({failure.detail})")


def _warm(repetitions: Repetitions, begun: Mapping[str, StartedMember]) -> Tensor:
    """Return the initial models with those of an earlier run in their places."""
    rows = repetitions.initial.clone()
    for k, one in enumerate(repetitions.federation.participants):
        parameters = begun[one.name].parameters
        if parameters is not None:
            rows[k] = parameters.to(rows)
    return rows


def _check_known(estimate: BenefitEstimate) -> None:
    """Refuse an estimate in which nothing is known of any pair of participants.

    Raises
    ------
    FailedRunError
        A decision from it would look like an answer, and prove that nobody should collaborate.
    """
    names = estimate.participants
    if len(names) > 1 and len(names) - len(estimate.absent) < 2:
        raise FailedRunError(
            "benefit: the estimates failed, so there is nothing to decide by "
            f"({'; '.join(estimate.failures) or 'no silo answered'}). If losses are not finite, "
            "look at the data (`fedegoists data show`) and lower the learning rate; if silos did "
            "not answer, see their logs"
        )


def _validation(outcome: Outcome) -> str:
    """Return the mean validation metric of the last evaluation, as a remark."""
    values = [row for row in outcome.rows[-400:] if row.split == "validation"]
    if not values:
        return ""
    last = values[-1]
    own = [row.value for row in values if (row.round, row.metric) == (last.round, last.metric)]
    return f"{metric_words(last.metric)} {sum(own) / len(own):.3f}"


def _learned_files(benefit: LearnedBenefit) -> dict[str, bytes]:
    """Return the files about benefits that belong to a run.

    Nothing is learned between competitors, so weights of zero would reveal them.
    """
    learned = {"benefit.csv": benefit.graph.csv_bytes()}
    if benefit.estimate is not None:
        learned["weights.csv"] = benefit.estimate.weights_csv()
        if benefit.estimate.certain and benefit.estimate.values is None:
            learned["benefit_errors.csv"] = benefit.estimate.uncertain().csv_bytes()
    return learned

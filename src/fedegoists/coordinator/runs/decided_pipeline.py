"""Runs of the consortium pipeline with the coordinator's members, competition and decision."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fedegoists.consortium.consortium_settings import (
    BenefitSection,
    ConsortiumSettings,
    DataSection,
    OutputSection,
    TrainingSection,
)
from fedegoists.consortium.engine import Engine, SiloAccess, engine_named
from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.progress import SILENT, Progress
from fedegoists.coordinator.runs.run_orders import FILES, RunTask
from fedegoists.errors import SettingsError
from fedegoists.files import write_bytes
from fedegoists.graphs import BenefitGraph

if TYPE_CHECKING:
    from fedegoists.consortium import Consortium

SILOS = "silos.json"
"""File in the folder of a run: the silos' descriptions, to resume it while a silo is away."""

Result = TypeVar("Result")


def check(task: RunTask) -> None:
    """Refuse a run that would fail at its beginning, as far as it shows without asking silos."""
    if engine_named(task.engine).local:
        _over_silos(task, lambda _: None, SILENT)
    else:
        from fedegoists.training.repetitions import Wanted

        Wanted(task.plan.methods, task.plan.settings, task.plan.personal)


def learn(task: RunTask, progress: Progress) -> BenefitGraph:
    """Return the benefit graph, from the cache if it was learned before from the same data."""
    task.plan.check_among(task.competition)  # again: reports may have changed since it was asked
    return _over_silos(task, lambda pipeline: pipeline.learn_benefit(progress).graph, progress)


def train(task: RunTask, progress: Progress) -> None:
    """Train in the coalitions of the decision, from the last checkpoint if it was interrupted.

    The run's folder then holds ``report.html`` for the manager, and ``members/NAME.html`` and
    ``models/NAME.safetensors`` for one participant each, whose NAME is in `FILES`.
    """

    def work(pipeline: "Consortium") -> None:
        # A worker may be killed after the run's last file and before the record of its end.
        pipeline.run(task.name, resume=True, replace=True, progress=progress)

    _over_silos(task, work, progress)
    names = json.dumps(file_names(task.competition.participants), ensure_ascii=False)
    write_bytes(task.folder / task.name / FILES, names.encode(), private=True)


def _over_silos(
    task: RunTask, work: Callable[["Consortium"], Result], progress: Progress
) -> Result:
    kind, settings = engine_named(task.engine), settings_of(task)
    if not kind.local and task.kit is None:
        raise SettingsError(
            "the coordinator was started without --kit, so silos cannot be reached over FLARE; "
            "start it with the kit, then start a new run, which resumes the training"
        )
    access = SiloAccess(
        # Runs of two consortia may have the same name, and a silo may be in both.
        run=f"{task.folder.name}-{task.name}",
        kit=task.kit,
        participants=task.competition.participants,
        required=True,
        memory=task.folder / task.name / SILOS,
        patience=task.plan.patience,
        progress=progress,
    )

    def over(engine: Engine, _: bool) -> Result:
        from fedegoists.consortium import Consortium

        pipeline = Consortium(
            settings, engine, competition=task.competition, decision=task.formation
        )
        return work(pipeline)

    return kind.over_silos(settings, access, over, resume=task.begun)


def settings_of(task: RunTask) -> ConsortiumSettings:
    """Return the settings of the pipeline for a run."""
    plan = task.plan
    local = engine_named(task.engine).local
    source = plan.source_in(task.silos) if local else "members"
    return ConsortiumSettings(
        name=task.name,
        data=DataSection(source=source, options=plan.options, seed=plan.data_seed),
        benefit=BenefitSection(
            # Only while benefits are learned; afterwards the decision has them.
            estimator=plan.kept_apart if task.formation is None else plan.estimator,
            threshold=plan.threshold,
            repeats=plan.repeats,
            steps=plan.benefit_steps,
        ),
        # Without defaults: methods that nobody named are those that suit the model.
        training=TrainingSection(
            **plan.model_dump(include=set(TrainingSection.model_fields), exclude_defaults=True)
        ),
        output=OutputSection(folder=str(task.folder)),
    )

"""The consortium pipeline, with members, competition and decision as the coordinator has them."""

import json

from fedegoists.coalitions import Formation
from fedegoists.consortium.consortium_settings import (
    BenefitSection,
    ConsortiumSettings,
    DataSection,
    OutputSection,
    TrainingSection,
)
from fedegoists.consortium.engine import Engine
from fedegoists.consortium.file_names import file_names
from fedegoists.consortium.pipeline import Consortium, LearnedBenefit
from fedegoists.consortium.pipeline import Progress as PipelineProgress
from fedegoists.coordinator.runs.engines import FILES, Progress, Task
from fedegoists.files import write_bytes
from fedegoists.graphs import BenefitGraph

__all__ = ["check_over", "learn_over", "settings_of", "train_over"]


class _Decided(Consortium):
    """A consortium whose members and competition, and maybe decision, the coordinator knows."""

    def __init__(self, task: Task, settings: ConsortiumSettings, engine: Engine) -> None:
        super().__init__(settings, engine)
        self.competition = task.competition
        self._decision = task.formation

    def learn_benefit(self, progress: PipelineProgress | None = None) -> LearnedBenefit:
        if self._decision is None:
            return super().learn_benefit(progress)
        return LearnedBenefit(self._decision.benefit)

    def form(self, benefit: LearnedBenefit) -> Formation:
        return super().form(benefit) if self._decision is None else self._decision


def check_over(engine: Engine, task: Task, settings: ConsortiumSettings) -> None:
    """Refuse what a run would refuse at its beginning."""
    _Decided(task, settings, engine)


def learn_over(
    engine: Engine, task: Task, settings: ConsortiumSettings, progress: Progress
) -> BenefitGraph:
    """Return who benefits whom; what was learned before from the same is taken from there."""
    task.plan.check_among(task.competition)  # again: reports may have changed since it was asked
    return _Decided(task, settings, engine).learn_benefit(_shown(progress)).graph


def train_over(
    engine: Engine, task: Task, settings: ConsortiumSettings, progress: Progress
) -> None:
    """Train in the coalitions of the decision; what was trained before is gone on with."""
    consortium = _Decided(task, settings, engine)
    result = consortium.run(task.name, resume=True, progress=_shown(progress))
    names = json.dumps(file_names(task.participants), ensure_ascii=False)
    write_bytes(result.folder / FILES, names.encode(), private=True)


def _shown(progress: Progress) -> PipelineProgress:
    return lambda stage, what, done, total, remark: progress(
        f"{stage}: {what}", done, total, remark
    )


def settings_of(task: Task, data: DataSection) -> ConsortiumSettings:
    """Return what the pipeline needs to know of a plan."""
    plan = task.plan
    return ConsortiumSettings(
        name=task.name,
        data=data,
        benefit=BenefitSection(
            # Only while benefits are learned; afterwards the decision has them.
            estimator=plan.kept_apart if task.formation is None else plan.estimator,
            threshold=plan.threshold,
            repeats=plan.repeats,
            steps=plan.benefit_steps,
        ),
        training=TrainingSection(
            methods=plan.methods, seeds=plan.seeds, steps=plan.steps, device=plan.device
        ),
        output=OutputSection(folder=str(task.folder)),
    )

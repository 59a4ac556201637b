"""The engine that has all silos on the coordinator's own machine."""

from fedegoists.consortium.consortium_settings import ConsortiumSettings, DataSection
from fedegoists.consortium.engine import SimulatedEngine
from fedegoists.coordinator.runs.decided_pipeline import (
    check_over,
    learn_over,
    settings_of,
    train_over,
)
from fedegoists.coordinator.runs.engines import Progress, Task
from fedegoists.graphs import BenefitGraph

__all__ = ["check", "learn", "train"]


def check(task: Task) -> None:
    """Refuse data, methods or a device that are not here."""
    check_over(*_opened(task))


def learn(task: Task, progress: Progress) -> BenefitGraph:
    """Return who benefits whom."""
    return learn_over(*_opened(task), progress)


def train(task: Task, progress: Progress) -> None:
    """Train in the coalitions of the decision."""
    train_over(*_opened(task), progress)


def _opened(task: Task) -> tuple[SimulatedEngine, Task, ConsortiumSettings]:
    plan = task.plan
    data = DataSection(source=plan.source_in(task.silos), options=plan.options, seed=plan.data_seed)
    settings = settings_of(task, data)
    return SimulatedEngine(settings, task.participants), task, settings

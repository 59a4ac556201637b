"""The engine whose silos are at their organisations, reached over a deployment with FLARE.

The FLARE server is a process of its own, ``fedegoists deploy start coordinator``. Runs that have
begun wait for it if it is lost, and go on from their last checkpoint; silos that are lost are left
out until they are back.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from fedegoists.consortium.consortium_settings import ConsortiumSettings, DataSection
from fedegoists.consortium.engine import Engine
from fedegoists.coordinator.runs.decided_pipeline import learn_over, settings_of, train_over
from fedegoists.coordinator.runs.engines import Progress, Task
from fedegoists.deploy.flare_engine import FlareEngine, over_silos
from fedegoists.errors import FileError, SettingsError
from fedegoists.federation.flare.messages import About
from fedegoists.files import read_text, write_bytes
from fedegoists.graphs import BenefitGraph
from fedegoists.training.repetitions import Wanted

__all__ = ["check", "learn", "train"]

SILOS = "silos.json"
"""In the folder of a run: what silos said of themselves, for when it goes on with one away."""

Result = TypeVar("Result")
Work = Callable[[Engine, Task, ConsortiumSettings, Progress], Result]


def check(task: Task) -> None:
    """Refuse methods that there are not; what silos have, they say when the run begins."""
    Wanted(task.plan.methods)


def learn(task: Task, progress: Progress) -> BenefitGraph:
    """Return who benefits whom."""
    return _over(learn_over, task, progress)


def train(task: Task, progress: Progress) -> None:
    """Train in the coalitions of the decision."""
    _over(train_over, task, progress)


def _over(work: Work[Result], task: Task, progress: Progress) -> Result:
    if task.kit is None:
        raise SettingsError(
            "the coordinator was started without --kit, so silos cannot be reached over FLARE; "
            "start it with the kit, then start a new run, which goes on with what is trained"
        )
    kit = task.kit
    settings = settings_of(task, DataSection(source="members"))
    shown = _Shown(progress)

    def opened(known: Mapping[str, About]) -> FlareEngine:
        shown.waits("waits for the silos")
        engine = FlareEngine(
            settings,
            kit,
            # Runs of two consortia may be called the same, and a silo may be in both.
            run=f"{task.folder.name}-{task.name}",
            known={**_known(task), **known},
            participants=task.participants,
            tell=shown.remark,
        )
        if engine.absent:
            engine.close()
            raise SettingsError(
                f"the silo of {engine.absent[0]!r} does not answer; have it start its kit, or "
                "expel it and form coalitions again"
            )
        _keep(task, engine.about)
        return engine

    def do(engine: FlareEngine, _: bool) -> Result:
        return work(engine, task, settings, shown)

    return over_silos(opened, do, resume=task.begun, waits=shown.waits)


class _Shown:
    """Passes progress on, with what the deployment has to say beside it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage, self._done, self._total, self._waiting = "", 0, 0, False

    def __call__(
        self, stage: str, done: int, total: int, remark: str, *, waiting: bool = False
    ) -> None:
        self._stage, self._done, self._total, self._waiting = stage, done, total, waiting
        self._progress(stage, done, total, remark, waiting=waiting)

    def remark(self, text: str) -> None:
        """Tell something beside what goes on, such as that a silo is away."""
        self._progress(self._stage, self._done, self._total, text, waiting=self._waiting)

    def waits(self, why: str) -> None:
        """Tell that nothing goes on, and why."""
        self("waiting", self._done, self._total, why, waiting=True)


def _known(task: Task) -> dict[str, About]:
    path = task.folder / task.name / SILOS
    if not path.is_file():
        return {}
    try:
        return {
            name: About.model_validate(one) for name, one in json.loads(read_text(path)).items()
        }
    except (ValueError, ValidationError, AttributeError) as error:
        raise FileError(f"{path}: cannot be read ({type(error).__name__}); remove it") from None


def _keep(task: Task, about: Mapping[str, About]) -> None:
    path: Path = task.folder / task.name / SILOS
    content = {name: one.model_dump(mode="json") for name, one in about.items()}
    write_bytes(path, json.dumps(content, ensure_ascii=False).encode(), private=True)

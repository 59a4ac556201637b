"""The pipeline with the coordinator's decision: checks before it begins."""

import pytest

from fedegoists.benefit import ESTIMATOR_ENTRIES
from fedegoists.consortium.consortium_settings import TrainingSection
from fedegoists.consortium.progress import SILENT
from fedegoists.coordinator.coordinator_errors import ConflictError
from fedegoists.coordinator.runs import decided_pipeline
from fedegoists.coordinator.runs.run_orders import RunPlan, RunTask
from fedegoists.errors import SettingsError
from fedegoists.graphs import CompetitionGraph
from tests.coordinator.banks import BANKS

pytest.importorskip("torch", reason="runs need the extra train")

MINGLING = [name for name, entry in ESTIMATOR_ENTRIES.items() if entry.mingles]


def test_methods_are_checked_over_flare_too(tmp_path):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    names = tuple(BANKS[:2])

    def task(method):
        competition = CompetitionGraph([], names)
        plan = RunPlan(methods=(method,))
        folders = (tmp_path, "run-1", tmp_path / "silos")
        return RunTask(plan, "flare", competition, None, *folders)

    decided_pipeline.check(task("fedavg"))
    with pytest.raises(SettingsError, match="unknown method 'foo'"):
        decided_pipeline.check(task("foo"))


def test_a_run_that_would_show_competitors_each_others_data_is_refused_at_its_start_too(tmp_path):
    """Reports may have changed while it was queued, and what ``auto`` means must not tell."""
    names = tuple(BANKS[:3])

    def task(estimator, pairs):
        plan = RunPlan(source="banks", estimator=estimator)
        competition = CompetitionGraph(pairs, names)
        folders = (tmp_path, "run-1", tmp_path / "silos")
        return RunTask(plan, "flare", competition, None, *folders)

    for pairs in ([], [names[:2]]):
        settings = decided_pipeline.settings_of(task("auto", pairs))
        assert settings.benefit.estimator == "transfer"
    for estimator in MINGLING:
        with pytest.raises(ConflictError, match="also to competitors"):
            decided_pipeline.learn(task(estimator, [names[:2]]), SILENT)


def test_methods_that_nobody_named_are_left_to_the_model(tmp_path):
    task = RunTask(
        RunPlan(source="banks", model="trees"),
        "flare",
        CompetitionGraph([], tuple(BANKS[:3])),
        None,
        tmp_path,
        "run-1",
        tmp_path / "silos",
    )
    assert "methods" not in decided_pipeline.settings_of(task).training.model_fields_set


def test_a_plan_passes_all_training_settings_on(tmp_path):
    given = {
        "methods": ("fedprox", "fedegoists"),
        "settings": {"fedprox": {"mu": 0.1}},
        "personal": ("output.",),
        "seeds": 2,
        "steps": 7,
    }
    competition = CompetitionGraph([], ["a", "b"])
    folders = (tmp_path, "run-1", tmp_path / "silos")
    plan = RunPlan.model_validate_json(RunPlan(**given).model_dump_json())
    settings = decided_pipeline.settings_of(RunTask(plan, "flare", competition, None, *folders))
    assert settings.training == TrainingSection(**given)
    assert (settings.name, settings.output.folder) == ("run-1", str(tmp_path))

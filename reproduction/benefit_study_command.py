"""The command that compares benefit estimators with the measured truth."""

from typing import Annotated

import typer

from fedegoists.cli.benefit_commands import (
    BENEFIT_FILES,
    ClipOption,
    CompetitionOption,
    ConfidenceOption,
    DataOption,
    DeviceOption,
    EstimatorOption,
    LearningBars,
    LearnOption,
    NoiseOption,
    OutOption,
    RepeatsOption,
    SeedOption,
    SeedsOption,
    ThresholdOption,
    benefit_plan,
    show_benefits,
)
from fedegoists.cli.coalition_commands import ReplaceOption
from fedegoists.cli.live_progress import QuietOption
from fedegoists.cli.training_commands import DataDirOption, SetOption
from fedegoists.folder_swap import check_replaceable
from reproduction.benefit_study import study

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("benefit-study")(benefit_study_command)


def benefit_study_command(
    data: DataOption,
    out: OutOption,
    estimator: EstimatorOption = None,
    measure_repeats: Annotated[
        int, typer.Option(min=2, help="Independent measurements of the truth.")
    ] = 3,
    leave_one_out: Annotated[
        bool, typer.Option(help="Whether to train also all participants together and all but one.")
    ] = True,
    competition: CompetitionOption = None,
    threshold: ThresholdOption = None,
    confidence: ConfidenceOption = None,
    seed: SeedOption = 0,
    seeds: SeedsOption = 1,
    repeats: RepeatsOption = None,
    clip: ClipOption = None,
    noise: NoiseOption = 0.0,
    learn: LearnOption = None,
    settings: SetOption = None,
    device: DeviceOption = "cpu",
    data_dir: DataDirOption = None,
    replace: ReplaceOption = False,
    quiet: QuietOption = False,  # noqa: ARG001, its callback acts
    measure: Annotated[bool, typer.Option("--measure", hidden=True)] = True,  # noqa: ARG001
) -> None:
    """Learn as `fedegoists benefit` does, and compare with training alone and in pairs."""
    check_replaceable(out, BENEFIT_FILES, replace=replace)
    plan = benefit_plan(
        data=data,
        estimator=estimator,
        competition=competition,
        threshold=threshold,
        confidence=confidence,
        seed=seed,
        seeds=seeds,
        repeats=repeats,
        clip=clip,
        noise=noise,
        learn=learn,
        settings=settings,
        device=device,
    )
    with LearningBars.shown() as bars:
        found = study(
            plan,
            out,
            repeats=measure_repeats,
            leave_one_out=leave_one_out,
            data_dir=data_dir,
            progress=bars,
            replace=replace,
        )
    show_benefits(found.learned, out, "measured.csv")

"""The estimator of benefits that a run uses, and why."""

from dataclasses import dataclass
from typing import Any

from fedegoists.benefit.curves import answers_needed
from fedegoists.benefit.estimator_registry import CURVES, ESTIMATOR_ENTRIES
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.consortium.consortium_settings import BenefitSection, ConsortiumSettings
from fedegoists.consortium.engine import Engine
from fedegoists.errors import SettingsError
from fedegoists.learning.model_registry import DataShape, ModelKind
from fedegoists.training.defaults import kind_of, learn_settings


@dataclass(frozen=True)
class EstimatorChoice:
    """An estimator, or none where benefits are given, and the reason as a line of the log."""

    name: str | None
    reason: str


def chosen_estimator(
    settings: ConsortiumSettings, engine: Engine, model: str, kind: ModelKind, *, competition: bool
) -> EstimatorChoice:
    """Return the estimator of a run.

    Automatically it is ``curves`` where expected gains can decide, and silos tell what it needs.

    Parameters
    ----------
    model : str
        The name of the model that is trained.
    competition : bool
        Whether any two participants compete.
    """
    section = settings.benefit
    if section.estimator in ("everybody", "file"):
        return EstimatorChoice(None, "as set")
    if section.estimator != "auto":
        return EstimatorChoice(section.estimator, "as set")
    if kind != "network":
        return EstimatorChoice("transfer", "it needs no gradients, as this model has none")
    data = engine.data
    if kind_of(data) == "images" and not engine.local:
        return EstimatorChoice("transfer", "it takes few rounds of silos at organisations")
    by_pairs = section.model_fields_set & {"threshold", "confidence"}
    if by_pairs:
        return _of_pairs(
            data, model, f"benefit.{min(by_pairs)} is about single benefits", competition
        )
    if settings.formation.method != "best":
        needs = f"formation.method {settings.formation.method!r} needs a benefit graph"
        return _of_pairs(data, model, needs, competition)
    if section.clip is not None and not competition:
        return EstimatorChoice("hypernetwork", "benefit.clip is for its gradients")
    own = learn_settings(data, CURVES, model=model, **learning_changes(section))
    needed = answers_needed(own, len(data.participants))
    hindrance = engine.hindrance(needed, models=own.transfers)
    if hindrance:
        return EstimatorChoice("transfer", f"curves would need more: {hindrance}")
    return EstimatorChoice(CURVES, "it predicts gains in the units of the metric")


def _of_pairs(data: DataShape, model: str, reason: str, competition: bool) -> EstimatorChoice:
    """Return an estimator of single benefits, which keeps competitors apart where there are any."""
    usual = learn_settings(data, model=model).estimator
    if competition and ESTIMATOR_ENTRIES[usual].mingles:
        return EstimatorChoice("transfer", f"{reason}; {usual} would not keep competitors apart")
    return EstimatorChoice(usual, reason)


def learning_changes(section: BenefitSection) -> dict[str, Any]:
    """Return the settings of learning that the file has, other than the estimator and its steps."""
    names = {"repeats", "steps", "clip", "noise", "seed", "mingling", "transfers"}
    return {k: v for k, v in section.model_dump(include=names).items() if v is not None}


def check_answers(settings: LearnSettings, engine: Engine) -> None:
    """Refuse ``curves`` before it asks silos that add noise, or would stop half-way.

    With noise, each request draws samples of its own, so that no model would be judged on samples
    that it has not seen.

    Raises
    ------
    SettingsError
        With the reason, and what to change.
    """
    if settings.estimator != CURVES:
        return
    needed = answers_needed(settings, len(engine.data.participants))
    hindrance = engine.hindrance(needed, models=False)
    if hindrance:
        raise SettingsError(
            f"benefit.estimator: curves cannot be used here, since {hindrance}; set estimator = "
            '"transfer" or "everybody", or give the benefits in a file'
        )

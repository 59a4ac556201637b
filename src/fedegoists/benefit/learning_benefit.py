"""Learning a benefit graph: one function for all estimators."""

import secrets

from torch import Tensor

from fedegoists.benefit.estimate import BenefitEstimate, Matrix
from fedegoists.benefit.estimator import Inquiry, Learned, Progress
from fedegoists.benefit.estimator_registry import ESTIMATOR_ENTRIES
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.silo_queries import Apart, Pairs, SiloQueries, by_repetition
from fedegoists.errors import SettingsError
from fedegoists.federation import Federation, Repetition


def learn(
    federation: Federation,
    settings: LearnSettings | None = None,
    *,
    apart: Pairs = (),
    secret: str | None = None,
    progress: Progress | None = None,
) -> BenefitEstimate:
    """Learn the benefit graph of all participants of a federation.

    Parameters
    ----------
    federation : Federation
        The silos; they return losses and gradients (or, for two estimators, trained models).
    settings : LearnSettings, optional
        The estimator and how it learns.
    apart : collection of pairs of names
        Competitors: a model of one is never shown to the other, and no benefit between them is
        learned, since they cannot be in one coalition. Concerns only estimators that show silos
        models of others, see `fedegoists.benefit.estimator_registry`.
    secret : str, optional
        The secret from which the server draws decoys in place of competitors' models, see
        `fedegoists.benefit.decoys`: silos that knew it could find their competitors. Random if left
        out. To learn several times from the same silos, keep one; for simulated silos any will do.
        Estimates depend on it only by rounding.
    progress : callable, optional
        See `fedegoists.benefit.estimator.Progress`.
    """
    (estimate,) = learn_repetitions(
        federation, settings, apart={None: apart}, secret=secret, progress=progress
    ).values()
    return estimate


def learn_repetitions(
    federation: Federation,
    settings: LearnSettings | None = None,
    *,
    apart: Apart | None = None,
    secret: str | None = None,
    progress: Progress | None = None,
) -> dict[Repetition | None, BenefitEstimate]:
    """Learn the graphs of all repetitions at once, each with hypernetworks of its own.

    Parameters
    ----------
    apart : mapping of repetitions to pairs of names
        As for `learn`, for each repetition.
    secret : str, optional
        As for `learn`.
    """
    settings = settings or LearnSettings()
    groups = by_repetition(federation)
    queries = SiloQueries(federation, tuple(groups.values()))
    rivals = queries.among(apart or {})  # so that a wrong name is reported before anything trains
    check_mingling(settings, competition=bool(rivals.any()))
    hidden = secrets.token_hex() if secret is None else secret
    estimator = ESTIMATOR_ENTRIES[settings.estimator].load()
    report = progress or (lambda *_: None)
    learned = estimator(Inquiry(queries, settings, report, rivals, hidden))
    # Of participants that are not heard about their own validation data, nothing is known.
    present = learned.present & queries.answering()
    return {
        repetition: _estimate(queries, k, settings.estimator, learned, present[k])
        for k, repetition in enumerate(groups)
    }


def check_mingling(settings: LearnSettings, *, competition: bool) -> None:
    """Refuse to show competitors models of one another's data, unless that is allowed.

    Raises
    ------
    SettingsError
        With the reason, and the estimators that keep competitors apart.
    """
    if not competition or settings.mingling or not ESTIMATOR_ENTRIES[settings.estimator].mingles:
        return
    others = ", ".join(name for name, one in ESTIMATOR_ENTRIES.items() if not one.mingles)
    raise SettingsError(
        f"benefit.estimator: {settings.estimator} shows every participant models made from the "
        "gradients of all, competitors included; use one that keeps competitors apart "
        f"({others}), or allow it with benefit.mingling = true"
    )


def _estimate(
    queries: SiloQueries, repetition: int, estimator: str, learned: Learned, present: Tensor
) -> BenefitEstimate:
    names = tuple(one.name for one in queries.names[repetition])
    savings = learned.gains.mean((1, 2)) if learned.savings is None else learned.savings

    def matrix(rows: Tensor) -> Matrix:
        """From rows of targets to ``[source, target]``, with zeros for absent participants."""
        found: Matrix = (rows * present[:, None] * present).double().mT.contiguous().numpy()
        found[..., range(len(names)), range(len(names))] = 0.0
        return found

    return BenefitEstimate(
        names,
        estimator,
        matrix(learned.weights[repetition]),
        matrix(learned.gains[repetition]),
        matrix(savings[repetition]),
        {key: values[:, repetition].tolist() for key, values in learned.history.items()},
        queries.cost(repetition),
        queries.failures_in(repetition),
        tuple(name for name, here in zip(names, present.tolist(), strict=True) if not here),
        learned.values[repetition] if learned.values else None,
    )

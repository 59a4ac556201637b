"""Learning who benefits whom: one function, several estimators, one kind of result."""

import secrets

from torch import Tensor

from fedegoists.benefit.estimate import BenefitEstimate, Matrix
from fedegoists.benefit.learn_settings import LearnSettings
from fedegoists.benefit.local_estimators import alignment, local_models, transfer
from fedegoists.benefit.pareto_hypernetwork import Progress, learn_front
from fedegoists.benefit.preferences import learn_preferences, pair_gains, start_of
from fedegoists.benefit.silo_queries import Apart, Asking, Pairs, by_repetition
from fedegoists.federation import Federation, Repetition

__all__ = ["learn", "learn_repetitions"]


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
        learned, since they cannot be in one coalition. Concerns ``transfer``: the models of a
        hypernetwork are mixtures of everybody's, and ``alignment`` shows models to nobody.
    secret : str, optional
        What silos must not know, or they could tell who competes with them: from it the server
        draws what it shows them in place of competitors' models, see `fedegoists.benefit.decoys`.
        Drawn anew if left out. Whoever learns several times from the same silos keeps one; for
        simulated silos any will do. Estimates depend on it only by rounding.
    progress : callable, optional
        Called with what is being done, how much is done, how much there is, and the mean loss.
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
    names = tuple(groups.values())
    start_of(settings, len(names[0]))  # so that a wrong one is reported before anything is trained
    asking = Asking(federation, names)
    rivals = asking.among(apart or {})  # so that a wrong name is, too
    report = progress or (lambda *_: None)
    history: dict[str, Tensor] = {}
    if settings.estimator in ("alignment", "transfer"):
        models, starts, present = local_models(asking, settings, report)
        asking.count_anew()
        if settings.estimator == "alignment":
            weights, gains = alignment(models, starts)
            savings = gains.mean((1, 2))
        else:
            hidden = secrets.token_hex() if secret is None else secret
            weights, gains, savings = transfer(
                asking, models, starts, settings, report, rivals, hidden
            )
    else:
        front = learn_front(asking, settings, report)
        present = front.present
        asking.count_anew()
        history["training loss"] = front.losses
        if settings.estimator == "hypernetwork":
            rows, history["validation loss"] = learn_preferences(asking, front, settings, report)
            weights = rows.cpu()[:, :, None]
        # Where silos hide their losses, more than an equal share is the evidence left.
        gains = (
            pair_gains(asking, front, settings)
            if settings.clip is None
            else weights - 1 / len(names[0])
        )
        savings = gains.mean((1, 2))
        if settings.estimator == "pairs":
            weights = gains.clamp_min(0.0)
    # Of who is not heard about its own validation data, nothing is known.
    present = present & asking.answering()
    return {
        repetition: _estimate(
            asking, g, settings, (weights[g], gains[g], savings[g]), present[g], history
        )
        for g, repetition in enumerate(groups)
    }


def _estimate(
    asking: Asking,
    trial: int,
    settings: LearnSettings,
    learned: tuple[Tensor, Tensor, Tensor],
    present: Tensor,
    history: dict[str, Tensor],
) -> BenefitEstimate:
    names = tuple(one.name for one in asking.names[trial])
    matrices: list[Matrix] = []
    for rows in learned:
        matrix = (rows * present[:, None] * present).double().mT.contiguous().numpy()
        matrix[..., range(len(names)), range(len(names))] = 0.0
        matrices.append(matrix)
    return BenefitEstimate(
        names,
        settings.estimator,
        matrices[0],
        matrices[1],
        matrices[2],
        {key: values[:, trial].tolist() for key, values in history.items()},
        asking.cost(trial),
        asking.failures_in(trial),
        tuple(name for name, here in zip(names, present.tolist(), strict=True) if not here),
    )

"""One round of training in the silos, for all methods: requests, models after it, and means."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedegoists.federation.mixing import Sum, replaced_rows
from fedegoists.federation.participant import Participant
from fedegoists.federation.requests import (
    EVERYTHING,
    Keep,
    LocalTerms,
    Personal,
    Train,
    TrainSettings,
)
from fedegoists.federation.seam import Failure, Federation, sorted_out
from fedegoists.methods.method import Coalitions, Method, RoundReport, State, in_company


@dataclass(frozen=True)
class LocalModels:
    """The models of all participants after local training.

    Attributes
    ----------
    rows : Tensor
        One model per participant; participants that failed or were not asked keep their rows.
    anchors : Tensor
        The anchors of the local terms, in the same way, where they moved.
    momentum : Tensor, optional
        The momenta at the end, where they were given; zeros for participants that failed.
    samples : dict
        The training samples of the participants that answered.
    report : RoundReport
        Without traffic, which depends on the method.
    shifts : dict
        The shifts of representations, where they moved.
    """

    rows: Tensor
    anchors: Tensor
    samples: dict[Participant, float]
    report: RoundReport
    momentum: Tensor | None = None
    shifts: Mapping[Participant, Tensor] = field(default_factory=dict)


def train_silos(
    method: Method,
    federation: Federation,
    state: State,
    seed: int,
    *,
    names: Sequence[Participant] | None = None,
    rows: Tensor | None = None,
    settings: TrainSettings | None = None,
    terms: Mapping[Participant, LocalTerms] | None = None,
    momentum: Tensor | None = None,
    first_step: int | None = None,
) -> LocalModels:
    """Have silos train for a round, each from its row.

    Parameters
    ----------
    names : sequence of Participant
        The participants that train; all if left out.
    rows : Tensor
        The parameters to start from; the state's models if left out.
    settings : TrainSettings
        Those of the method if left out.
    terms : mapping of Participant to LocalTerms
        The terms added to each silo's loss.
    momentum : Tensor, optional
        The momenta to start with, instead of terms; zero if left out.
    first_step : int
        Which step of the learning rate's schedule the round begins with; the steps of all rounds
        before it if left out.
    """
    participants = federation.participants
    names = participants if names is None else names
    rows = state.parameters if rows is None else rows
    requests = _requests(
        method, federation, state, seed, names, rows, settings, terms, momentum, first_step
    )
    replies, failures = sorted_out(federation.call(requests))

    def returned(before: Tensor, values: Mapping[Participant, Tensor | None]) -> Tensor:
        return replaced(method, federation, before, values)

    momenta = {name: reply.momentum for name, reply in replies.items()}
    return LocalModels(
        returned(rows, {name: reply.parameters for name, reply in replies.items()}),
        returned(rows, {name: reply.anchor for name, reply in replies.items()}),
        {name: float(reply.samples) for name, reply in replies.items()},
        RoundReport(
            {name: reply.loss for name, reply in replies.items()},
            failures,
            {name: reply.sample_passes for name, reply in replies.items()},
        ),
        None if momentum is None else returned(torch.zeros_like(rows), momenta),
        {name: reply.shift for name, reply in replies.items() if reply.shift is not None},
    )


def _requests(
    method: Method,
    federation: Federation,
    state: State,
    seed: int,
    names: Sequence[Participant],
    rows: Tensor,
    settings: TrainSettings | None,
    terms: Mapping[Participant, LocalTerms] | None,
    momentum: Tensor | None,
    first_step: int | None,
    slot: str | None = None,
    keeps_momentum: bool = True,
) -> dict[Participant, Train]:
    """Return the requests of a round; see `train_silos`."""
    settings = method.settings if settings is None else settings
    position = {name: k for k, name in enumerate(federation.participants)}
    starts = rows.unbind()
    if momentum is not None:
        speeds = momentum.unbind()
        terms = {name: LocalTerms(momentum=speeds[position[name]]) for name in names}
    keeps_momentum = keeps_momentum and momentum is not None
    personal = personal_parts(method, names, keeps_momentum=keeps_momentum, slot=slot)
    return {
        name: Train(
            parameters=starts[position[name]],
            settings=settings,
            terms=None if terms is None else terms[name],
            seed=f"{seed}/{state.round}",
            first_step=state.round * settings.steps if first_step is None else first_step,
            personal=personal[name],
        )
        for name in names
    }


@dataclass(frozen=True)
class MixedModels:
    """The models of all participants after a round of `mix_silos`.

    Attributes
    ----------
    rows : Tensor
        One model per participant: the mean it receives; its own after training where it receives
        none. The rows of participants whose models stay at home do not change.
    trained : Tensor
        The models after training, as far as the server sees them.
    momentum, trained_momentum : Tensor, optional
        The same for momenta, where they are given.
    received : Tensor
        A column of bool: participants whose row of `rows` is a mean.
    samples : dict
        The training samples of the participants that answered.
    report : RoundReport
        Without traffic, which depends on the method.
    norms : mapping of Participant to float
        Norms of updates, where sums have bounds.
    """

    rows: Tensor
    trained: Tensor
    received: Tensor
    samples: dict[Participant, float]
    report: RoundReport
    norms: Mapping[Participant, float]
    momentum: Tensor | None = None
    trained_momentum: Tensor | None = None


def mix_silos(
    method: Method,
    federation: Federation,
    state: State,
    seed: int,
    sums: Sequence[Sum],
    *,
    names: Sequence[Participant] | None = None,
    rows: Tensor | None = None,
    settings: TrainSettings | None = None,
    terms: Mapping[Participant, LocalTerms] | None = None,
    momentum: Tensor | None = None,
    first_step: int | None = None,
    slot: str | None = None,
    keeps_momentum: bool = True,
) -> MixedModels:
    """Have silos train for a round, each from its row, and return means of their models.

    Parameters are those of `train_silos`. Methods that can do with means use this function: then a
    deployed federation can hide the models of single participants from the server.

    Parameters
    ----------
    sums : sequence of Sum
        The means; `coalition_sums` has those of FedAvg.
    slot : str, optional
        Where silos keep the personal parameters of these models, if not in the method's own slot.
    keeps_momentum : bool
        Whether models that stay in their silos continue with the momentum of their last round,
        instead of the one that is given.
    """
    participants = federation.participants
    names = participants if names is None else names
    rows = state.parameters if rows is None else rows
    mixed = federation.mix(
        _requests(
            method,
            federation,
            state,
            seed,
            names,
            rows,
            settings,
            terms,
            momentum,
            first_step,
            slot,
            keeps_momentum,
        ),
        sums,
    )
    position = {name: k for k, name in enumerate(participants)}
    where = [position[name] for name in mixed.names]

    def placed(before: Tensor, values: Tensor) -> Tensor:
        if where == list(range(len(before))):
            return values
        return before.index_copy(0, torch.tensor(where, device=before.device), values)

    speeds = None if momentum is None else torch.zeros_like(rows)
    shown = mixed.received - mixed.at_home
    return MixedModels(
        placed(rows, mixed.means["parameters"]),
        placed(rows, mixed.trained["parameters"]),
        torch.tensor([[name in shown] for name in participants], device=rows.device),
        {name: float(federation.samples(name)) for name in mixed.losses},
        RoundReport(mixed.losses, mixed.failures, mixed.sample_passes, uploaded=mixed.uploaded),
        mixed.norms,
        None if speeds is None else placed(speeds, mixed.means["momentum"]),
        None if speeds is None else placed(speeds, mixed.trained["momentum"]),
    )


def coalition_sums(
    federation: Federation,
    coalitions: Coalitions,
    weights: Mapping[Participant, float] | None = None,
) -> list[Sum]:
    """Return one mean for each coalition of several members, which all of them receive.

    Parameters
    ----------
    weights : mapping of Participant to float, optional
        Training samples if left out.
    """
    in_company(coalitions, federation.participants)
    return [
        Sum(
            tuple(group),
            {
                name: float(federation.samples(name) if weights is None else weights[name])
                for name in group
            },
            tuple(group),
        )
        for group in coalitions
        if len(group) > 1
    ]


def replaced(
    method: Method,
    federation: Federation,
    rows: Tensor,
    given: Mapping[Participant, Tensor | None],
) -> Tensor:
    """Return the models of all participants with those that silos gave, as far as they tell them.

    A model that stays in its silo is zeros in the reply: its row is as before.
    """
    told = {
        name: own for name, own in given.items() if own is not None and name not in method.at_home
    }
    which = [name in told for name in federation.participants]
    withheld = federation.schema.mask(method.personal) if method.personal else None
    others = [told[name] for name in federation.participants if name in told]
    return replaced_rows(rows, which, others, withheld)


def personal_parts(
    method: Method,
    names: Iterable[Participant],
    *,
    keeps_momentum: bool = False,
    slot: str | None = None,
) -> dict[Participant, Personal | None]:
    """Return what a method's requests say about parameters that stay in the silos.

    Parameters
    ----------
    keeps_momentum : bool
        Whether silos that keep their whole models keep the momenta, too.
    slot : str, optional
        The method's own slot if left out.
    """
    slot = method.name if slot is None else slot
    home, own = set(method.at_home), personal_part(method, slot)
    whole = Personal(
        prefixes=EVERYTHING,
        slot=slot,
        momentum_slot=momentum_slot(slot) if keeps_momentum else None,
        unmixed=method.personal,
    )
    return {name: whole if name in home else own for name in names}


def personal_part(method: Method, slot: str | None = None) -> Personal | None:
    """Return the same for participants whose models do not stay at home."""
    if not method.personal:
        return None
    return Personal(prefixes=method.personal, slot=method.name if slot is None else slot)


def momentum_slot(slot: str) -> str:
    """Return the slot of the momentum of models that stay in their silos."""
    return f"{slot}/momentum"


def emptied(method: Method, federation: Federation, slots: Iterable[str]) -> RoundReport:
    """Have silos that keep their whole models empty some slots, such as that of the momentum."""
    failures: tuple[Failure, ...] = ()
    for slot in slots if method.at_home else ():
        failures += sorted_out(federation.call(dict.fromkeys(method.at_home, Keep(slot=slot))))[1]
    return RoundReport(failures=failures)

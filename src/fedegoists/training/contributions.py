"""What each member gives to the others: the same training without it, and a ledger of costs.

The whole training is repeated without each member in turn, with the same batches. What a member
gave is how much higher the others' losses are without it. Only the others' samples count, so nobody
can raise what it gave by its own. In these trainings the loss of their validation data decides
which round's models members keep: where few samples choose by a metric, another training may end at
quite another round, and losses jump.

Contributions in single rounds would cost less, but mislead where members differ: in every round a
member's own update lowers its own loss, and the others' updates take that back, so that over many
rounds the others seem to have given far less than nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedegoists.errors import SettingsError
from fedegoists.federation import Participant, SimulatedFederation
from fedegoists.files import csv_bytes
from fedegoists.learning.data import Split
from fedegoists.learning.estimates import (
    CONFIDENCE,
    Estimate,
    Groups,
    Interval,
    Numbers,
    mean_variance,
)
from fedegoists.methods import Outcome
from fedegoists.methods.method_registry import METHOD_ENTRIES, base_of

COLUMNS = (
    "participant",
    "coalition",
    "gave",
    "low",
    "high",
    "share_of_costs",
    "redundant_with",
    "left_out",
)
HELD_OUT: tuple[Split, ...] = ("validation", "test")

Group = tuple[Participant, ...]
Losses = dict[Participant, tuple[Numbers, Groups]]
"""Losses of held-out samples, and the group of each, such as its patient."""


@dataclass(frozen=True)
class Contribution:
    """What a member gave to the others of its coalition.

    Attributes
    ----------
    coalition : tuple of str
        All members.
    gave : Interval
        How much higher the loss on held-out samples is without it, added over the other members.
        The interval is over samples and, with several, repetitions; those of all members of the
        coalition hold together with a confidence of 95 % (Bonferroni), so that more members bring
        no more false alarms. NaN where no other member has a result with and without it.
    share_of_costs : float
        A proposal, see `cost_shares`.
    redundant_with : tuple of str
        Members whose samples are the same as its own, or nearly so; see `redundant_members`. It is
        not known who had them first. Without one of them the other is still there, so that neither
        seems to give much.
    left_out : tuple of str
        Other members that have no result with or without it, and do not count.
    """

    participant: str
    coalition: tuple[str, ...]
    gave: Interval
    share_of_costs: float
    redundant_with: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def gave_nothing(self) -> bool:
        """Whether what it gave is known, and clearly not positive."""
        return self.gave.high <= 0


@dataclass(frozen=True)
class Ledger:
    """The contributions of all members of coalitions, for sharing costs.

    Attributes
    ----------
    method : str
        The method that trained.
    contributions : tuple of Contribution
        One for each member of a coalition of two or more.
    """

    method: str
    contributions: tuple[Contribution, ...]

    def about(self, participant: str) -> Contribution | None:
        """Return the contribution of a participant; None if it trains alone."""
        return next((one for one in self.contributions if one.participant == participant), None)

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about members that gave nothing, and about members with the same samples."""
        told = [
            f"{one.participant}: the others are not worse off without it (it gave "
            f"{one.gave.value:.3g}, 95 % interval {one.gave.low:.3g} to {one.gave.high:.3g})"
            for one in self.contributions
            if one.gave_nothing
        ]
        alike = dict.fromkeys(
            tuple(sorted((one.participant, other)))
            for one in self.contributions
            for other in one.redundant_with
        )
        return (
            *told,
            *self._crowded,
            *(
                f"{' and '.join(pair)}: their samples are the same, or nearly so; it is not known "
                "who had them first"
                for pair in alike
            ),
        )

    @property
    def _crowded(self) -> list[str]:
        """A warning for each coalition with several members that gave nothing.

        One bad member is named by itself, as a rule. Many are named where data differ, or where
        the chance of a single training decides.
        """
        named = Counter(one.coalition for one in self.contributions if one.gave_nothing)
        return [
            f"{count} of the {len(coalition)} members of one coalition are named. Then data that "
            "differ, or the chance of a single training, are a likelier reason than bad behaviour: "
            "see first whether this coalition gains at all, and repeat with several training.seeds"
            for coalition, count in named.items()
            if count > 1
        ]

    def csv(self) -> bytes:
        """Return a ``ledger.csv``; lists of members are joined by ``;``."""
        rows = []
        for one in self.contributions:
            numbers = (one.gave.value, one.gave.low, one.gave.high, one.share_of_costs)
            told = (f"{number:.6g}" for number in numbers)
            lists = (";".join(names) for names in (one.redundant_with, one.left_out))
            rows.append((one.participant, ";".join(one.coalition), *told, *lists))
        return csv_bytes(COLUMNS, rows)


def accounted_among(methods: Sequence[str], personal: Sequence[str] | None, *, split: bool) -> str:
    """Return the first method whose contributions are measured, such as ``fedavg+ft``.

    Parameters
    ----------
    personal : sequence of str, optional
        Prefixes of parameters that every method keeps in the silos.
    split : bool
        Whether some methods keep the output layer there by themselves, as in a classification.

    Raises
    ------
    SettingsError
        If there is none.
    """
    for name in methods:
        entry = METHOD_ENTRIES[base_of(name)]
        own = split and entry.personal_output and personal is None
        if entry.coalitions != "alone" and not (personal or entry.splits or own):
            return name
    raise SettingsError(
        "contributions are measured with a method that trains whole models in coalitions, and "
        f"{', '.join(methods)}{' with personal parameters' if personal else ''} has none: add "
        "fedavg to the methods, or bagging for trees, and set no personal parameters"
    )


def left_out_in_turn(groups: Sequence[Group]) -> list[list[Group]]:
    """Return coalitions without their first members, without their second members, and so on.

    Members that are left out train alone. Each list has the members of all coalitions.

    Examples
    --------
    >>> a, b, c = (Participant(name) for name in "abc")
    >>> [[len(group) for group in groups] for groups in left_out_in_turn([(a, b), (c,)])]
    [[1, 1, 1], [1, 1, 1]]
    """
    most = max(map(len, groups), default=0)
    found = []
    for k in range(most if most > 1 else 0):
        without = [group for group in groups if not 1 < len(group) > k]
        for group in groups:
            if 1 < len(group) > k:
                without += [group[:k] + group[k + 1 :], (group[k],)]
        found.append(without)
    return found


def contributions(
    federation: SimulatedFederation,
    groups: Sequence[Group],
    trained: Outcome,
    without: Sequence[Outcome],
    redundant: Mapping[str, tuple[str, ...]] | None = None,
) -> list[Contribution]:
    """Return the contributions of all members of coalitions of two or more.

    Parameters
    ----------
    groups : sequence of Group
        The coalitions of all repetitions. The same names in several repetitions belong together.
    trained : Outcome
        Of the training in these coalitions.
    without : sequence of Outcome
        Of the trainings in the coalitions of `left_out_in_turn`.
    redundant : mapping, optional
        The result of `redundant_members`.
    """
    together: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        if len(group) > 1:
            together.setdefault(tuple(one.name for one in group), []).append(group)
    members = {one for group in groups if len(group) > 1 for one in group}
    whole = _losses(federation, trained, members)
    parts = [_losses(federation, outcome, members) for outcome in without]
    found: list[Contribution] = []
    for names, own in together.items():
        gave, missing = [], []
        for k in range(len(names)):
            known = {
                names[i]: _given(
                    [
                        (whole[g[i]], parts[k][g[i]])
                        for g in own
                        if g[i] in whole and g[i] in parts[k]
                    ]
                )
                for i in range(len(names))
                if i != k
            }
            estimates = [one for one in known.values() if one is not None]
            gave.append(_summed(estimates, len(names)))
            missing.append(tuple(name for name, one in known.items() if one is None))
        shares = cost_shares(np.array([one.value for one in gave]))
        found += [
            Contribution(name, names, gave[k], float(shares[k]), (redundant or {}).get(name, ()),
                         missing[k])
            for k, name in enumerate(names)
        ]  # fmt: skip
    return found


def _losses(federation: SimulatedFederation, outcome: Outcome, members: set[Participant]) -> Losses:
    """Return the losses of the models that members keep; nothing for those without one."""
    found: Losses = {}
    for k, one in enumerate(federation.participants):
        if one not in members or outcome.best_score[k][0] == -math.inf:
            continue
        losses: list[Numbers] = []
        groups: list[Groups] = []
        for split in HELD_OUT:
            outputs, targets = federation.outputs(one, outcome.best[k], split)
            each = federation.task.losses(outputs.cpu(), targets.cpu()).double()
            losses.append(each.reshape(len(targets), -1).mean(1).numpy())
            # Groups such as patients are in one split only.
            own = federation.groups(one, split)
            known = np.arange(len(targets)) if own is None else np.asarray(own)
            first = 0 if not groups else int(groups[-1].max(initial=-1)) + 1
            groups.append(np.unique(known, return_inverse=True)[1] + first)
        values = np.concatenate(losses)
        if len(values) and np.isfinite(values).all():
            found[one] = values, np.concatenate(groups)
    return found


def _given(
    pairs: Sequence[tuple[tuple[Numbers, Groups], tuple[Numbers, Groups]]],
) -> Estimate | None:
    """Return what a receiver was given: its losses without minus with, over its repetitions."""
    if not pairs:
        return None
    rows = [without - whole for (whole, _), (without, _) in pairs]
    alike = all(len(row) == len(rows[0]) for row in rows)
    means = np.array([row.mean() for row in rows])
    parts = [mean_variance(np.mean(rows, 0), pairs[0][0][1])] if alike else []
    if len(means) > 1:
        parts.append(mean_variance(means))
    return Estimate.summed(float(means.mean()), parts)


def _summed(estimates: Sequence[Estimate], members: int) -> Interval:
    """Return the sum of independent estimates with one of the intervals of all members."""
    confidence = 1 - (1 - CONFIDENCE) / members
    count, mean = len(estimates), Estimate.mean_of(estimates).interval(confidence)
    return Interval(count * mean.value, count * mean.low, count * mean.high)


def cost_shares(gave: Numbers) -> Numbers:
    """Return shares of a coalition's costs: members that give more pay less.

    A member pays (1 − its fraction of all that was given) / (members − 1). One that gave nothing,
    or less, pays 1 / (members − 1), and one that gave everything pays nothing. Where nobody gave
    anything, all pay alike. Where what somebody gave is not known (NaN), no share is known. What a
    member receives does not count, since its own samples would tell that, and so it could choose
    what it pays.

    Examples
    --------
    >>> cost_shares(np.array([3.0, 1.0, -2.0])).tolist()
    [0.125, 0.375, 0.5]
    """
    if np.isnan(gave).any():
        return np.full(len(gave), np.nan)
    positive = np.maximum(gave, 0)
    if not positive.sum():
        return np.full(len(gave), 1 / len(gave))
    return np.asarray((1 - positive / positive.sum()) / (len(gave) - 1))

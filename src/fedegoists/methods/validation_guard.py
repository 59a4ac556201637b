"""The validation guard: finds the member whose updates harm the others, and leaves it out.

It judges a member only by what happens to the validation losses of the others, so it works with any
method, and where only sums of updates are seen. After every evaluation it looks whether losses
exploded, and a few times in a run it audits all members. In both cases it repeats rounds from a
good state, with all members and without each of them. A member without which most of the others
are clearly better off, in two trials, is left out from then on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedegoists.federation.participant import Participant
from fedegoists.federation.robust_sums import LEAST_MEMBERS, BoundedSilos, RobustSettings
from fedegoists.methods.leave_out_trials import Losses, Snapshot, Trials, Watched, rise
from fedegoists.methods.method import Coalitions, Method
from fedegoists.methods.outcome import Finding, FindingKind, Outcome

JUMP = math.log(1.5)
"""A loss that rises by more between two evaluations raises the alarm at its member."""

FAR = math.log(3.0)
"""So does a loss that is further above the member's best one."""

# One round without a member tells little, but costs little; only the member that stands out in it
# is judged, by a trial of several rounds. In measurements with one rule and small differences
# between members, the harm of honest members in the longer trial was at most 0.047, and that of a
# member with flipped labels 0.095 and more.
OUTSTANDING = 0.01, 2.0
"""Harm, in logarithms of losses, of a member that is tried again, and how many times the second."""

HARMFUL = 0.06, 3.0
"""The same in a longer trial of a member that is left out."""

SHORTEST_TRIAL, LONGEST_TRIAL = 3, 10
"""Rounds of the longer trial, otherwise a twentieth of all."""

MOST_AUDITS = 10
MOST_UNEXPLAINED = 3
"""After so many rollbacks for which no member was found, a run goes on whatever happens."""


@dataclass(frozen=True)
class Verdict:
    """The guard's conclusion from an evaluation.

    Attributes
    ----------
    outcome : Outcome
        The outcome to go on with: the present one or, after a rollback, the last good one.
    restart : bool
        Whether to begin again without the members that are left out, because an audit found that
        one has harmed the others for some time.
    """

    outcome: Outcome
    restart: bool = False


@dataclass(frozen=True)
class Effect:
    """The effect of leaving a member out.

    Attributes
    ----------
    restores : bool
        Whether the others' validation losses do not explode in any round without it.
    harm : float
        How much lower they are, in logarithms.
    """

    restores: bool
    harm: float

    @property
    def order(self) -> tuple[bool, float]:
        """What members are ordered by: those that restore the losses, then those that harm."""
        return self.restores, self.harm


class ValidationGuard:
    """Watches over the coalitions of a run; used between its rounds.

    Parameters
    ----------
    method, silos, coalitions, seed : as in `fedegoists.methods.run`
        What is trained.
    settings : RobustSettings
        How much audits may cost.
    rounds, every : int
        Rounds in all, and rounds between evaluations.
    """

    def __init__(
        self,
        method: Method,
        silos: BoundedSilos,
        coalitions: Coalitions,
        settings: RobustSettings,
        *,
        rounds: int,
        every: int,
        seed: int,
    ) -> None:
        self._method, self._silos, self._coalitions = method, silos, coalitions
        self._seed, self._every = seed, every
        groups: dict[tuple[str, ...], list[tuple[Participant, ...]]] = {}
        for group in coalitions:
            names = tuple(sorted(one.name for one in group))
            groups.setdefault(names, []).append(tuple(group))
        self._all = [Watched(names, tuple(own)) for names, own in groups.items()]
        largest = max((len(one.names) for one in self._all), default=0)
        self._longer = min(max(SHORTEST_TRIAL, rounds // 20), LONGEST_TRIAL)
        self._audits = audit_rounds(settings.audit, rounds, largest + 1 + self._longer)
        self.good: Snapshot | None = None

    def left_out(self, outcome: Outcome) -> frozenset[Participant]:
        """Return the participants whose updates are not used any more."""
        return frozenset(
            one
            for finding in outcome.findings
            if finding.kind == "left out"
            for each in self._all
            for one in each.of(finding.participant)
        )

    def keep(self, outcome: Outcome) -> None:
        """Take the present state as good."""
        self.good = Snapshot(outcome.copy(), self._silos.memory(self._method.name))

    def judged(self, outcome: Outcome) -> Verdict:
        """Judge an evaluation that was just made: keep its state, or go back to the last good one.

        The silos' memory is then the one of the outcome to go on with.
        """
        watched = self._watched(outcome)
        alarmed = [one for one in watched if _rose(one, outcome, _last_losses(outcome))]
        if alarmed:
            return self._after_alarm(outcome, alarmed)
        self.keep(outcome)
        if watched and self._audit_due(outcome.state.round):
            found, _ = self._search(watched, outcome, length=1)
            outcome.findings += found
            if any(one.kind == "left out" for one in found):
                return Verdict(outcome, restart=True)
            self._restore()
            self.keep(outcome)  # with what was found and spent
        return Verdict(outcome)

    def _watched(self, outcome: Outcome) -> list[Watched]:
        """Return the coalitions that have enough members besides those left out."""
        gone = {one.name for one in self.left_out(outcome)}
        found = [
            Watched(tuple(name for name in one.names if name not in gone), one.groups)
            for one in self._all
        ]
        return [one for one in found if len(one.names) >= self._least(one)]

    def _least(self, watched: Watched) -> int:
        """Return how many members a trial needs: without one, sums must still hide the others."""
        masked = any(self._silos.masks(group) for group in watched.groups)
        return LEAST_MEMBERS + 1 if masked else LEAST_MEMBERS

    def _audit_due(self, number: int) -> bool:
        return any(number - self._every < one <= number for one in self._audits)

    def _restore(self) -> None:
        assert self.good is not None
        self._silos.restore(self._method.name, self.good.memory)

    def _after_alarm(self, outcome: Outcome, alarmed: Sequence[Watched]) -> Verdict:
        """Look for the member after whose update losses exploded; go back if it is found."""
        assert self.good is not None
        number, good = outcome.state.round, self.good.outcome
        now = self._silos.memory(self._method.name)
        length = min(number - good.state.round, SHORTEST_TRIAL)
        found, again = self._search(alarmed, outcome, length=length)
        back_again = any(one.kind == "left out" for one in found)
        earlier = sum(one.kind == "rolled back" for one in outcome.findings)
        if not back_again and not again and earlier < MOST_UNEXPLAINED:
            detail = "validation losses rose at most members, but not when the round was repeated"
            found.append(Finding(number, "", "rolled back", detail))
            back_again = True
        if back_again:
            outcome.findings += found
            audited = any(one <= good.state.round for one in self._audits)
            if self._audits and not audited and found[-1].kind == "left out":
                # It may have harmed the others from the beginning.
                return Verdict(outcome, restart=True)
            self._restore()
            back = _rolled_back(good, outcome)
            self.keep(back)
            return Verdict(back)
        detail = "validation losses rose at most members, with or without any single one of them"
        outcome.findings += [*found, Finding(number, "", "unexplained", detail)]
        self._silos.restore(self._method.name, now)
        self.keep(outcome)
        return Verdict(outcome)

    def _search(
        self, watched: Sequence[Watched], outcome: Outcome, *, length: int
    ) -> tuple[list[Finding], bool]:
        """Return what trials find out about members, and whether losses exploded in them again."""
        assert self.good is not None
        trials = Trials(
            self._method,
            self._silos,
            self._coalitions,
            self.good,
            watched,
            outcome,
            gone=self.left_out(outcome),
            seed=self._seed,
        )
        control, exploded = self._control(trials, watched, length)
        effects: list[dict[str, Effect]] = [{} for _ in watched]
        for k in range(max(len(one.names) for one in watched)):
            suspects = {i: one.names[k] for i, one in enumerate(watched) if k < len(one.names)}
            for i, effect in self._effects(trials, watched, suspects, control, length).items():
                effects[i][suspects[i]] = effect
        ranked = [sorted(own, key=lambda name: own[name].order, reverse=True) for own in effects]
        tried = [
            i
            for i, (own, names) in enumerate(zip(effects, ranked, strict=True))
            if _stands_out(own[names[0]], own[names[1]], OUTSTANDING, exploded=exploded[i])
        ]
        if not tried:
            return [], any(exploded)
        longer = max(length, self._longer)
        control, still = self._control(trials, watched, longer)
        worst, second = (
            self._effects(trials, watched, {i: ranked[i][k] for i in tried}, control, longer)
            for k in (0, 1)
        )
        findings = []
        for i in tried:
            if worst[i].harm > HARMFUL[0]:
                clear = _stands_out(worst[i], second[i], HARMFUL, exploded=still[i])
                kind: FindingKind = "left out" if clear else "suspected"
                detail = (
                    "most others' validation losses were "
                    f"{-100 * math.expm1(-worst[i].harm):.0f} % lower after {longer} rounds "
                    "without it"
                )
                findings.append(Finding(outcome.state.round, ranked[i][0], kind, detail))
        return findings, any(exploded)

    def _control(
        self, trials: Trials, watched: Sequence[Watched], length: int
    ) -> tuple[Losses, list[bool]]:
        """Return losses of a trial with all members, and in which coalitions they exploded."""
        assert self.good is not None
        losses = trials.run((), length)
        exploded = [_rose(one, self.good.outcome, losses.highest, now=True) for one in watched]
        return losses.last, exploded

    def _effects(
        self,
        trials: Trials,
        watched: Sequence[Watched],
        suspects: Mapping[int, str],
        control: Losses,
        length: int,
    ) -> dict[int, Effect]:
        """Return the effect of leaving out one member of each of some coalitions, in one trial."""
        assert self.good is not None
        gone = [one for i, name in suspects.items() for one in watched[i].of(name)]
        losses = trials.run(gone, length)
        found = {}
        for i, suspect in suspects.items():
            one = watched[i]
            voters = Watched(tuple(name for name in one.names if name != suspect), one.groups)
            risen = _risen(voters, self.good.outcome, losses.highest, now=True)
            # One voice may be a liar's. Two of four are no chance: the harmful member is there.
            restores = sum(risen) <= 1 and 2 * sum(risen) <= len(risen)
            found[i] = Effect(restores, trials.harm(suspect, one, control, losses.last))
        return found


def _stands_out(
    worst: Effect, second: Effect, limits: tuple[float, float], *, exploded: bool
) -> bool:
    """Return whether one member, and no other, is clearly the harmful one.

    Where losses explode, ratios of them are chance. Then it is the one without which they do not.
    """
    least, ahead = limits
    alone = exploded and worst.restores and not second.restores
    return worst.harm > least and (alone or worst.harm > ahead * second.harm)


def audit_rounds(share: float, rounds: int, cost: int) -> list[float]:
    """Return when members are audited: earlier in a run more often, as harm adds up.

    Parameters
    ----------
    share : float
        Rounds spent on audits, as a fraction of all. There is at least one audit unless it is 0.
    cost : int
        Rounds that an audit takes.

    Examples
    --------
    >>> audit_rounds(0.2, rounds=160, cost=10)
    [10.0, 40.0, 90.0]
    """
    if not share:
        return []
    count = min(max(1, int(share * rounds / cost)), MOST_AUDITS)
    return [rounds * ((k + 1) / (count + 1)) ** 2 for k in range(count)]


def _last_losses(outcome: Outcome) -> Losses:
    """Return the validation losses of the last evaluation; infinity for those not finite."""
    number = outcome.state.round
    found = {
        row.participant: row.value
        for row in outcome.rows
        if (row.round, row.split, row.metric) == (number, "validation", "loss")
    }
    for when, failure in outcome.failures:
        if when == number and failure.reason == "not finite":
            found.setdefault(failure.participant, math.inf)
    return found


def _rose(watched: Watched, outcome: Outcome, losses: Losses, *, now: bool = False) -> bool:
    """Return whether losses rose clearly at most members: one member's word is not enough."""
    risen = _risen(watched, outcome, losses, now=now)
    return 2 * sum(risen) > len(risen)


def _risen(watched: Watched, outcome: Outcome, losses: Losses, *, now: bool = False) -> list[bool]:
    """Return at which members losses rose clearly.

    Parameters
    ----------
    now : bool
        Whether the losses are later than the outcome's last evaluation, instead of its own.
    """
    since = max((one.round for one in outcome.findings if one.kind == "unexplained"), default=0)
    history: dict[Participant, list[float]] = {}
    first: dict[Participant, float] = {}
    for row in outcome.rows:
        if (row.split, row.metric) == ("validation", "loss"):
            first.setdefault(row.participant, row.value)
            if row.round >= since and (now or row.round < outcome.state.round):
                history.setdefault(row.participant, []).append(row.value)
    risen = []
    for name in watched.names:
        voices = []
        for one in watched.of(name):
            if one in losses and one in history:
                before, loss = history[one], losses[one]
                far = rise(min(before), loss, first[one]) > FAR
                voices.append(far or rise(before[-1], loss, first[one]) > JUMP)
        risen.append(2 * sum(voices) > len(voices))
    return risen


def _rolled_back(good: Outcome, outcome: Outcome) -> Outcome:
    """Return the good outcome with the findings and costs of the present one.

    Replies that were not finite since then were made from a model that another member had ruined.
    """
    back = good.copy()
    later = outcome.failures[len(good.failures) :]
    gone = {one.participant for one in outcome.findings if one.kind == "left out"}
    back.failures += [
        (when, one)
        for when, one in later
        if one.reason != "not finite" or one.participant.name in gone
    ]
    back.findings, back.spent = list(outcome.findings), outcome.copy().spent
    return back

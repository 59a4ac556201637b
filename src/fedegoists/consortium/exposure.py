"""The part of a deployed run in which the coordinator sees updates of single participants."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedegoists.benefit import ESTIMATOR_ENTRIES, LearnSettings
from fedegoists.benefit.estimator_registry import CURVES
from fedegoists.consortium.consortium_settings import ConsortiumSettings
from fedegoists.federation.participant import Participant
from fedegoists.federation.seam import Federation
from fedegoists.methods.consent import (
    BY_SUMS,
    FIX,
    ConsentError,
    check_all_consent,
    check_consent,
    exposed_coalitions,
)
from fedegoists.methods.method import Method
from fedegoists.methods.method_registry import METHOD_ENTRIES, TUNED
from fedegoists.training.repetitions import Wanted


@dataclass(frozen=True)
class Exposure:
    """A coalition whose members' single updates the coordinator sees.

    Attributes
    ----------
    method : str
        The training method.
    members : tuple of str
        The coalition.
    reason : str
        Why sums do not hide them.
    """

    method: str
    members: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        names = ", ".join(self.members)
        return f"{self.method}: the coordinator sees the single updates of {names}: {self.reason}"


@dataclass(frozen=True)
class MaskedSums:
    """A coalition of whose members' models the coordinator sees sums only, or less.

    Attributes
    ----------
    members, methods : tuple of str
        The coalition, and the training methods for which that holds, in each of their rounds.
    """

    members: tuple[str, ...]
    methods: tuple[str, ...]


def needs_single_updates(settings: ConsortiumSettings) -> list[str]:
    """Return what in a consortium's settings shows the coordinator updates of single silos."""
    reasons, benefit = [], settings.benefit
    at_home = benefit.estimator == CURVES and benefit.transfers is False
    if benefit.file is None and benefit.estimator != "everybody" and not at_home:
        reasons.append(f"benefits are estimated ([benefit] estimator = {benefit.estimator})")
    for name in settings.training.methods:
        sees = METHOD_ENTRIES[name.removesuffix(TUNED)].server_sees
        if sees not in BY_SUMS:
            reasons.append(f"the method {name} shows {sees}")
    if settings.formation.fewest_members < 3:
        reasons.append("coalitions may have two members ([formation] fewest_members)")
    if settings.deploy.secure_sums == "off":
        reasons.append("sums are not masked ([deploy] secure_sums)")
    return reasons


def check_methods(wanted: Wanted, federation: Federation) -> None:
    """Refuse methods that need single updates of silos that do not consent, before any stage.

    Raises
    ------
    ConsentError
        With the silos and what to change.
    """
    for method in _methods(wanted):
        check_all_consent(method, federation)


def check_estimator_consent(settings: LearnSettings, federation: Federation) -> None:
    """Refuse an estimator before it asks silos for single models or gradients without consent.

    Without transfers, the models of ``curves`` stay at home.

    Raises
    ------
    ConsentError
        With the silos and what to change.
    """
    estimator = settings.estimator
    if estimator == CURVES and not settings.transfers:
        return
    names = [one.name for one in federation.participants if not federation.consents(one)]
    if names:
        refusing = ", ".join(dict.fromkeys(names))
        raise ConsentError(
            f"the estimator {estimator} shows the server {ESTIMATOR_ENTRIES[estimator].sends} of "
            f"each participant, and {refusing} did not consent; give the benefits in a file, or "
            'set estimator = "everybody", under [benefit], or estimator = "curves" and transfers = '
            "false, with which only scores leave, or have "
            f"{FIX.format(names=refusing)}"
        )


def exposures(
    wanted: Wanted, federation: Federation, coalitions: Iterable[Sequence[str]]
) -> tuple[Exposure, ...]:
    """Return the coalitions whose single updates will be seen, and by which methods.

    Raises
    ------
    ConsentError
        If a silo among them does not consent.
    """
    groups = Participant.groups(coalitions)
    found: list[Exposure] = []
    for method in _methods(wanted):
        check_consent(method, federation, groups)
        found += [
            Exposure(method.name, tuple(one.name for one in group), _reason(method, group))
            for group in exposed_coalitions(method, federation, groups)
        ]
    return tuple(found)


def masked_sums(
    wanted: Wanted, federation: Federation, coalitions: Iterable[Sequence[str]]
) -> tuple[MaskedSums, ...]:
    """Return the coalitions whose sums are masked, in all rounds, and by which methods."""
    return tuple(
        MaskedSums(tuple(one.name for one in group), methods)
        for group in Participant.groups(coalitions)
        if len(group) > 1 and federation.masks(group)
        if (
            methods := tuple(
                method.name for method in _methods(wanted) if method.server_sees == "sums"
            )
        )
    )


def _methods(wanted: Wanted) -> list[Method]:
    return [METHOD_ENTRIES[name].load()(**wanted.settings.get(name, {})) for name in wanted.bases]


def _reason(method: Method, group: Sequence[Participant]) -> str:
    if method.server_sees not in BY_SUMS:
        return f"the method needs {method.server_sees}"
    if len(group) == 2:
        return (
            "a sum of two hides nothing, as each member can subtract its own part; the other "
            "member can compute them, too"
        )
    return 'sums are not masked (deploy.secure_sums = "off")'

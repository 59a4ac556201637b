"""Consent of silos to methods that show the server models or gradients of single participants."""

from collections.abc import Iterable

from fedegoists.errors import SettingsError
from fedegoists.federation.participant import Participant
from fedegoists.federation.seam import Federation
from fedegoists.methods.method import Coalitions, Method
from fedegoists.methods.method_registry import METHOD_ENTRIES

BY_SUMS = ("nothing", "sums")
"""What a method may show the server without a silo's consent."""

FIX = "single_updates = true under [limits] in the silo.toml of {names}"


NOT_OF_TWO = (
    "in a coalition of 2",
    "form coalitions of at least three members (fewest_members = 3 under [formation])",
)
NOT_MASKED = ("where sums are not masked", 'set secure_sums = "auto" under [deploy]')
"""Why sums do not hide updates, and what to change."""


class ConsentError(SettingsError):
    """A method that some silos would refuse, because it shows the server their single updates."""


def exposed_coalitions(
    method: Method, federation: Federation, coalitions: Coalitions
) -> list[tuple[Participant, ...]]:
    """Return the coalitions in which the server sees updates of single members.

    All that have several members, if the method needs that; otherwise those whose sums the
    federation does not mask, as with two members.
    """
    if method.server_sees == "nothing":
        return []
    return [
        tuple(group)
        for group in coalitions
        if len(group) > 1 and not (method.server_sees in BY_SUMS and federation.masks(group))
    ]


def check_consent(method: Method, federation: Federation, coalitions: Coalitions) -> None:
    """Refuse to train with a method that some silos would refuse in the first round.

    Raises
    ------
    ConsentError
        With the silos, and what to change.
    """
    for group in exposed_coalitions(method, federation, coalitions):
        refusing = _names(one for one in group if not federation.consents(one))
        if not refusing:
            continue
        if method.server_sees in BY_SUMS:
            why, fix = NOT_OF_TWO if len(group) == 2 else NOT_MASKED
            raise ConsentError(
                f"{method.name}: the updates of {_names(group)} are not hidden from the server "
                f"{why}, and {refusing} did not consent to show them; {fix}, or have "
                f"{FIX.format(names=refusing)}"
            )
        raise ConsentError(_refusal(method, refusing))


def check_all_consent(method: Method, federation: Federation) -> None:
    """Refuse a method that needs single updates before it is known who trains with whom.

    Raises
    ------
    ConsentError
        With the silos that do not consent, and what to change.
    """
    refusing = _names(one for one in federation.participants if not federation.consents(one))
    if refusing and method.server_sees not in BY_SUMS:
        raise ConsentError(_refusal(method, refusing))


def _refusal(method: Method, refusing: str) -> str:
    others = ", ".join(
        name for name, entry in METHOD_ENTRIES.items() if entry.server_sees == "sums"
    )
    return (
        f"{method.name} shows the server {method.server_sees} of each participant, and {refusing} "
        f"did not consent; choose methods that need only sums ({others}), or have "
        f"{FIX.format(names=refusing)}"
    )


def _names(participants: Iterable[Participant]) -> str:
    """Return names without repetitions, each once."""
    return ", ".join(dict.fromkeys(one.name for one in participants))

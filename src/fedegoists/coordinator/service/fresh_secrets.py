"""Invitations and tokens that were just made, for the page after the form that made them.

Only their hashes are stored. So that the page can be loaded again, they are kept in memory for
some minutes, or until the reader has sent or stored them.
"""

from collections.abc import Callable, Sequence
from threading import Lock

from fedegoists.coordinator.service.api_schemas import InvitationView

SECONDS_SHOWN = 900.0

Key = tuple[str, int]
"""A session, and the consortium of an invitation, or `OWN_TOKEN`."""

OWN_TOKEN = 0


class FreshSecrets:
    """Secrets by session and consortium, for a limited time.

    Examples
    --------
    >>> time = 0.0
    >>> fresh = FreshSecrets(lambda: time)
    >>> fresh.add(("session", 1), [InvitationView(label="North", invitation="secret")])
    >>> [one.label for one in fresh.of(("session", 1))], fresh.of(("other", 1))
    (['North'], [])
    >>> time = SECONDS_SHOWN
    >>> fresh.of(("session", 1))
    []
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, Lock()
        self._kept: dict[Key, tuple[float, dict[str, InvitationView]]] = {}

    def add(self, key: Key, made: Sequence[InvitationView]) -> None:
        """Keep secrets; a later one of the same name takes the place of an earlier."""
        with self._lock:
            self._forget()
            _, known = self._kept.get(key, (0.0, {}))
            kept = {**known, **{one.label: one for one in made}}
            self._kept[key] = self._clock() + SECONDS_SHOWN, kept

    def of(self, key: Key) -> list[InvitationView]:
        """Return the secrets to show."""
        with self._lock:
            self._forget()
            return list(self._kept.get(key, (0.0, {}))[1].values())

    def clear(self, key: Key) -> None:
        """Forget secrets that were sent or stored."""
        with self._lock:
            self._kept.pop(key, None)

    def _forget(self) -> None:
        now = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now}

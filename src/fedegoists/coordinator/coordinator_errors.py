"""Errors of the coordinator, each with the fix in its message."""

from fedegoists.errors import FedEgoistsError


class StoreError(FedEgoistsError):
    """A problem with the database."""


class FullStoreError(StoreError):
    """No room left on the disk; the transaction was not kept."""


class DamagedStoreError(StoreError):
    """A damaged database."""


class UnavailableStoreError(StoreError):
    """A database that does not answer."""


class NotAllowedError(FedEgoistsError):
    """An action that the caller may not do."""


class NotFoundError(FedEgoistsError):
    """Something that does not exist, or is not for the caller."""


class ConflictError(FedEgoistsError):
    """An action that conflicts with the current state."""

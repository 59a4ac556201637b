"""What can go wrong at the coordinator, each with what to do about it."""

from fedegoists.errors import FedEgoistsError

__all__ = [
    "ConflictError",
    "DamagedStoreError",
    "FullStoreError",
    "NotAllowedError",
    "NotFoundError",
    "StoreError",
    "UnavailableStoreError",
]


class StoreError(FedEgoistsError):
    """Something is wrong with the database."""


class FullStoreError(StoreError):
    """There is no room left on the disk; what was being written was not kept."""


class DamagedStoreError(StoreError):
    """The database file is not what the coordinator wrote."""


class UnavailableStoreError(StoreError):
    """The database does not answer."""


class NotAllowedError(FedEgoistsError):
    """Somebody who may not do this."""


class NotFoundError(FedEgoistsError):
    """Something that is not there, or not for the one who asks."""


class ConflictError(FedEgoistsError):
    """Something that does not fit the state things are in."""

"""A client of the coordinator's HTTP interface, for managers and members.

It needs nothing besides Python. Answers are typed dictionaries (`fedegoists.client.answers`);
whatever the coordinator refuses is a `ClientError` with its reason.
"""

from fedegoists.client.connection import ClientError, Connection, accept_invitation
from fedegoists.client.manager_client import ManagedConsortium, ManagedRun, ManagerClient
from fedegoists.client.member_client import MemberClient

__all__ = [
    "ClientError",
    "Connection",
    "ManagedConsortium",
    "ManagedRun",
    "ManagerClient",
    "MemberClient",
    "accept_invitation",
]

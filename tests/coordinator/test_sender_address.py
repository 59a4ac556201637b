"""Addresses that belong to one sender."""

from fedegoists.coordinator.service.coordinator_service import Limits
from fedegoists.coordinator.service.sender_address import address_group
from tests.coordinator.served import bearer, inside


def test_addresses_of_one_sender():
    assert address_group("::ffff:192.0.2.7") == "192.0.2.7"
    assert address_group("fe80::1%eth0") == address_group("fe80::2")
    assert address_group("2001:db8::1") != address_group("2001:db8:0:1::1")
    assert address_group("unknown") == "unknown"


def test_a_sender_cannot_guess_from_many_addresses_of_its_own(sqlite_store, tmp_path):
    with inside(sqlite_store, tmp_path, Limits(failures_per_minute=3)) as (client, _):
        seen = []
        for k in range(5):
            client._transport.client = (f"2001:db8::{k:x}", 50000)
            seen.append(client.get("/api/me", headers=bearer(f"w{k}")).status_code)
        client._transport.client = ("2001:db8:0:1::1", 50000)
        assert client.get("/api/me", headers=bearer("w")).status_code == 401
    assert seen == [401] * 3 + [429] * 2
